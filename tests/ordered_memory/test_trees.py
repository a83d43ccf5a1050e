"""Trees against brute force: every tree, every pointer sequence, every order of scores up to six leaves."""

import functools
import itertools
from collections import Counter

import nltk
import numpy as np
import pytest
import torch
import torch_struct
from hypothesis import given
from hypothesis import strategies as st

from ordered_memory import baseline_trees, trees
from ordered_memory import tree_recovery as recovery

DEEP = 3000
DEEP_TREES = [baseline_trees.left_branching(DEEP), baseline_trees.right_branching(DEEP)]


@functools.cache
def all_trees(first, last):
    """Every binary tree over the leaves first..last."""
    if first == last:
        return [first]
    return [
        (left, right)
        for middle in range(first, last)
        for left in all_trees(first, middle)
        for right in all_trees(middle + 1, last)
    ]


UP_TO_SIX = [tree for n in range(1, 7) for tree in all_trees(0, n - 1)]


def naive_spans(tree):
    if isinstance(tree, int):
        return (tree, tree), set()
    parts = [naive_spans(child) for child in tree]
    span = (parts[0][0][0], parts[-1][0][1])
    below = set().union(*(found for _, found in parts))
    return span, below | ({span} if span[0] < span[1] else set())


def words(n):
    return [("w", "[MAX", "]")[i % 3] + str(i) for i in range(n)]


n_ary = st.recursive(st.just(None), lambda child: st.lists(child, min_size=2, max_size=4), max_leaves=12).map(
    lambda nested: number(nested, itertools.count())
)


def number(nested, counter):
    return next(counter) if nested is None else tuple(number(child, counter) for child in nested)


def test_there_are_catalan_many_trees():
    assert [len(all_trees(0, n - 1)) for n in range(1, 7)] == [1, 1, 2, 5, 14, 42]


def test_every_small_tree_survives_every_conversion():
    for tree in UP_TO_SIX:
        found = trees.leaves(tree)
        n = len(found)
        assert found == list(range(n))
        assert set(trees.spans(tree)) == naive_spans(tree)[1]
        assert len(trees.spans(tree)) == n - 1
        assert trees.from_brackets(trees.to_brackets(tree, words(n))) == (tree, words(n))
        assert trees.from_nltk(trees.to_nltk(tree, words(n))) == (tree, words(n))
        assert trees.from_chart(trees.to_chart(tree)) == tree
        assert trees.from_chart(trees.to_chart(tree, n + 2), n) == tree


@given(n_ary)
def test_trees_with_any_number_of_children_survive_too(tree):
    n = len(trees.leaves(tree))
    assert set(trees.spans(tree)) == naive_spans(tree)[1]
    assert trees.from_brackets(trees.to_brackets(tree, words(n)))[0] == tree
    assert trees.from_chart(trees.to_chart(tree)) == tree
    assert trees.from_nltk(trees.to_nltk(tree, words(n)))[0] == tree
    assert trees.depth(tree) == (0 if n == 1 else nltk.Tree.height(trees.to_nltk(tree, words(n))) - 1)


@given(n_ary, st.data())
def test_kept_leaves_keep_their_constituents(tree, data):
    size = len(trees.leaves(tree))
    kept = sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1)))
    pruned = trees.keep_leaves(tree, kept)
    assert trees.leaves(pruned) == list(range(len(kept)))
    expected = set()
    for first, last in trees.spans(tree):
        inside = [number for number, leaf in enumerate(kept) if first <= leaf <= last]
        if len(inside) > 1:
            expected.add((inside[0], inside[-1]))
    assert set(trees.spans(pruned)) == expected
    assert trees.keep_leaves(tree, range(size)) == tree


@pytest.mark.parametrize(("kept", "named"), [([], "none"), ([0, 3], r"\[3\]")])
def test_leaves_to_keep_must_be_there(kept, named):
    with pytest.raises(ValueError, match=f"leaves to keep must be some of the tree's, got {named}"):
        trees.keep_leaves(((0, 1), 2), kept)


