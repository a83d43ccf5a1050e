"""Stanford Sentiment Treebank: predict the sentiment of sentences and of the phrases in them.

python -m tasks.sst --preset demo
python -m tasks.sst predict "neither bad nor dull"
"""
