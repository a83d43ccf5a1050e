"""Stanford Sentiment Treebank: predict the sentiment of sentences and of the phrases in them."""