def test_a_unary_chain_counts_its_span_once():
    assert trees.spans((((0, 1),), 2)) == [(0, 1), (0, 2)]
    assert trees.spans((0,)) == []


@pytest.mark.parametrize("tree", DEEP_TREES, ids=["left", "right"])
def test_depth_is_no_limit(tree):
    assert trees.leaves(tree) == list(range(DEEP))
    assert len(trees.spans(tree)) == DEEP - 1
    assert trees.depth(tree) == DEEP - 1
    again = trees.from_brackets(trees.to_brackets(tree, words(DEEP)))[0]
    assert trees.spans(again) == trees.spans(tree)
    assert trees.spans(trees.from_chart(trees.to_chart(tree))) == trees.spans(tree)
    descending = list(range(DEEP, 0, -1))
    assert trees.depth(recovery.greedy(descending, "prpn")) == DEEP - 1
    assert trees.depth(recovery.greedy(descending[::-1], "unbiased")) == DEEP - 1
    assert trees.depth(recovery.shift_reduce([2] * DEEP, 3)) == DEEP - 1
    (tree,) = recovery.from_attention(torch.eye(3)[[2] * DEEP].unsqueeze(0))
    assert trees.depth(tree) == DEEP - 1
    assert trees.depth(baseline_trees.balanced(DEEP)) == 12
    assert len(trees.leaves(baseline_trees.random_trees([DEEP], seed=0)[0])) == DEEP


