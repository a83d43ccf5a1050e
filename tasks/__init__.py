"""Tasks for Ordered Memory and ON-LSTM, run from a checkout as `python -m tasks.NAME`."""
