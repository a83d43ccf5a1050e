"""Unsupervised parsing: the trees of an ON-LSTM language model against a treebank's."""
