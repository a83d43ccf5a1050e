"""Trees of batches as the layers return them: both layouts, both directions, lengths; CKY on distances."""

import math
import re

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


@pytest.mark.parametrize("decoding", recovery.DECODINGS)
@pytest.mark.parametrize("direction", recovery.DIRECTIONS)
@pytest.mark.parametrize("batch_first", [False, True])
def test_padding_that_would_be_part_of_a_tree_is_named(batch_first, direction, decoding):
    layer = ONLSTM(3, 8, bidirectional=True, batch_first=batch_first)
    x = torch.randn(5, 9, 3) if batch_first else torch.randn(9, 5, 3)
    d = layer(x, lengths=LENGTHS, distances=True)[2].forget[recovery.DIRECTIONS.index(direction)]
    options = {"decoding": decoding, "direction": direction, "batch_first": batch_first}
    with pytest.warns(UserWarning, match=r"sequences \[1, 2, 4\] end in zeros.*pass the lengths") as caught:
        recovery.from_distances(d, **options)
    assert caught[0].filename == __file__
    recovery.from_distances(d, LENGTHS, **options)
    recovery.from_distances(layer(x, distances=True)[2].forget[0], **options)


def test_zeros_that_are_not_those_of_padding_are_distances():
    for d in ([[1.0, 2, 0], [1, 0, 0]], [[1.0, 2, 3], [0, 1, 0]], [[0.0, 2, 3], [1, 2, 0]], [[1.0, 0, 0]]):
        assert recovery.from_distances(torch.tensor(d), decoding="prpn", batch_first=True)


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
    message = "expected attention inside every sequence|lengths must have one entry for each of 9 sequences"
    with pytest.raises(ValueError, match=message):
        recovery.from_attention(attention, lengths, batch_first=not batch_first)
    if lengths is not None:
        with pytest.raises(ValueError, match=r"got zeros at token 1 of sequence 1, whose length is 9"):
            recovery.from_attention(attention, batch_first=batch_first)
    with pytest.raises(ValueError, match=r"got zeros at token 0 .* and direction \(here backward\)"):
        recovery.from_attention(attention, lengths, batch_first=batch_first, direction="backward")


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
            r"to be \(T, B\), got shape \(2,\); .* a packed batch must be padded",
        ),
        (
            lambda d: recovery.from_distances(d, decoding="best"),
            "one of prpn, unbiased, cky, got 'best'",
        ),
        (
            lambda d: recovery.from_distances(d, decoding="cky", direction="up"),
            "direction must be one of forward, backward, got 'up'",
        ),
        (lambda d: recovery.from_distances(d, [3], decoding="cky"), "each of 2 sequences, got 1"),
        (
            lambda d: recovery.from_distances(d + 1j, decoding="prpn"),
            "distances to be real, got torch.complex",
        ),
        (lambda d: recovery.from_attention(d[..., None], direction="up"), "direction must be one of"),
        (lambda d: recovery.from_attention(torch.ones(3, 2, 2, 2)), "got shape"),
        (
            lambda d: recovery.from_attention(d[..., None] + 1j),
            r"attention to be real numbers, got torch\.complex64",
        ),
        (lambda d: recovery.from_attention(d[..., None] > 0), r"to be real numbers, got torch\.bool"),
        (
            lambda d: recovery.from_attention(torch.ones(3, 2, 0)),
            r"attention over at least one slot, got shape \(3, 2, 0\)",
        ),
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


@pytest.mark.parametrize("decoding", recovery.DECODINGS)
def test_every_decoding_refuses_distances_that_are_nan_and_a_temperature_that_is_not_positive(decoding):
    d = torch.tensor([[1.0, 2.0, 3.0], [math.nan, 1.0, 2.0]])
    for given in (d, d[:, :1]):
        with pytest.raises(ValueError, match="distances to be numbers, got NaN at token 0 of sequence 1"):
            recovery.from_distances(given, decoding=decoding, batch_first=True)
    assert len(recovery.from_distances(d.flip(1), [3, 2], decoding=decoding, batch_first=True)) == 2
    for batch in (d[:1], d[:0]):
        for temperature in (0.0, -1.0, math.nan, "a", None, torch.ones(2)):
            with pytest.raises(ValueError, match=re.escape(f"expected temperature > 0, got {temperature!r}")):
                recovery.from_distances(batch, decoding=decoding, temperature=temperature, batch_first=True)


