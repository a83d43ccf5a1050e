"""Phrases as examples of a classifier.

n is the number of examples, B those of a batch, T the words of the longest phrase in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ordered_memory.trees import Span, Tree, keep_leaves, spans
from tasks.classifiers.classification import Sentence
from tasks.classifiers.tree_batching import TreeBatch, TreeNodes, batch_trees, subtree_nodes, tree_nodes
from tasks.sst.treebank import NEUTRAL, LabelledTree, Phrase


class Batch(NamedTuple):
    """Some phrases.

    Args:
        words: of each of the B phrases, as they are written.
        lengths: (B,) int64, in words.
        labels: (B,) int64.
        trees: the true trees; None unless asked for.
    """

    words: list[list[str]]
    lengths: Tensor
    labels: Tensor
    trees: TreeBatch | None = None


class PhraseData:
    """Phrases of some sentences; see `LabelledData`.

    Args:
        trees: the sentences.
        examples: phrases in them.
        given_trees: let batches carry the true trees.
        part: what results on them are called.
        labelled: whether labels and trees are known.
    Example:
        >>> tree = LabelledTree(("Not", "good"), (0, 1), {(0, 0): 2, (1, 1): 4, (0, 1): 1})
        >>> data = PhraseData([tree], [Phrase(0, 0, 1, 0, 1), Phrase(0, 1, 1, 1, 1)])
        >>> data.batch([1, 0]).words, data.batch([1, 0]).labels
        ([['good'], ['Not', 'good']], tensor([1, 0]))
    """

    def __init__(
        self,
        trees: Sequence[LabelledTree],
        examples: Sequence[Phrase],
        *,
        given_trees: bool = False,
        part: str = "test",
        labelled: bool = True,
    ) -> None:
        self.trees, self.examples, self.given_trees = trees, examples, given_trees
        self.part, self.labelled = part, labelled
        self.labels = np.array([phrase.label for phrase in examples], dtype=np.int64)
        self.counts = np.array([phrase.count for phrase in examples], dtype=np.int64)
        self.lengths = np.array([phrase.last - phrase.first + 1 for phrase in examples], dtype=np.int64)
        self._nodes: dict[int, _SentenceNodes] = {}

    @property
    def sentence_lengths(self) -> NDArray[np.int64]:
        """(n, 1) int64: words of each phrase."""
        return self.lengths[:, None]

    def words_of(self, index: int) -> list[str]:
        """The words of a phrase, as they are written.

        Args:
            index: of the example, in [0, n).
        """
        phrase = self.examples[index]
        return list(self.trees[phrase.sentence].words[phrase.first : phrase.last + 1])

    def batch(self, indices: ArrayLike) -> Batch:
        """Some phrases; see `LabelledData.batch`."""
        chosen = np.asarray(indices, dtype=np.int64)
        lengths = self.lengths[chosen]
        trees = None
        if self.given_trees:
            trees = batch_trees([self._nodes_of(i) for i in chosen], int(lengths.max(initial=0)))
        return Batch(
            [self.words_of(index) for index in chosen],
            torch.from_numpy(lengths),
            torch.from_numpy(self.labels[chosen]),
            trees,
        )

    def tree_of(self, index: int) -> Tree:
        """The true tree of a phrase, over its own words.

        Args:
            index: of the example, in [0, n).
        """
        phrase = self.examples[index]
        return keep_leaves(self.trees[phrase.sentence].tree, range(phrase.first, phrase.last + 1))

    def _nodes_of(self, index: int) -> TreeNodes:
        """The tree of a phrase as arrays, cut out of those of its sentence."""
        phrase = self.examples[index]
        if phrase.sentence not in self._nodes:
            tree = self.trees[phrase.sentence].tree
            inner = {span: place for place, span in enumerate(spans(tree))}
            self._nodes[phrase.sentence] = _SentenceNodes(tree_nodes(tree, range(len(inner) + 1)), inner)
        nodes, inner = self._nodes[phrase.sentence]
        size = phrase.last - phrase.first
        end = inner[phrase.first, phrase.last] + 1 if size else 0
        return subtree_nodes(nodes, phrase.first, size + 1, end)

    def sentences(self, index: int) -> tuple[Sentence]:
        """A phrase with its true tree and the sentiment of its nodes; see `LabelledData.sentences`."""
        phrase = self.examples[index]
        labelled = self.trees[phrase.sentence]
        words = self.words_of(index)
        values = {
            (first - phrase.first, last - phrase.first): (label - NEUTRAL) / 2
            for (first, last), label in labelled.labels.items()
            if phrase.first <= first and last <= phrase.last
        }
        return (Sentence(words, range(len(words)), self.tree_of(index), values=values or None),)

    def word_trees(self, trees: list[Tree], batch: Batch) -> list[Tree]:
        """The same trees: every token is a word; see `LabelledData.word_trees`."""
        return trees


class _SentenceNodes(NamedTuple):
    """The tree of a sentence as arrays, and the place of each of its inner nodes by its span."""

    nodes: TreeNodes
    inner: dict[Span, int]


def unlabelled_phrases(words: Sequence[str], tree: Tree, phrases: Sequence[Span]) -> PhraseData:
    """Phrases of one sentence whose sentiment is not known; 0 stands in for their labels.

    Args:
        words: of the sentence.
        tree: over them.
        phrases: first and last word of each, both inclusive; constituents of the tree, or words.
    """
    examples = [Phrase(0, first, last, 0, 1) for first, last in phrases]
    return PhraseData([LabelledTree(tuple(words), tree, {})], examples, given_trees=True, labelled=False)
