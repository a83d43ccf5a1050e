"""C files of backends: how they are compiled when first needed, and how their threads run."""
