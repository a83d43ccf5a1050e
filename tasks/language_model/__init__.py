"""Word language models: ON-LSTM, LSTM and PRPN.

python -m tasks.language_model --preset demo
python -m tasks.language_model --preset small --data-dir PTB
python -m tasks.language_model generate --count 5 --start "the cat"
"""
