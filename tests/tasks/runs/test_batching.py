"""Every example in exactly one batch, and similar lengths together."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.runs.batching import BATCHES_PER_BUCKET, bucketed_batches, evaluation_batches

LENGTHS = st.lists(st.integers(0, 1000), max_size=400)
SIZES = st.integers(1, 9)


def assert_covers(batches, count):
    assert sorted(index for batch in batches for index in batch.tolist()) == list(range(count))
    assert all(batch.size for batch in batches)


def padding(batches, lengths):
    """The fraction of padded steps."""
    steps = sum(lengths[batch].max() * batch.size for batch in batches)
    return 1 - lengths.sum() / steps


def same(left, right):
    return len(left) == len(right) and all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


@given(LENGTHS, SIZES, st.integers(0, 5), st.integers(0, 5))
def test_an_epoch_has_every_example_once(lengths, batch_size, seed, epoch):
    batches = bucketed_batches(lengths, batch_size, seed=seed, epoch=epoch)
    assert_covers(batches, len(lengths))
    assert sum(batch.size < batch_size for batch in batches) <= 1
    assert all(batch.size <= batch_size for batch in batches)
    assert same(batches, bucketed_batches(lengths, batch_size, seed=seed, epoch=epoch))


def test_epochs_and_seeds_differ():
    lengths = np.arange(1000) % 37
    drawn = [
        bucketed_batches(lengths, 10, seed=seed, epoch=epoch) for seed, epoch in [(0, 0), (0, 1), (1, 0)]
    ]
    assert not any(same(left, right) for left, right in combinations(drawn, 2))


def test_lengths_within_a_batch_are_alike_but_batches_are_in_no_order():
    lengths = np.random.default_rng(0).geometric(0.025, size=20_000)
    batches = bucketed_batches(lengths, 32, seed=0, epoch=0)
    in_order = [np.arange(i, min(i + 32, lengths.size)) for i in range(0, lengths.size, 32)]
    assert padding(in_order, lengths) > 0.6
    assert padding(batches, lengths) < 0.12
    means = np.array([lengths[batch].mean() for batch in batches])
    assert abs(np.corrcoef(means[1:], means[:-1])[0, 1]) < 0.15


def test_batches_hold_different_company_each_epoch():
    lengths = np.random.default_rng(0).integers(1, 100, size=10 * BATCHES_PER_BUCKET * 8)
    companions = set()
    for epoch in range(10):
        batches = bucketed_batches(lengths, 8, seed=3, epoch=epoch)
        companions |= set(next(batch for batch in batches if 0 in batch).tolist())
    assert len(companions) > 50


@given(LENGTHS, SIZES, st.none() | st.integers(1, 3000))
def test_evaluation_has_every_example_once_within_the_limits(lengths, batch_size, max_tokens):
    batches = evaluation_batches(lengths, batch_size, max_tokens)
    assert_covers(batches, len(lengths))
    lengths = np.array(lengths)
    for batch in batches:
        assert batch.size <= batch_size
        if max_tokens is not None:
            assert batch.size == 1 or batch.size * lengths[batch].max() <= max_tokens
    order = [length for batch in batches for length in lengths[batch]]
    assert order == sorted(order, reverse=True)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: bucketed_batches([1, 2], 0, seed=0, epoch=0), "batch_size must be at least 1, not 0"),
        (lambda: evaluation_batches([1, 2], -1), "batch_size must be at least 1, not -1"),
        (lambda: evaluation_batches([1, 2], 1, 0), "max_tokens must be at least 1, not 0"),
        (
            lambda: evaluation_batches(np.ones((2, 1), dtype=int), 1),
            r"lengths must have one axis, not the shape \(2, 1\)",
        ),
    ],
)
def test_bad_arguments_are_named(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()
