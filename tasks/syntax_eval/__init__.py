"""Minimal pairs: test whether language models prefer grammatical sentences.

python -m tasks.syntax_eval --checkpoint runs/language_model/demo-onlstm-1/best.safetensors
python -m tasks.syntax_eval score "the cat sees the dogs"
"""
