"""Stanford Sentiment Treebank: the sentiment of a sentence and of every phrase in it."""
