"""Trees from attention, distances and scores against brute force: every order and tree."""

import itertools

import numpy as np
import pytest
import torch

from ordered_memory import charts, cky, trees
from ordered_memory import tree_recovery as recovery
from ordered_memory.baseline_trees import balanced, left_branching, right_branching
from tests.small_trees import all_trees, naive_spans, total

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
        (lambda: recovery.greedy([], "prpn"), "one number for each token"),
        (lambda: recovery.greedy([1.0, float("nan")], "prpn"), "one number for each token"),
        (lambda: recovery.greedy(torch.zeros(3, 1), "prpn"), r"distances to be \(T,\).* \(3, 1\)"),
        (lambda: recovery.greedy([1.0], "best"), "got 'best'"),
        (lambda: recovery.cky(torch.zeros(2, 3, 4)), r"\(B, T, T\)"),
        (lambda: recovery.cky(torch.zeros(3, 3)), r"\(B, T, T\), got shape \(3, 3\)"),
        (lambda: recovery.cky(torch.zeros(1, 3, 3, 1)), r"\(B, T, T\), got shape \(1, 3, 3, 1\)"),
        (lambda: recovery.cky(torch.full((1, 2, 2), float("inf"))), "finite"),
        (lambda: recovery.cky(torch.tensor([[[0.0, 0.0], [0.0, torch.inf]]])), "finite"),
        (lambda: recovery.cky(torch.tensor([[[0.0, torch.nan], [0.0, 0.0]]])), "finite"),
        (
            lambda: recovery.cky(1e308 * torch.tensor([[[0.0, -torch.inf], [0.0, 1.5]]]).double()),
            "beside -inf",
        ),
        (lambda: recovery.cky(torch.zeros(2, 3, 3), [0, 3]), r"1..3 \(T\), got lengths\[0\] = 0"),
        (lambda: recovery.cky(torch.zeros(2, 3, 3), [3]), "entry for each of 2 sequences, got 1"),
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


def test_trees_of_a_batch_stop_at_its_lengths():
    pointers = torch.tensor([[0, 3, 2, 3, 1], [0, 3, 3, 0, 0]])
    attention = torch.nn.functional.one_hot(pointers, 4) + 0.1 * torch.rand(2, 5, 4)
    found = recovery.from_attention(attention, [5, 3], batch_first=True)
    assert found == [
        recovery.shift_reduce(pointers[0], 4),
        recovery.shift_reduce(pointers[1, :3], 4),
    ]


# ---- top-down greedy


@pytest.mark.parametrize("distance", [None, "2"])
def test_distances_of_a_list_are_numbers(distance):
    with pytest.raises(TypeError, match=rf"distances to be numbers, got distances\[1\] = {distance!r}"):
        recovery.greedy([1.0, distance], "prpn")


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
    assert recovery.greedy(list(distances.clone().requires_grad_()), variant) == expected


def test_distances_of_float64_are_told_apart():
    assert recovery.greedy([0.0, 1.0, 1.0 + 1e-12], "unbiased") == ((0, 1), 2)
    assert recovery.greedy(torch.tensor([0, 1 + 1e-12, 1], dtype=torch.float64), "unbiased") == (0, (1, 2))


def test_prpn_cannot_build_what_unbiased_can():
    """The bias that Dyer et al. point out: a right part that opens with a constituent is out of reach."""
    orders = list(itertools.permutations(range(5)))
    assert {recovery.greedy(d, "unbiased") for d in orders} == set(all_trees(0, 4))
    missing = set(all_trees(0, 4)) - {recovery.greedy(d, "prpn") for d in orders}
    assert missing == {((0, 1), ((2, 3), 4))}


# ---- CKY


def best_by_enumeration(scores, n):
    return max(all_trees(0, n - 1), key=lambda tree: total(tree, scores))


def test_cky_finds_the_best_of_all_trees():
    scores = torch.randn(60, 6, 6)
    lengths = [1 + i % 6 for i in range(60)]
    for tree, score, n in zip(recovery.cky(scores, lengths), scores, lengths, strict=True):
        assert tree == best_by_enumeration(score, n)


def test_cky_finds_the_best_tree_where_float32_does_not_tell_scores_apart():
    whole = torch.tensor([[[0, 16777217, 2], [0, 0, 16777216], [0, 0, 0]]])
    assert recovery.cky(whole) == [((0, 1), 2)]
    large = torch.randint(2**40, 2**40 + 100, (50, 6, 6))
    for scores in (large, 1000 + 1e-3 * torch.rand(50, 6, 6)):
        for tree, score in zip(recovery.cky(scores), scores, strict=True):
            assert total(tree, score) == total(best_by_enumeration(score, 6), score)


def test_cky_recovers_every_small_tree_from_its_own_chart():
    for n in range(1, 7):
        every = all_trees(0, n - 1)
        assert recovery.cky(torch.stack([charts.to_chart(tree).float() for tree in every])) == every


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


