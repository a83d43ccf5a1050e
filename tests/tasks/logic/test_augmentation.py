"""Renamed and exchanged training pairs."""

from itertools import chain

import numpy as np
import pytest
from torch.testing import assert_close

from tasks.logic.augmentation import augmented, variables_in
from tasks.logic.data import PATTERNS, Dataset, make_pair, matches, split
from tasks.logic.formulas import TABLES, decode


def without_names(pair):
    """The formulas with their variables numbered by first occurrence: renaming does not change them."""
    words = [*decode(pair.left), "|", *decode(pair.right)]
    names = list(dict.fromkeys(word for word in words if word in TABLES))
    return [names.index(word) if word in names else word for word in words]


def test_augmented_pairs_are_renamed_and_exchanged(groups):
    data = Dataset(list(chain.from_iterable(groups[0]))[:500])
    new_data = augmented(data, np.random.default_rng(1))
    exchanged = 0
    for pair, new in zip(data.pairs, new_data.pairs, strict=True):
        assert new == make_pair(" ".join(decode(new.left)), " ".join(decode(new.right)))  # label, operations
        back = new._replace(left=new.right, right=new.left)
        assert without_names(pair) in (without_names(new), without_names(back))
        exchanged += without_names(pair) != without_names(new)
    assert 150 < exchanged < 350
    assert (np.sort(new_data.sentence_lengths) == np.sort(data.sentence_lengths)).all()
    assert new_data.labels.tolist() == [pair.label for pair in new_data.pairs]
    assert augmented(data, np.random.default_rng(1)).pairs == new_data.pairs
    assert augmented(data, np.random.default_rng(2)).pairs != new_data.pairs


def test_augmentation_draws_all_names_and_orders_alike():
    data = Dataset.from_texts([("a", "( a ( or b ) )")] * 6_000)
    drawn = augmented(data, np.random.default_rng(1)).pairs
    _, counts = np.unique([" ".join(decode(pair.left + pair.right)) for pair in drawn], return_counts=True)
    assert len(counts) == 2 * 6 * 5
    assert counts.min() > 60  # 100 expected
    assert counts.max() < 140


@pytest.mark.parametrize("name", ["full", "A", "B", "C"])
def test_augmentation_makes_no_pairs_that_a_split_leaves_out(groups, name):
    pattern = PATTERNS[name]
    data = Dataset(split(*groups, name).train)
    kept = variables_in(pattern)
    assert kept == (["a"] if name == "A" else [])
    new_data = augmented(data, np.random.default_rng(1), keep=kept)
    assert not any(matches(pair, pattern) for pair in new_data.pairs)
    names = {"".join(sorted({*decode(pair.left + pair.right)} & {*"abcdef"})) for pair in new_data.pairs}
    assert {"a", "bcde", "cdef"} <= names
    if name == "A":  # would make some, if a were renamed
        renamed = augmented(data, np.random.default_rng(1)).pairs
        assert any(matches(pair, pattern) for pair in renamed)


def test_augmented_pairs_have_their_true_trees(groups):
    data = Dataset(list(chain.from_iterable(groups[0]))[:300], include_trees=True)
    new_data = augmented(data, np.random.default_rng(1))
    expected = Dataset(new_data.pairs, include_trees=True).batch(range(300))
    found = new_data.batch(range(300))
    assert_close(found, expected, rtol=0, atol=0)
