"""Compiles the C files of the backends, for a wheel or when first needed, and runs them on threads."""
