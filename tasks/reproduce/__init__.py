"""The papers' tables from one command each: runs over seeds, ours beside published numbers."""
