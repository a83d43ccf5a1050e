"""Reproduce the tables of the papers: train with several seeds, and compare with the published results."""
