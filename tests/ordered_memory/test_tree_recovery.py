"""Trees from attention, distances and scores against brute force: every pointer sequence, order and tree."""

import itertools
import math

import numpy as np
import pytest
import torch

from onlstm import ONLSTM
from ordered_memory import OrderedMemory, trees
from ordered_memory import tree_recovery as recovery
from tests.small_trees import all_trees, naive_spans

DEEP = 3000


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: recovery.shift_reduce([], 3), "got none"),
        (lambda: recovery.shift_reduce([0, 3], 3), r"pointers\[1\] = 3"),
        (lambda: recovery.shift_reduce([0, -1], 3), r"pointers\[1\] = -1"),
        (
            lambda: recovery.shift_reduce(torch.zeros(2, 2).long(), 3),
            r"pointers to be \(T,\).* \(2, 2\)",
        ),
        (
            lambda: recovery.from_attention(torch.zeros(2, 3)),
            r"\(2, T, B, N\), got shape \(2, 3\)",
        ),
        (lambda: recovery.from_attention(torch.zeros(3, 2, 4), [3, 4]), r"1\.\.3, got lengths\[1\] = 4"),
        (
            lambda: recovery.from_attention(torch.zeros(3, 2, 4), [-1, 3]),
            r"1\.\.3, got lengths\[0\] = -1",
        ),
        (lambda: recovery.from_attention(torch.zeros(3, 2, 4), [3]), "lengths of 2 sequences, got 1"),
        (lambda: recovery.greedy([], "prpn"), "one number for each token"),
        (lambda: recovery.greedy([1.0, float("nan")], "prpn"), "one number for each token"),
        (lambda: recovery.greedy(torch.zeros(3, 1), "prpn"), r"distances to be \(T,\).* \(3, 1\)"),
        (lambda: recovery.greedy([1.0], "best"), "got 'best'"),
        (lambda: recovery.cky(torch.zeros(2, 3, 4)), r"\(B, T, T\)"),
        (lambda: recovery.cky(torch.full((1, 2, 2), float("inf"))), "finite"),
        (lambda: recovery.cky(torch.zeros(2, 3, 3), [0, 3]), r"1\.\.3, got lengths\[0\] = 0"),
        (lambda: recovery.cky(torch.zeros(2, 3, 3), [3]), "lengths of 2 sequences, got 1"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_depth_is_no_limit():
    descending = list(range(DEEP, 0, -1))
    assert trees.depth(recovery.greedy(descending, "prpn")) == DEEP - 1
    assert trees.depth(recovery.greedy(descending[::-1], "unbiased")) == DEEP - 1
    assert trees.depth(recovery.shift_reduce([2] * DEEP, 3)) == DEEP - 1
    (tree,) = recovery.from_attention(torch.eye(3)[[2] * DEEP].unsqueeze(1))
    assert trees.depth(tree) == DEEP - 1


# ---- Algorithm 2


def algorithm_2(y, num_slots):
    """The published algorithm, word for word on lists, tokens and slots counted from 1."""
    stack = [1]
    head = num_slots
    for t in range(2, len(y) + 1):
        k = y[t - 1] - head
        while k > 0:
            if len(stack) >= 2:
                top = stack[-1]
                under = stack[-2]
                stack = [*stack[:-2], [under, top]]
            k = k - 1
        stack = [*stack, t]
        head = y[t - 1] - 1
    while len(stack) > 1:
        stack = [*stack[:-2], [stack[-2], stack[-1]]]
    return from_one(stack[0])


def from_one(tree):
    return tree - 1 if isinstance(tree, int) else tuple(map(from_one, tree))


def test_shift_reduce_equals_the_published_algorithm_on_every_pointer_sequence():
    for num_slots in (1, 2, 3, 4):
        for n in range(1, 7):
            for pointers in itertools.product(range(num_slots), repeat=n - 1):
                expected = algorithm_2([1, *(pointer + 1 for pointer in pointers)], num_slots)
                assert recovery.shift_reduce([0, *pointers], num_slots) == expected


def test_fractions_are_no_pointers():
    with pytest.raises(TypeError, match="integer"):
        recovery.shift_reduce([0, 1.7], 3)


def test_every_small_tree_can_be_read_off_some_attention():
    for n in range(1, 7):
        found = {
            recovery.shift_reduce([0, *pointers], n) for pointers in itertools.product(range(n), repeat=n - 1)
        }
        assert found == set(all_trees(0, n - 1))


def test_trees_of_a_batch_stop_at_its_lengths():
    pointers = torch.tensor([[0, 3, 2, 3, 1], [0, 3, 3, 0, 0]])
    attention = torch.nn.functional.one_hot(pointers, 4) + 0.1 * torch.rand(2, 5, 4)
    found = recovery.from_attention(attention, [5, 3], batch_first=True)
    assert found == [
        recovery.shift_reduce(pointers[0], 4),
        recovery.shift_reduce(pointers[1, :3], 4),
    ]


# ---- top-down greedy


def greedy_in_words(d, positions, variant):
    """The definition on slices: no index arithmetic in common with the library."""
    if len(positions) == 1:
        return positions[0]
    candidates = positions if variant == "prpn" else positions[1:]
    best = max(candidates, key=lambda i: (d[i], -i))
    before = [i for i in positions if i < best]
    after = [i for i in positions if i > best]
    if variant == "prpn":
        right = (best, greedy_in_words(d, after, variant)) if after else best
    else:
        right = greedy_in_words(d, [best, *after], variant)
    return (greedy_in_words(d, before, variant), right) if before else right


@pytest.mark.parametrize("variant", ["prpn", "unbiased"])
def test_greedy_equals_its_definition_on_every_order(variant):
    for n in range(1, 7):
        for order in itertools.permutations(range(n)):
            assert recovery.greedy(order, variant) == greedy_in_words(order, list(range(n)), variant)
    for ties in itertools.product((0.0, 1.0), repeat=6):
        assert recovery.greedy(ties, variant) == greedy_in_words(ties, list(range(6)), variant)


@pytest.mark.parametrize("variant", ["prpn", "unbiased"])
def test_distances_may_come_straight_from_a_model(variant):
    distances = torch.rand(6)
    expected = recovery.greedy(distances.tolist(), variant)
    assert recovery.greedy(distances.clone().requires_grad_(), variant) == expected


def test_prpn_cannot_build_what_unbiased_can():
    """The bias that Dyer et al. point out: a right part that opens with a constituent is out of reach."""
    orders = list(itertools.permutations(range(5)))
    assert {recovery.greedy(d, "unbiased") for d in orders} == set(all_trees(0, 4))
    missing = set(all_trees(0, 4)) - {recovery.greedy(d, "prpn") for d in orders}
    assert missing == {((0, 1), ((2, 3), 4))}


# ---- CKY


def total(tree, scores):
    return sum(scores[span].item() for span in naive_spans(tree)[1])


def best_by_enumeration(scores, n):
    return max(all_trees(0, n - 1), key=lambda tree: total(tree, scores))


def test_cky_finds_the_best_of_all_trees():
    scores = torch.randn(60, 6, 6)
    lengths = [1 + i % 6 for i in range(60)]
    for tree, score, n in zip(recovery.cky(scores, lengths), scores, lengths, strict=True):
        assert tree == best_by_enumeration(score, n)


def test_cky_recovers_every_small_tree_from_its_own_chart():
    for n in range(1, 7):
        every = all_trees(0, n - 1)
        assert recovery.cky(torch.stack([trees.to_chart(tree).float() for tree in every])) == every


def test_cky_of_equal_scores_is_a_tree():
    (tree,) = recovery.cky(torch.zeros(1, 8, 8))
    assert tree in all_trees(0, 7)
    assert [tree] == recovery.cky(torch.zeros(1, 8, 8))


def test_cky_of_tied_scores_is_one_of_the_best_trees():
    scores = torch.randint(0, 2, (200, 6, 6))
    lengths = torch.arange(200) % 6 + 1
    for tree, score, n in zip(recovery.cky(scores, lengths), scores, lengths.tolist(), strict=True):
        assert tree in all_trees(0, n - 1)
        assert total(tree, score) == total(best_by_enumeration(score, n), score)


@pytest.mark.parametrize("padding", [-float("inf"), float("nan"), 1e30])
def test_cky_ignores_padding_and_what_lies_below_the_diagonal(padding):
    scores = torch.randn(6, 6, 6)
    lengths = list(range(1, 7))
    expected = recovery.cky(scores, lengths)
    for score, n in zip(scores, lengths, strict=True):
        score[n:, :] = score[:, n:] = padding
        score[tuple(torch.tril_indices(6, 6, -1))] = padding
    assert recovery.cky(scores, lengths) == expected


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool])
def test_cky_takes_scores_of_every_real_dtype(dtype):
    every = all_trees(0, 3)
    assert recovery.cky(torch.stack([trees.to_chart(tree) for tree in every]).to(dtype)) == every


