"""Unsupervised parsing: the trees of a language model, ON-LSTM or PRPN, against a treebank's."""
