"""Unsupervised parsing: compare the trees of a language model, ON-LSTM or PRPN, with those of a treebank."""