def test_cky_of_one_word_and_of_no_sentence():
    assert recovery.cky(torch.zeros(2, 1, 1)) == [0, 0]
    assert recovery.cky(torch.zeros(0, 3, 3)) == []


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_cky_leaves_its_argument_alone_and_works_without_gradients(context):
    scores = torch.randn(3, 5, 5)
    before = scores.clone()
    expected = recovery.cky(scores)
    assert not scores.requires_grad
    assert torch.equal(scores, before)
    with context():
        assert recovery.cky(scores) == expected
        assert recovery.cky(scores * 1) == expected
        assert recovery.cky(scores, [5, 5, 5]) == expected
        assert torch.is_grad_enabled() is False


def test_cky_leaves_a_tensor_that_requires_gradients_alone():
    scores = torch.randn(2, 5, 5, requires_grad=True)
    assert recovery.cky(scores) == recovery.cky(scores.detach())
    assert scores.requires_grad
    assert scores.grad is None


def test_charts_are_those_of_tree_crf_padding_included():
    lengths = torch.arange(1, 7)
    charts = recovery._TreeCRF(torch.randn(6, 6, 6, 1), lengths=lengths).argmax.squeeze(-1).bool()
    for chart, length in zip(charts, lengths.tolist(), strict=True):
        assert torch.equal(trees.to_chart(trees.from_chart(chart, length), 6), chart)


# ---- batches as the layers return them


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
        monkeypatch.setattr(recovery, "CELLS_PER_CKY", cells)
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
