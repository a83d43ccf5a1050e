"""Trees and their conversions against brute force: every tree of up to six leaves."""

import itertools

import nltk
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ordered_memory import baseline_trees, brackets, charts, trees
from ordered_memory.span_f1 import span_f1
from tests.small_trees import all_trees, naive_spans

DEEP = 3000
DEEP_TREES = [baseline_trees.left_branching(DEEP), baseline_trees.right_branching(DEEP)]

UP_TO_SIX = [tree for n in range(1, 7) for tree in all_trees(0, n - 1)]


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
        assert brackets.from_brackets(brackets.to_brackets(tree, words(n))) == (tree, words(n))
        assert trees.from_nltk(trees.to_nltk(tree, words(n))) == (tree, words(n))
        assert charts.from_chart(charts.to_chart(tree)) == tree
        assert charts.from_chart(charts.to_chart(tree, n + 2), n) == tree


@given(n_ary)
def test_trees_with_any_number_of_children_survive_too(tree):
    n = len(trees.leaves(tree))
    assert set(trees.spans(tree)) == naive_spans(tree)[1]
    assert brackets.from_brackets(brackets.to_brackets(tree, words(n)))[0] == tree
    assert charts.from_chart(charts.to_chart(tree)) == tree
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


def test_the_leaves_that_are_kept_may_be_named_in_any_order():
    tree = baseline_trees.right_branching(20)
    for kept in ([8, 1], [16, 0, 9], [19, 17, 1]):
        assert trees.keep_leaves(tree, kept) == baseline_trees.right_branching(len(kept))


@pytest.mark.parametrize(("kept", "named"), [([], "got none"), ([0, 3], r"got \[3\], which are not")])
def test_leaves_to_keep_must_be_there(kept, named):
    with pytest.raises(ValueError, match=named):
        trees.keep_leaves(((0, 1), 2), kept)


@pytest.mark.parametrize("kept", [[True, False, True], torch.tensor([True, False, True]), ["0"], [1.0]])
def test_leaves_to_keep_are_positions_and_no_mask(kept):
    with pytest.raises(TypeError, match=r"^expected kept to be integers, got (True|tensor|'0'|1\.0)[^;]*$"):
        trees.keep_leaves(((0, 1), 2), kept)
    mask = torch.tensor([True, False, True])
    assert trees.keep_leaves(((0, 1), 2), mask.nonzero().flatten()) == (0, 1)


def test_a_unary_chain_counts_its_span_once():
    assert trees.spans((((0, 1),), 2)) == [(0, 1), (0, 2)]
    assert trees.spans((0,)) == []


@pytest.mark.parametrize("tree", DEEP_TREES, ids=["left", "right"])
def test_depth_is_no_limit(tree):
    assert trees.leaves(tree) == list(range(DEEP))
    assert len(trees.spans(tree)) == DEEP - 1
    assert trees.depth(tree) == DEEP - 1
    again = brackets.from_brackets(brackets.to_brackets(tree, words(DEEP)))[0]
    assert trees.spans(again) == trees.spans(tree)
    assert trees.spans(charts.from_chart(charts.to_chart(tree))) == trees.spans(tree)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: brackets.to_brackets((0, 1), ["a"]), "1 tokens"),
        (lambda: brackets.to_brackets((1, 0), ["a", "b"]), r"tree\[1\] = 0 after 1"),
        (lambda: trees.spans((0, 2)), r"tree\[1\] = 2 after 0"),
        (lambda: trees.leaves(()), "has no children"),
        (lambda: trees.spans((0, ())), "has no children"),
        (lambda: trees.depth((0, ())), "has no children"),
        (lambda: trees.from_nltk(nltk.Tree("S", [])), "has no children"),
        (lambda: charts.to_chart((0, 1), 1), "at least 2, the leaves"),
        (lambda: charts.to_chart((0, 1), 2.5), "length must be an integer of at least 1, got 2.5"),
        (lambda: charts.to_chart((1, 2)), r"leaves 0\.\.1 of 2 tokens, got the leaves 1\.\.2"),
        (lambda: charts.from_chart(torch.ones(2, 3)), r"\(T, T\), got shape \(2, 3\)"),
        (lambda: charts.from_chart(torch.ones(2)), r"\(T, T\), got shape \(2,\)"),
        (lambda: charts.from_chart(torch.ones(2, 2, 1)), r"\(T, T\), got shape \(2, 2, 1\)"),
        (lambda: charts.from_chart(torch.zeros(0, 0)), r"1\.\.0, the side of the chart, got 0"),
        (lambda: charts.from_chart(torch.eye(3), 0), r"1\.\.3, the side of the chart, got 0"),
        (lambda: charts.from_chart(torch.eye(1), 2), r"1\.\.1, the side of the chart, got 2"),
        (lambda: charts.from_chart(torch.eye(1), True), r"1\.\.1, the side of the chart, got True"),
        (lambda: charts.from_chart(torch.eye(2), 1.0), r"1\.\.2, the side of the chart, got 1\.0"),
        (lambda: charts.from_chart(torch.eye(3)), "a constituent over all 3"),
        (lambda: charts.from_chart(torch.eye(2)), "a constituent over all 2"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.bfloat16, torch.float64])
