"""Propositional logic: how two formulas are related."""
