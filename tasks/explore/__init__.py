"""A local web page: type an expression, two formulas or a sentence, and see how a trained model reads it."""
