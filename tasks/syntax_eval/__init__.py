"""Minimal pairs: test whether language models prefer grammatical sentences."""
