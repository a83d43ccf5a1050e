"""Trees of nltk, scored against one another and beside the baselines."""

import nltk

from ordered_memory.span_f1 import compare, format_report
from ordered_memory.trees import from_nltk

gold = nltk.Tree.fromstring("(S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (DT a) (NN bird))))")
predicted = nltk.Tree.fromstring("(X (X the cat) (X (X sees a) bird))")
predicted_tree, gold_tree = from_nltk(predicted)[0], from_nltk(gold)[0]
print(format_report(compare([predicted_tree], [gold_tree]), punctuation="none in the sentence"))
