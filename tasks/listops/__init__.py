"""ListOps: predict the values of nested list operations."""
