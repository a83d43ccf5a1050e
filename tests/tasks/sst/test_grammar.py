"""Drawn sentences: their labels by the rules, and how little a bag of their words tells."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from ordered_memory.trees import fold, spans
from tasks.runs.errors import UserError
from tasks.sst import lexicon
from tasks.sst.grammar import generate, generate_treebank
from tasks.sst.treebank import LabeledTree

SIZE = 3_000


@pytest.fixture(scope="module")
def trees():
    return generate(SIZE, seed=1)


def test_the_same_seed_draws_the_same_sentences(trees):
    assert generate(50, seed=1) == trees[:50]
    assert generate(50, seed=2) != trees[:50]
    assert [" ".join(tree.words) for tree in generate(2, seed=0)] == [
        "though the stranger regretted this picture , their teacher knows that everybody saw her rather "
        "charming series",
        "nobody thinks that nobody doubts that our opera was n't truly horrible",
    ]  # in every process and on every machine


def test_sentences_are_different_binary_trees_of_some_length(trees):
    assert len({tree.words for tree in trees}) == SIZE
    lengths = [len(tree.words) for tree in trees]
    assert (min(lengths), max(lengths)) == (3, 25)
    assert 200 < len({word for tree in trees for word in tree.words}) < 500
    for tree in trees:
        assert fold(tree.tree, lambda leaf: True, lambda parts: len(parts) == 2 and all(parts))
        words = [(place, place) for place in range(len(tree.words))]
        assert sorted(tree.labels) == sorted([*words, *spans(tree.tree)])


def test_words_decide_tree_and_labels():
    """The same words never have two readings, whatever stands around them."""
    trees = [tree for seed in range(5) for tree in generate(2_000, seed)]
    read: dict[tuple[str, ...], LabeledTree] = {}
    labels: dict[str, int] = {}
    for tree in trees:
        assert read.setdefault(tree.words, tree) == tree
        for (first, last), label in tree.labels.items():
            assert labels.setdefault(" ".join(tree.words[first : last + 1]), label) == label
    assert len(read) < len(trees)
    expected = {"very bad": 0, "somewhat brilliant": 3, "somewhat good": 3, "not good": 1, "neither bad": 3}
    expected |= {"is n't dull": 3, "no genius": 1, "n't dull": None, "good": 3, "not": 2}
    assert {phrase: labels.get(phrase) for phrase in expected} == expected


def flip(label):
    return 2 - np.sign(label - 2)


def average(first, second):
    middle = (first + second) / 2 - 2
    return int(2 + np.sign(middle) * np.ceil(abs(middle)))


FLIPS = {"n't", "no", "nobody", "neither", "nor", *lexicon.NEGATIONS, *lexicon.LACKS, *lexicon.DOUBTS}
ACTIONS = {word for words in lexicon.VERBS + lexicon.PAST for word in words}


def composed(left, right, a, b):
    """The label of a constituent from the words and the labels of its two parts."""
    if right[0] == "but" or left[-1] == ",":
        return b
    if right[0] in lexicon.CONCESSIONS:
        return a
    if right[0] == "and" or (left[0] == "neither" and right[0] == "nor"):
        return average(a, b)
    head = left[-1] if len(left) == 1 or left[-1] == "n't" else None
    if head in FLIPS:
        return flip(b)
    if head in lexicon.INTENSIFIERS:
        return 2 + 2 * np.sign(b - 2)
    if head in lexicon.DIMINISHERS:
        return 2 + np.sign(b - 2)
    return a if b == 2 or (head in ACTIONS and a != 2) else b


def test_labels_follow_the_rules(trees):
    for tree in trees:

        def check(parts, tree=tree):
            (first, middle), (after, last) = parts
            words = tree.words[first : middle + 1], tree.words[after : last + 1]
            labels = [tree.labels[span] for span in parts]
            assert tree.labels[first, last] == composed(*words, *labels), (words, labels)
            return first, last

        fold(tree.tree, lambda leaf: (leaf, leaf), check)


def test_a_bag_of_words_does_not_tell_the_sentiment(trees):
    vocabulary = {word: i for i, word in enumerate(sorted({word for tree in trees for word in tree.words}))}
    counts = torch.zeros(SIZE, len(vocabulary))
    for row, tree in zip(counts, trees, strict=True):
        for word in tree.words:
            row[vocabulary[word]] += 1
    labels = torch.tensor([tree.label for tree in trees])
    weights = torch.zeros(len(vocabulary), 5, requires_grad=True)
    optimizer = torch.optim.Adam([weights], lr=0.02)
    train, test = slice(0, 2_500), slice(2_500, None)
    for _ in range(100):
        optimizer.zero_grad()
        cross_entropy(counts[train] @ weights, labels[train]).backward()
        optimizer.step()
    accuracy = ((counts @ weights).argmax(1) == labels).float()
    assert accuracy[train].mean() < 0.65
    assert accuracy[test].mean() < 0.55
    assert max(Counter(labels.tolist()).values()) < 0.4 * SIZE
    assert min(Counter(labels.tolist()).values()) > 0.05 * SIZE


def test_no_sentence_is_in_two_parts():
    treebank = generate_treebank(205, seed=3)
    assert [len(part) for part in treebank] == [165, 20, 20]
    assert len({tree.words for part in treebank for tree in part}) == 205
    assert generate_treebank(205, seed=3) == treebank


def test_arguments_out_of_range():
    with pytest.raises(UserError, match="the number of generated sentences must be at least 1, got 0"):
        generate(0, seed=1)
    with pytest.raises(UserError, match="the seed of generated sentences must not be negative, got -1"):
        generate(1, seed=-1)
    with pytest.raises(UserError, match="--generated must be 0 or at least 10, got 9"):
        generate_treebank(9, seed=1)
