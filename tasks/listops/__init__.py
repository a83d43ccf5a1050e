"""ListOps: the values of nested list operations."""
