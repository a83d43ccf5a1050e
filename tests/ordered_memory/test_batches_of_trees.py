"""Trees of batches as the layers return them: both layouts, both directions, lengths; CKY on distances."""

import math

import numpy as np
import pytest
import torch

from onlstm import ONLSTM
from ordered_memory import OrderedMemory, cky, trees
from ordered_memory import tree_recovery as recovery
from tests.small_trees import all_trees, total

LENGTHS = [9, 1, 4, 9, 2]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_trees_of_a_layer_are_those_of_each_sequence_alone(batch_first, bidirectional):
    layer = OrderedMemory(3, 8, 5, batch_first=batch_first, bidirectional=bidirectional)
    x = torch.randn(5, 9, 3) * 4
    out = layer(x if batch_first else x.transpose(0, 1), lengths=LENGTHS)
    directions = ["forward", "backward"] if bidirectional else ["forward"]
    for direction in directions:
        found = recovery.from_attention(out.attention, LENGTHS, batch_first=batch_first, direction=direction)
        for tree, tokens, length in zip(found, x, LENGTHS, strict=True):
            alone = layer(tokens[:length]).attention
            if bidirectional:
                alone = alone[directions.index(direction)]
            if direction == "forward":
                assert tree == recovery.shift_reduce(alone.argmax(-1), 5)
            else:
                read = recovery.shift_reduce(alone.flip(0).argmax(-1), 5)
                assert tree == turned_round(read, length - 1)


def turned_round(tree, last):
    return last - tree if isinstance(tree, int) else tuple(turned_round(part, last) for part in tree[::-1])


def test_one_direction_of_two_is_read_as_it_was():
    layer = OrderedMemory(3, 8, 5, bidirectional=True)
    attention = layer(torch.randn(9, 5, 3), lengths=LENGTHS).attention
    for index, direction in enumerate(("forward", "backward")):
        assert recovery.from_attention(attention[index], LENGTHS, direction=direction) == (
            recovery.from_attention(attention, LENGTHS, direction=direction)
        )


@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize("batch_first", [False, True])
def test_another_layout_or_missing_lengths_are_seen(batch_first, lengths):
    layer = OrderedMemory(3, 8, 5, batch_first=batch_first)
    shape = (5, 9, 3) if batch_first else (9, 5, 3)
    attention = layer(torch.randn(shape), lengths=lengths).attention
    with pytest.raises(ValueError, match=r"expected (attention inside every sequence|lengths of 9)"):
        recovery.from_attention(attention, lengths, batch_first=not batch_first)
    if lengths is not None:
        with pytest.raises(ValueError, match=r"got zeros at token 1 of sequence 1, whose length is 9"):
            recovery.from_attention(attention, batch_first=batch_first)


@pytest.mark.parametrize("decoding", recovery.DECODINGS)
@pytest.mark.parametrize("batch_first", [False, True])
def test_distances_of_a_layer_give_trees_sequence_by_sequence(batch_first, decoding):
    lstm = ONLSTM(3, 8, chunk_size=2, batch_first=batch_first, bidirectional=True)
    x = torch.randn(5, 9, 3)
    # Without lengths: every sequence is read whole.
    distances = lstm(x if batch_first else x.transpose(0, 1), distances=True)[2].forget.detach()
    for index, direction in enumerate(("forward", "backward")):
        found = recovery.from_distances(
            distances[index], LENGTHS, decoding=decoding, batch_first=batch_first, direction=direction
        )
        for i, (tree, length) in enumerate(zip(found, LENGTHS, strict=True)):
            d = (distances[index, i] if batch_first else distances[index, :, i])[:length]
            d = d if direction == "forward" else d.flip(0)
            (expected,) = (
                recovery.cky(recovery.span_scores(d[None]))
                if decoding == "cky"
                else [recovery.greedy(d, decoding)]
            )
            assert tree == (expected if direction == "forward" else turned_round(expected, length - 1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda d: recovery.from_distances(d[0], decoding="prpn"),
            r"to be \(T, B\), got shape \(2,\)",
        ),
        (
            lambda d: recovery.from_distances(d, decoding="best"),
            "one of prpn, unbiased, cky, got 'best'",
        ),
        (
            lambda d: recovery.from_distances(d, decoding="cky", direction="up"),
            "direction to be one of forward, backward, got 'up'",
        ),
        (lambda d: recovery.from_distances(d, [3], decoding="cky"), "expected lengths of 2 sequences, got 1"),
        (lambda d: recovery.from_distances(d, decoding="cky", temperature=0), "temperature > 0, got 0"),
        (lambda d: recovery.from_distances(d * math.nan, decoding="prpn"), "one number for each token, got"),
        (lambda d: recovery.from_distances(d * math.nan, decoding="cky"), "scores to be finite"),
        (lambda d: recovery.from_attention(d[..., None], direction="up"), "direction to be one of"),
        (lambda d: recovery.from_attention(torch.ones(3, 2, 2, 2)), "got shape"),
    ],
)
def test_bad_batches_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.rand(3, 2))


