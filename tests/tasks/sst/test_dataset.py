"""Phrases as examples: words, labels and trees of every node, against the tree itself."""

import numpy as np
import pytest

from ordered_memory.trees import keep_leaves, leaves, spans
from tasks.classifiers.tree_batching import tree_nodes
from tasks.sst.dataset import PhraseData, unlabeled_phrases
from tasks.sst.grammar import generate
from tasks.sst.treebank import phrases, sentences


@pytest.fixture(scope="module")
def trees():
    return generate(40, seed=3)


@pytest.mark.parametrize("classes", [2, 5])
def test_an_example_is_what_stands_under_its_node(trees, classes):
    data = PhraseData(trees, phrases(trees, classes))
    batch = data.batch(range(len(data.labels)))
    for index, phrase in enumerate(data.examples):
        labeled = trees[phrase.sentence]
        words = list(labeled.words[phrase.first : phrase.last + 1])
        assert batch.words[index] == words
        assert batch.lengths[index] == data.lengths[index] == len(words)
        sentiment = labeled.labels[phrase.first, phrase.last]
        assert batch.labels[index] == (sentiment if classes == 5 else sentiment > 2)
        [sentence] = data.sentences(index)
        assert leaves(sentence.tree) == list(range(len(words)))
        shifted = {(i + phrase.first, j + phrase.first) for i, j in spans(sentence.tree)}
        assert shifted <= set(spans(labeled.tree))
        assert sentence.values[0, len(words) - 1] == (sentiment - 2) / 2
        assert len(sentence.values) == 2 * len(words) - 1


def test_the_tree_of_a_phrase_is_cut_out_of_its_sentence(trees):
    data = PhraseData(trees, phrases(trees, 5), include_trees=True)
    for index, phrase in enumerate(data.examples):
        tree = keep_leaves(trees[phrase.sentence].tree, range(phrase.first, phrase.last + 1))
        for cut, whole in zip(
            data._nodes_of(index), tree_nodes(tree, range(data.lengths[index])), strict=True
        ):
            assert np.array_equal(cut, whole)


def test_a_phrase_reads_alike_alone_and_in_its_sentence(trees):
    data = PhraseData(trees, sentences(trees, 5))
    assert [len(words) for words in data.batch(range(3)).words] == data.lengths[:3].tolist()
    alone = unlabeled_phrases(["not", "good"], (0, 1), [(0, 1), (1, 1)])
    assert alone.batch([0, 1]).words == [["not", "good"], ["good"]]
    assert alone.sentences(0)[0].values is None
