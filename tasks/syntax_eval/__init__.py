"""Minimal pairs: whether language models prefer the grammatical sentence."""
