"""Numbers and tables as text, shared by tasks."""