def test_charts_of_numbers_are_read(dtype):
    assert charts.from_chart(charts.to_chart((0, (1, 2))).to(dtype)) == (0, (1, 2))


def test_crossing_constituents_are_an_error():
    chart = torch.eye(4)
    for span in ((0, 3), (0, 2), (1, 3)):
        chart[span] = 1
    with pytest.raises(ValueError, match=r"\(0, 2\) and \(1, 3\) that cross"):
        charts.from_chart(chart)


NLTK_TREE = nltk.Tree.fromstring("(S (NP (DT the) (NN cat)) (VP (VBD sat)))")
NO_TREES = [
    ("( a b )", r"got str '\( a b \)'; from_brackets reads text"),
    ((0, "a"), r"\[1\] to be an integer or a tuple, got str 'a'"),
    (NLTK_TREE, "got Tree .*; from_nltk converts nltk.Tree"),
    ((0, (1, NLTK_TREE)), r"\[1\]\[1\] to be .* got Tree"),
    (brackets.from_brackets("(a b)"), r"\[1\] to be .* got list \['a', 'b'\]$"),
    ([[0, 1], 2], r"got list \[\[0, 1\], 2\]; JSON turns tuples into lists: .* by to_brackets"),
    ([0, 1], r"got list \[0, 1\]"),
    ((0, [1]), r"\[1\] to be .* got list \[1\]; JSON"),
    ((0, True), r"\[1\] to be .* got bool True"),
    ((np.bool_(False), 1), r"\[0\] to be .* got bool"),
    ((0, torch.tensor(True)), r"\[1\] to be .* got Tensor"),
    ((0, 1.0), r"\[1\] to be .* got float 1.0"),
    (None, "got NoneType None"),
]


@pytest.mark.parametrize(("value", "message"), NO_TREES, ids=[type(value).__name__ for value, _ in NO_TREES])
def test_what_is_no_tree_is_refused_wherever_a_tree_is_taken(value, message):
    for call in (
        trees.leaves,
        trees.spans,
        trees.depth,
        charts.to_chart,
        lambda tree: trees.fold(tree, int, sum),
        lambda tree: trees.keep_leaves(tree, [0]),
        lambda tree: trees.to_nltk(tree, ["a", "b"]),
        lambda tree: brackets.to_brackets(tree, ["a", "b"]),
    ):
        with pytest.raises(TypeError, match=rf"expected tree.*{message}"):
            call(value)
    for argument, pair in (("predicted", [value, (0, 1)]), ("gold", [(0, 1), value])):
        with pytest.raises(TypeError, match=rf"expected {argument}\[0\].*{message}"):
            span_f1(pair[:1], pair[1:], level="corpus", whole_sentence=True)


def test_integers_of_every_type_are_leaves():
    tree = (np.int64(0), (torch.tensor(1), np.uint8(2)))
    assert trees.leaves(tree) == [0, 1, 2]
    assert [type(leaf) for leaf in trees.leaves(tree)] == [int] * 3
    assert trees.spans(tree) == [(1, 2), (0, 2)]
    assert brackets.to_brackets(tree, ["a", "b", "c"]) == "( a ( b c ) )"
    assert trees.keep_leaves(tree, [0, 2]) == (0, 1)
    assert trees.from_nltk(trees.to_nltk(tree, ["a", "b", "c"])) == ((0, (1, 2)), ["a", "b", "c"])


def test_what_would_never_end_is_refused():
    loop = nltk.Tree("S", ["a"])
    loop.append(nltk.Tree("NP", ["b", loop]))
    with pytest.raises(ValueError, match=r"tree\[1\]\[1\], which contains itself"):
        trees.from_nltk(loop)
    shared = (0, 1)
    for _ in range(100):
        shared = (shared, shared)  # 2^101 leaves
    with pytest.raises(ValueError, match=r"expected consecutive leaves, got tree\[0\].*… = 0 after 1"):
        trees.leaves(shared)
    nested = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(TypeError, match="got list"):
        trees.leaves((0, nested))


def test_a_word_with_its_tag_is_no_word():
    tagged = nltk.Tree("S", [nltk.Tree("NP", [("the", "DT"), ("dog", "NN")]), ("barks", "VBZ")])
    with pytest.raises(TypeError, match=r"expected tree\[0\]\[0\] to be a word, got \('the', 'DT'\): drop"):
        trees.from_nltk(tagged)


def test_a_shared_part_of_an_nltk_tree_is_read_each_time():
    dog = nltk.Tree("NP", ["the", "dog"])
    assert trees.from_nltk(nltk.Tree("S", [dog, "saw", dog]))[0] == ((0, 1), 2, (3, 4))
    with pytest.raises(TypeError, match=r"expected tree to be an nltk\.Tree, got str"):
        trees.from_nltk("(S a)")
