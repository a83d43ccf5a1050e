"""What a seed draws is the same in every version, since the measured numbers depend on it."""

import hashlib
import json
from functools import partial

import pytest

from tasks.language_model import grammar
from tasks.language_model.config import LanguageModelConfig
from tasks.language_model.corpus import generate_splits
from tasks.listops import generator as listops
from tasks.logic import generator as logic
from tasks.sst import grammar as sentiment


def expressions():
    splits = listops.standard(1, 1_000, validation=100)
    short = [expression for expression in splits.train if len(expression.tokens) <= 100]  # as by default
    drawn = [short, splits.validation, splits.test]
    drawn += (listops.hard_test(name, 20, seed=1) for name in ("operators", "900-1000", "10-args"))
    return [[expression.tokens.hex(), int(expression.label)] for part in drawn for expression in part]


def formulas():
    train, test = logic.generate(500, seed=1)
    pairs = [pair for group in (*train, *test, logic.longer(14, 10, seed=1)) for pair in group]
    return [[pair.left.hex(), pair.right.hex(), pair.label] for pair in pairs]


def sentences():
    drawn = [[sentence.words, sentence.tree] for sentence in grammar.generate_sentences(100, 1)]
    return drawn + [[pair.good, pair.bad] for pair in grammar.generate_pairs(20, 1)]


def part_of_text(index):
    part = generate_splits(LanguageModelConfig(sentences=200, seed=1))[index]
    return [[sentence.words, sentence.tree] for sentence in part]


def labeled_trees():
    return [[tree.words, tree.tree, sorted(tree.labels.items())] for tree in sentiment.generate(50, 1)]


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (expressions, "819f8f8dd722f5f7"),
        (formulas, "ea37b10ef77750d1"),
        (sentences, "974a18126b9b4f1b"),
        (partial(part_of_text, 0), "3cb78942f00b4d00"),
        (partial(part_of_text, 1), "344e42a98de84966"),
        (partial(part_of_text, 2), "b6557eda5553c64b"),
        (labeled_trees, "80b508929531a3a3"),
    ],
)
def test_a_seed_draws_the_same_data_in_every_version(draw, expected):
    assert hashlib.sha256(json.dumps(draw()).encode()).hexdigest()[:16] == expected
