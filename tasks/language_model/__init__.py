"""Word language models: ON-LSTM, LSTM and PRPN."""