@pytest.mark.parametrize("scale", [0, 1])  # constraints alone, and with scores
def test_cky_excludes_spans_of_minus_infinity_unless_every_tree_has_one(scale):
    scores = scale * torch.randn(200, 6, 6)
    excluded = torch.rand(200, 6, 6) < 0.4
    for tree, score, out in zip(
        recovery.cky(scores.masked_fill(excluded, -torch.inf)), scores, excluded, strict=True
    ):
        fewest = min(total(candidate, out.int()) for candidate in all_trees(0, 5))
        allowed = [candidate for candidate in all_trees(0, 5) if total(candidate, out.int()) == fewest]
        assert tree in allowed
        if fewest == 0:
            assert total(tree, score) == max(total(candidate, score) for candidate in allowed)


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
    assert recovery.cky(torch.stack([charts.to_chart(tree) for tree in every]).to(dtype)) == every


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_equal_distances_of_low_precision_are_warned_of(dtype):
    different = torch.tensor([[3.0, 1.0, 2.0, 2.0]])
    with pytest.warns(UserWarning, match="compute the distances with a model in float32"):
        recovery.from_distances(different.to(dtype), decoding="unbiased", batch_first=True)
    recovery.from_distances(different.to(dtype), [3], decoding="unbiased", batch_first=True)
    recovery.from_distances(different, decoding="unbiased", batch_first=True)


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


def test_cky_does_not_depend_on_the_default_device():
    scores = torch.randn(8, 6, 6)
    expected = recovery.cky(scores)
    with torch.device("meta"):
        assert recovery.cky(scores) == expected


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_distances_of_a_tree_do_not_depend_on_the_default_dtype(dtype):
    tree = left_branching(300)  # bfloat16 does not have every whole number above 256
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        distances = recovery.to_distances(tree)
    finally:
        torch.set_default_dtype(default)
    assert distances.dtype == torch.float32
    assert recovery.greedy(distances, "unbiased") == tree


def test_cky_leaves_a_tensor_that_requires_gradients_alone():
    scores = torch.randn(2, 5, 5, requires_grad=True)
    assert recovery.cky(scores) == recovery.cky(scores.detach())
    assert scores.requires_grad
    assert scores.grad is None


def test_charts_are_those_of_tree_crf_padding_included():
    lengths = torch.arange(1, 7)
    best = cky._TreeCRF(torch.randn(6, 6, 6, 1), lengths=lengths).argmax.squeeze(-1).bool()
    for chart, length in zip(best, lengths.tolist(), strict=True):
        assert torch.equal(charts.to_chart(charts.from_chart(chart, length), 6), chart)


def test_the_whole_result_of_a_layer_is_no_attention():
    with pytest.raises(
        TypeError, match=r"expected attention to be a tensor \(a layer's `out.attention`\), got tuple"
    ):
        recovery.from_attention((torch.zeros(1, 1, 1), None, None))


@pytest.mark.parametrize(
    "call",
    [
        lambda values: recovery.from_attention(values),
        lambda values: recovery.from_distances(values, decoding="prpn"),
        recovery.span_scores,
        recovery.cky,
        charts.from_chart,
    ],
)
@pytest.mark.parametrize("values", [[[1.0]], np.ones((1, 1))])
def test_batches_are_tensors(call, values):
    with pytest.raises(TypeError, match=rf"to be a tensor.*, got {type(values).__name__}"):
        call(values)


def test_the_slots_of_long_trees():
    assert trees.min_slots(0) == 1
    assert trees.min_slots(left_branching(3000)) == 1
    assert trees.min_slots(right_branching(3000)) == 2999
    assert trees.min_slots(balanced(1024)) == 10
    assert trees.min_slots(tuple(range(3000))) == 1
    with pytest.raises(TypeError, match="expected tree to be an integer or a tuple, got str"):
        trees.min_slots("(0 1)")


def trees_with_flat_constituents(first, last):
    """Every tree over the leaves first..last whose constituents have two children or more."""
    if first == last:
        return [first]
    return [
        children
        for inner in range(last - first)
        for ends in itertools.combinations(range(first, last), inner + 1)
        for children in itertools.product(
            *(
                trees_with_flat_constituents(start, end)
                for start, end in zip([first, *(end + 1 for end in ends)], [*ends, last], strict=True)
            )
        )
    ]


@pytest.mark.parametrize(("n", "count"), [(1, 1), (2, 1), (3, 3), (4, 11), (5, 45), (6, 197)])
def test_a_tree_needs_the_slots_of_the_best_binary_tree_with_its_constituents(n, count):
    every = trees_with_flat_constituents(0, n - 1)
    assert len(set(every)) == len(every) == count
    for tree in every:
        binary = [b for b in all_trees(0, n - 1) if naive_spans(tree)[1] <= naive_spans(b)[1]]
        assert trees.min_slots(tree) == min(map(trees.min_slots, binary))
    assert trees.min_slots((tree,)) == trees.min_slots(tree)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_distance_that_no_tree_needs_may_be_infinite_for_cky(direction):
    distances = torch.tensor([[1.0, 3.0, 2.0, 0.0], [1.0, 2.0, 0.0, 0.0]])
    first = [0, 0] if direction == "forward" else [3, 1]
    options = {"decoding": "cky", "batch_first": True, "direction": direction}
    expected = recovery.from_distances(distances, [4, 2], **options)
    distances[[0, 1], first] = float("inf")
    assert recovery.from_distances(distances, [4, 2], **options) == expected
    distances[0, 1] = float("inf")
    with pytest.raises(ValueError, match="at token 1 of sequence 0"):
        recovery.from_distances(distances, [4, 2], **options)
