"""Propositional logic: predict the relation between two formulas.

python -m tasks.logic --preset demo
python -m tasks.logic --split C
python -m tasks.logic predict "( a ( and b ) )" "( a ( or ( not c ) ) )"
"""
