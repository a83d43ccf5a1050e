"""The data set of the sentiment task, whose examples are phrases.

n is the number of examples, B the batch size, T the number of words of the longest phrase in a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ordered_memory.baseline_trees import right_branching
from ordered_memory.trees import Span, Tree, keep_leaves, spans
from tasks.classifiers.classification import LabeledData, Sentence
from tasks.classifiers.tree_batching import TreeBatch, TreeNodes, batch_trees, subtree_nodes, tree_nodes
from tasks.sst.treebank import NEUTRAL, LabeledTree, Phrase


class Batch(NamedTuple):
    """A batch of phrases.

    Args:
        words: the words of each of the B phrases, as they are written.
        lengths: number of words, (B,) int64.
        labels: (B,) int64.
        trees: the true trees; None unless the data set includes them.
    """

    words: list[list[str]]
    lengths: Tensor
    labels: Tensor
    trees: TreeBatch | None = None


class PhraseData(LabeledData):
    """A data set of phrases.

    Args:
        trees: the sentences.
        examples: phrases of these sentences.
        include_trees: whether batches contain the true trees.
        split: what results on this data are called.
        labeled: whether labels are known; if not, `sentences` returns no true trees.
    Example:
        >>> tree = LabeledTree(("Not", "good"), (0, 1), {(0, 0): 2, (1, 1): 4, (0, 1): 1})
        >>> data = PhraseData([tree], [Phrase(0, 0, 1, 0, 1), Phrase(0, 1, 1, 1, 1)])
        >>> data.batch([1, 0]).words, data.batch([1, 0]).labels
        ([['good'], ['Not', 'good']], tensor([1, 0]))
    """

    def __init__(
        self,
        trees: Sequence[LabeledTree],
        examples: Sequence[Phrase],
        *,
        include_trees: bool = False,
        split: str = "test",
        labeled: bool = True,
    ) -> None:
        self.trees, self.examples, self.include_trees = trees, examples, include_trees
        self.split, self.labeled = split, labeled
        self.labels = np.array([phrase.label for phrase in examples], dtype=np.int64)
        self.counts = np.array([phrase.count for phrase in examples], dtype=np.int64)
        self.lengths = np.array([phrase.last - phrase.first + 1 for phrase in examples], dtype=np.int64)
        self._nodes: dict[int, _SentenceNodes] = {}

    @property
    def sentence_lengths(self) -> NDArray[np.int64]:
        """Number of words of each phrase, (n, 1) int64."""
        return self.lengths[:, None]

    def words_of(self, index: int) -> list[str]:
        """Return the words of a phrase, as they are written.

        Args:
            index: index of the example, in [0, n).
        """
        phrase = self.examples[index]
        return list(self.trees[phrase.sentence].words[phrase.first : phrase.last + 1])

    def batch(self, indices: ArrayLike) -> Batch:
        """Collate phrases to a batch; see `LabeledData.batch`."""
        chosen = np.asarray(indices, dtype=np.int64)
        lengths = self.lengths[chosen]
        trees = None
        if self.include_trees:
            trees = batch_trees([self._nodes_of(i) for i in chosen], int(lengths.max(initial=0)))
        return Batch(
            [self.words_of(index) for index in chosen],
            torch.from_numpy(lengths),
            torch.from_numpy(self.labels[chosen]),
            trees,
        )

    def tree_of(self, index: int) -> Tree:
        """Return the true tree of a phrase, over its own words.

        Args:
            index: index of the example, in [0, n).
        """
        phrase = self.examples[index]
        return keep_leaves(self.trees[phrase.sentence].tree, range(phrase.first, phrase.last + 1))

    def _nodes_of(self, index: int) -> TreeNodes:
        """The tree of a phrase as arrays: a subtree of its sentence's."""
        phrase = self.examples[index]
        if phrase.sentence not in self._nodes:
            tree = self.trees[phrase.sentence].tree
            inner = {span: i for i, span in enumerate(spans(tree))}
            self._nodes[phrase.sentence] = _SentenceNodes(tree_nodes(tree, range(len(inner) + 1)), inner)
        nodes, inner = self._nodes[phrase.sentence]
        size = phrase.last - phrase.first
        end = inner[phrase.first, phrase.last] + 1 if size else 0
        return subtree_nodes(nodes, phrase.first, size + 1, end)

    def sentences(self, index: int) -> tuple[Sentence]:
        """Return a phrase, its true tree and the sentiments of its nodes; see `LabeledData.sentences`."""
        phrase = self.examples[index]
        labeled = self.trees[phrase.sentence]
        words = self.words_of(index)
        values = {
            (first - phrase.first, last - phrase.first): (label - NEUTRAL) / 2
            for (first, last), label in labeled.labels.items()
            if phrase.first <= first and last <= phrase.last
        }
        tree = self.tree_of(index) if self.labeled else None
        return (Sentence(words, range(len(words)), tree, values=values or None),)


class _SentenceNodes(NamedTuple):
    """The tree of a sentence as arrays, and the index of each inner node by its span."""

    nodes: TreeNodes
    inner: dict[Span, int]


def unlabeled_sentences(sentences: Sequence[Sequence[str]]) -> PhraseData:
    """Make a data set of sentences whose trees and labels are not known; 0 is used as a dummy label.

    Args:
        sentences: words of each sentence.
    """
    trees = [LabeledTree(tuple(words), right_branching(len(words)), {}) for words in sentences]
    examples = [Phrase(i, 0, len(words) - 1, 0, 1) for i, words in enumerate(sentences)]
    return PhraseData(trees, examples, labeled=False)


def unlabeled_phrases(words: Sequence[str], tree: Tree | None, phrases: Sequence[Span]) -> PhraseData:
    """Make a data set of phrases of one sentence, without labels; 0 is used as a dummy label.

    Args:
        words: words of the sentence.
        tree: over these words, for models that get trees as input; None if it is not known.
        phrases: first and last word of each phrase, both inclusive. If the tree is known, they are its
            constituents or single words.
    """
    examples = [Phrase(0, first, last, 0, 1) for first, last in phrases]
    labeled = LabeledTree(tuple(words), right_branching(len(words)) if tree is None else tree, {})
    return PhraseData([labeled], examples, include_trees=tree is not None, labeled=False)