def test_attention_that_is_not_a_number_gives_no_tree():
    attention = torch.eye(3)[[2, 2, 2]].unsqueeze(1)
    attention[2, 0, 1] = math.nan
    with pytest.raises(ValueError, match="got NaN at token 2 of sequence 0"):
        recovery.from_attention(attention)
    assert recovery.from_attention(attention, [2]) == [(0, 1)]


def test_lengths_are_integers():
    with pytest.raises(TypeError, match="float"):
        recovery.from_distances(torch.rand(3, 2), [3.0, 2.7], decoding="prpn")


# ---- CKY on distances


@pytest.mark.parametrize("decoding", ["unbiased", "cky"])
def test_distances_of_a_tree_give_the_tree_back(decoding):
    for size in range(1, 7):
        every = all_trees(0, size - 1)
        distances = torch.stack([recovery.to_distances(tree) for tree in every])
        found = recovery.from_distances(distances, decoding=decoding, temperature=1e-2, batch_first=True)
        assert found == every


def log_probability(tree, d, temperature):
    """Of drawing the tree top-down, each split by a softmax over its span."""
    if isinstance(tree, int):
        return 0.0
    left, right = tree
    first, split, last = trees.leaves(left)[0], trees.leaves(right)[0], trees.leaves(right)[-1]
    weights = [math.exp(d[k] / temperature) for k in range(first + 1, last + 1)]
    here = math.log(math.exp(d[split] / temperature) / sum(weights))
    return here + log_probability(left, d, temperature) + log_probability(right, d, temperature)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_cky_finds_the_most_probable_of_all_trees(temperature):
    for n in range(1, 7):
        every = all_trees(0, n - 1)
        distances = 2 * torch.randn(10, n, dtype=torch.float64)
        found = recovery.from_distances(distances, decoding="cky", temperature=temperature, batch_first=True)
        for tree, d in zip(found, distances.tolist(), strict=True):
            probabilities = [log_probability(one, d, temperature) for one in every]
            assert math.isclose(sum(map(math.exp, probabilities)), 1.0)
            assert tree == every[int(np.argmax(probabilities))]


def test_span_scores_differ_from_log_probabilities_by_what_all_trees_share():
    d = torch.randn(5, dtype=torch.float64)
    scores = recovery.span_scores(d[None], 0.7)[0]
    shared = d[1:].sum().item() / 0.7
    for tree in all_trees(0, 4):
        assert math.isclose(total(tree, scores) + shared, log_probability(tree, d.tolist(), 0.7))


RAGGED = [1, 2, 3, 7, 12, 12, 20, 31]


def test_a_low_temperature_is_greedy_unbiased():
    d = torch.stack([torch.randperm(31) for _ in RAGGED]).double()
    found = recovery.from_distances(d, RAGGED, decoding="cky", temperature=1e-6, batch_first=True)
    assert found == recovery.from_distances(d, RAGGED, decoding="unbiased", batch_first=True)


def test_batches_of_cky_change_nothing(monkeypatch):
    d = torch.randn(8, 31)
    expected = recovery.from_distances(d, RAGGED, decoding="cky", batch_first=True)
    for cells in (1, 31**3, 3 * 12**3):
        monkeypatch.setattr(cky, "CELLS_PER_CKY", cells)
        assert recovery.from_distances(d, RAGGED, decoding="cky", batch_first=True) == expected


def test_span_scores_do_not_depend_on_padding_and_do_not_overflow():
    d = torch.tensor([[0.0, 400.0, 800.0]])
    padded = torch.cat([d, torch.full((1, 2), 1e6)], 1)
    torch.testing.assert_close(recovery.span_scores(padded, 0.01)[:, :3, :3], recovery.span_scores(d, 0.01))
    assert recovery.span_scores(d, 1e-6).isfinite().all()
    assert recovery.span_scores(d)[0].tolist() == [[0.0, -400.0, -800.0], [0.0, 0.0, -800.0], [0.0, 0.0, 0.0]]


def test_a_temperature_that_is_not_positive():
    for temperature in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="expected temperature > 0, got"):
            recovery.span_scores(torch.zeros(1, 3), temperature)
