"""C files of backends: how they are compiled, for a wheel or when first needed, and how their threads run."""