def test_charts_are_those_of_tree_crf_padding_included():
    lengths = torch.arange(1, 7)
    charts = recovery._TreeCRF(torch.randn(6, 6, 6, 1), lengths=lengths).argmax.squeeze(-1).bool()
    for chart, length in zip(charts, lengths.tolist(), strict=True):
        assert torch.equal(trees.to_chart(trees.from_chart(chart, length), 6), chart)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text is empty"),
        ("( a b", r"1 '\(' not closed at the end, the last of them at word 0"),
        ("( a ( ( b c ) d", r"2 '\(' not closed at the end, the last of them at word 2"),
        ("a )", r"'\)' at word 1 follows the end"),
        (") a", r"'\)' at word 0 closes nothing"),
        ("( a ( ) )", r"'\)' at word 3 closes an empty constituent"),
        ("( a b ) c", "'c' at word 4 follows the end of the tree"),
    ],
)
def test_bad_brackets_say_where(text, message):
    with pytest.raises(ValueError, match=message):
        trees.from_brackets(text)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: trees.to_brackets((0, 1), ["a"]), "1 tokens"),
        (lambda: trees.to_brackets((1, 0), ["a", "b"]), r"leaves 0\.\.1"),
        (lambda: trees.spans((0, 2)), "2 follows 0"),
        (lambda: trees.leaves(()), "no children"),
        (lambda: trees.spans((0, ())), "no children"),
        (lambda: trees.depth((0, ())), "no children"),
        (lambda: trees.from_nltk(nltk.Tree("S", [])), "no children"),
        (lambda: trees.to_chart((0, 1), 1), "at least the 2 leaves"),
        (lambda: trees.to_chart((1, 2)), r"must be 0\.\.1 in order"),
        (lambda: trees.from_chart(torch.ones(2, 3)), r"\(T, T\), got shape \(2, 3\)"),
        (lambda: trees.from_chart(torch.zeros(0, 0)), r"1\.\.0, the side of the chart, got 0"),
        (lambda: trees.from_chart(torch.eye(3), 0), r"1\.\.3, the side of the chart, got 0"),
        (lambda: trees.from_chart(torch.eye(1), 2), r"1\.\.1, the side of the chart, got 2"),
        (lambda: trees.from_chart(torch.eye(3)), "no constituent over all 3"),
        (lambda: recovery.shift_reduce([], 3), "got none"),
        (lambda: recovery.shift_reduce([0, 3], 3), r"pointers\[1\] = 3"),
        (lambda: recovery.shift_reduce([0, -1], 3), r"pointers\[1\] = -1"),
        (
            lambda: recovery.shift_reduce(torch.zeros(2, 2).long(), 3),
            r"pointers must be \(T,\).* \(2, 2\)",
        ),
        (lambda: recovery.from_attention(torch.zeros(2, 3)), r"\(B, T, N\), got shape \(2, 3\)"),
        (lambda: recovery.from_attention(torch.zeros(2, 3, 4), [3, 4]), r"1\.\.3, got 4 for sequence 1"),
        (
            lambda: recovery.from_attention(torch.zeros(2, 3, 4), [-1, 3]),
            r"1\.\.3, got -1 for sequence 0",
        ),
        (lambda: recovery.from_attention(torch.zeros(2, 3, 4), [3]), "each of 2 sequences, got 1"),
        (lambda: recovery.greedy([], "prpn"), "one number for each token"),
        (lambda: recovery.greedy([1.0, float("nan")], "prpn"), "one number for each token"),
        (lambda: recovery.greedy(torch.zeros(3, 1), "prpn"), r"distances must be \(T,\).* \(3, 1\)"),
        (lambda: recovery.greedy([1.0], "best"), "got 'best'"),
        (lambda: recovery.cky(torch.zeros(2, 3, 4)), r"\(B, T, T\)"),
        (lambda: recovery.cky(torch.full((1, 2, 2), float("inf"))), "finite"),
        (lambda: recovery.cky(torch.zeros(2, 3, 3), [0, 3]), r"1\.\.3, got 0 for sequence 0"),
        (lambda: recovery.cky(torch.zeros(2, 3, 3), [3]), "each of 2 sequences, got 1"),
        (lambda: baseline_trees.left_branching(0), "n = 0"),
        (lambda: baseline_trees.right_branching(0), "n = 0"),
        (lambda: baseline_trees.balanced(-1), "n = -1"),
        (lambda: baseline_trees.random_trees([3, 0], 1), "n = 0"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_crossing_constituents_are_an_error():
    chart = torch.eye(4)
    for span in ((0, 3), (0, 2), (1, 3)):
        chart[span] = 1
    with pytest.raises(ValueError, match=r"\(0, 2\) and \(1, 3\) cross"):
        trees.from_chart(chart)


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
    found = recovery.from_attention(attention, [5, 3])
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


# ---- baselines


def test_baselines_have_their_shapes():
    assert baseline_trees.left_branching(4) == (((0, 1), 2), 3)
    assert baseline_trees.right_branching(4) == (0, (1, (2, 3)))
    assert baseline_trees.balanced(5) == (((0, 1), 2), (3, 4))
    assert (
        baseline_trees.left_branching(1)
        == baseline_trees.right_branching(1)
        == baseline_trees.balanced(1)
        == 0
    )


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_random_trees_are_uniform(n):
    every = all_trees(0, n - 1)
    draws = 2000 * len(every)
    counts = Counter(baseline_trees.random_trees([n] * draws, seed=5))
    assert counts.keys() == set(every)
    chi_square = sum((count - 2000) ** 2 / 2000 for count in counts.values())
    # Mean len - 1, variance twice that: five standard deviations.
    assert chi_square < len(every) - 1 + 5 * np.sqrt(2 * len(every))


def test_random_trees_have_the_marginals_of_tree_crf():
    n, draws = 7, 20_000
    mean = torch.stack([trees.to_chart(tree) for tree in baseline_trees.random_trees([n] * draws, seed=3)])
    marginals = recovery._TreeCRF(torch.zeros(1, n, n, 1)).marginals.squeeze().detach()
    assert isinstance(recovery._TreeCRF(torch.zeros(1, 2, 2, 1)), torch_struct.TreeCRF)
    torch.testing.assert_close(mean.float().mean(0), marginals, atol=0.02, rtol=0)


def test_random_trees_depend_on_their_seed_alone():
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - the global generator is what must not matter
    first = baseline_trees.random_trees([9, 4, 9], seed=1)
    state = torch.get_rng_state()
    assert baseline_trees.random_trees([9, 4, 9], seed=1) == first
    assert baseline_trees.random_trees([9, 4, 9], seed=2) != first
    assert torch.equal(torch.get_rng_state(), state)