def test_infinite_distances_are_for_greedy_parsing_alone():
    d = torch.tensor([[1.0, math.inf, 2.0, -math.inf]])
    for decoding in recovery.GREEDY_DECODINGS:
        assert recovery.from_distances(d, decoding=decoding, batch_first=True) == [
            recovery.greedy(d[0], decoding)
        ]
    for given, length, direction, token in ((d, 4, "forward", 1), (d.flip(1), 3, "backward", 0)):
        with pytest.raises(ValueError, match=rf"distances / temperature .* at token {token} of sequence 0"):
            recovery.from_distances(given, [length], decoding="cky", batch_first=True, direction=direction)
    with pytest.raises(ValueError, match=r"got 2.0 / 1e-310 at token 1"):
        recovery.from_distances(torch.full((2, 1), 2.0), decoding="cky", temperature=1e-310)
    assert recovery.from_distances(d[:, 1:3], decoding="cky", batch_first=True) == [(0, 1)]
    assert recovery.from_distances(d[:, 1:], [2], decoding="cky", batch_first=True) == [(0, 1)]


def test_the_warning_of_equal_distances_points_to_the_caller():
    distances = torch.tensor([[1, 2, 3], [1, 2, 2], [3, 2, 1]], dtype=torch.bfloat16)  # of one sequence alone
    with pytest.warns(UserWarning, match="equal after rounding") as caught:
        recovery.from_distances(distances, decoding="prpn", batch_first=True)
    assert caught[0].filename == __file__


def test_equal_distances_are_only_warned_of_where_a_tree_depends_on_them():
    distances = torch.tensor([[1, 1, 2]], dtype=torch.bfloat16)
    for decoding in ("unbiased", "cky"):  # no tree depends on the first distance
        recovery.from_distances(distances, decoding=decoding, batch_first=True)
    with pytest.warns(UserWarning, match="equal after rounding"):
        recovery.from_distances(distances, decoding="prpn", batch_first=True)


@pytest.mark.parametrize("lengths", [None, [1, 1]])
def test_sequences_without_tokens_have_no_trees(lengths):
    with pytest.raises(ValueError, match="expected sequences of at least one token, got T = 0"):
        recovery.from_distances(torch.zeros(0, 2), lengths, decoding="prpn")
    assert recovery.from_distances(torch.zeros(0, 0), decoding="prpn") == []


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


def test_batches_of_cky_are_as_large_as_memory_allows(monkeypatch):
    batches = []

    def record(scores, lengths):
        batches.append(lengths)
        return run(scores, lengths)

    run = cky.cky
    monkeypatch.setattr(cky, "cky", record)
    monkeypatch.setattr(cky, "SENTENCES_PER_CKY", 3)
    monkeypatch.setattr(cky, "CELLS_PER_CKY", 2 * 12**3)
    recovery.from_distances(torch.randn(8, 31), RAGGED, decoding="cky", batch_first=True)
    assert batches == [[31], [20], [12, 12], [7, 3, 2], [1]]


def test_span_scores_do_not_depend_on_padding_and_do_not_overflow():
    d = torch.tensor([[0.0, 400.0, 800.0]])
    padded = torch.cat([d, torch.full((1, 2), 1e6)], 1)
    torch.testing.assert_close(recovery.span_scores(padded, 0.01)[:, :3, :3], recovery.span_scores(d, 0.01))
    assert recovery.span_scores(d, 1e-6).isfinite().all()
    assert recovery.span_scores(d)[0].tolist() == [[0.0, -400.0, -800.0], [0.0, 0.0, -800.0], [0.0, 0.0, 0.0]]


def test_what_span_scores_refuse():
    with pytest.raises(TypeError, match="expected distances to be a tensor, got list"):
        recovery.span_scores([[1.0, 2.0]])
    for shape in ((), (2,), (1, 2, 3)):
        with pytest.raises(ValueError, match=r"expected distances to be \(B, T\), got shape"):
            recovery.span_scores(torch.zeros(shape))
    for temperature in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="expected temperature > 0, got"):
            recovery.span_scores(torch.zeros(1, 3), temperature)
