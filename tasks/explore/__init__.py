"""A page on this machine: type an expression, two formulas or a sentence, and see a trained model read it."""
