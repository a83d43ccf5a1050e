"""Propositional logic: predict the relation between two formulas."""
