"""Word language models with ON-LSTM or LSTM layers."""
