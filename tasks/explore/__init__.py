"""A local web page: type an expression, two formulas or a sentence, and see how a trained model reads it.

python -m tasks.explore
python -m tasks.explore --checkpoint runs/listops/demo-ordered-memory-1/best.safetensors
"""
