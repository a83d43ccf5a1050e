"""The ListOps language against plain recursive definitions of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.listops import expressions
from tasks.listops.expressions import ExpressionError

# A nested expression, for the oracles: a digit, or (operator, arguments).
DIGIT = st.integers(0, 9)
NESTED = st.recursive(
    DIGIT,
    lambda inner: st.tuples(st.sampled_from(expressions.OPERATORS), st.lists(inner, min_size=1, max_size=5)),
    max_leaves=30,
)


def flatten(nested):
    if isinstance(nested, int):
        return [str(nested)]
    operator, arguments = nested
    return [operator, *(token for argument in arguments for token in flatten(argument)), "]"]


def value_of(nested):
    if isinstance(nested, int):
        return nested
    operator, arguments = nested
    values = [value_of(argument) for argument in arguments]
    operations = {"[MIN": np.min, "[MAX": np.max, "[MED": np.median, "[SM": lambda a: np.sum(a) % 10}
    return int(operations[operator](values))


def tree_of(nested, start=0):
    """Return the tree and the position after it."""
    if isinstance(nested, int):
        return start, start + 1
    tree, end = start, start + 1
    for argument in nested[1]:
        branch, end = tree_of(argument, end)
        tree = (tree, branch)
    return (tree, end), end + 1


def write(tree, tokens):
    if isinstance(tree, int):
        return tokens[tree]
    return f"( {write(tree[0], tokens)} {write(tree[1], tokens)} )"


def depth_of(nested):
    return 0 if isinstance(nested, int) else 1 + max(depth_of(argument) for argument in nested[1])


@given(NESTED)
def test_value_is_that_of_the_recursive_definition(nested):
    assert expressions.parse(flatten(nested)).value == value_of(nested)


@given(NESTED)
def test_tree_is_the_left_branching_one(nested):
    assert expressions.parse(flatten(nested)).tree == tree_of(nested)[0]


@given(NESTED)
def test_depth_counts_operators(nested):
    assert expressions.parse(flatten(nested)).depth == depth_of(nested)


@given(NESTED)
def test_official_text_writes_the_tree_and_reads_back(nested):
    tokens = flatten(nested)
    text = expressions.to_official(tokens)
    assert text == write(tree_of(nested)[0], tokens)
    assert expressions.tokenize(text) == tokens


@given(NESTED)
def test_ids_read_back_whatever_holds_them(nested):
    tokens = flatten(nested)
    ids = np.array([expressions.IDS[token] for token in tokens])
    assert ids.dtype == np.int64
    assert ids.min() >= 1
    assert ids.max() <= 15
    for held in (ids, ids.tolist(), bytes(ids.tolist()), np.concatenate([ids, [expressions.PADDING]])):
        assert expressions.decode(held) == tokens


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[MED 4 7 ]", 5),
        ("[MED 4 7 9 ]", 7),
        ("[MED 3 ]", 3),
        ("[SM 9 9 9 ]", 7),
        ("[MIN 4 7 2 ]", 2),
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9),
        ("8", 8),
    ],
)
def test_worked_examples(text, value):
    assert expressions.parse(expressions.tokenize(text)).value == value


@pytest.mark.parametrize(
    "text", ["[MAX 2 [MIN 4 7]]", "  [MAX 2\t[MIN 4 7 ]\n] ", "((([MAX 2) ((([MIN 4) 7) ])) ])"]
)
def test_spacing_does_not_matter(text):
    assert expressions.tokenize(text) == ["[MAX", "2", "[MIN", "4", "7", "]", "]"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the expression is empty"),
        ("3 ]", "']' at position 1 closes no operator"),
        ("]", "']' at position 0 closes no operator"),
        ("[MAX 2 [MIN 4 7 ]", "operator '[MAX' at position 0 has no closing ']'"),
        ("[MAX 2 [MIN 4", "operator '[MIN' at position 2 has no closing ']'"),
        ("[MAX 2 [SM ] ]", "operator '[SM' at position 2 has no arguments"),
        ("[MAX 2 9 ] [MIN 1 ]", "'[MIN' at position 4 follows the end of the expression"),
        ("2 9", "'9' at position 1 follows the end of the expression"),
    ],
)
def test_malformed_expressions_are_refused_everywhere(text, complaint):
    tokens = expressions.tokenize(text)
    for function in (
        expressions.parse,
        expressions.to_official,
    ):
        with pytest.raises(ExpressionError) as caught:
            function(tokens)
        assert str(caught.value) == complaint


def test_unknown_tokens_are_named_beside_the_known_ones():
    with pytest.raises(ExpressionError) as caught:
        expressions.parse(["[MAX", "3", "12", "]"])
    known = "[MIN [MAX [MED [SM ] 0 1 2 3 4 5 6 7 8 9"
    assert str(caught.value) == f"unknown token '12' at position 2: expected one of {known}"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "[MAX 3 [MUL 4 ] ]",
            "unknown token '[MUL' at position 2: expected one of [MIN [MAX [MED [SM ] 0 1 2 3 4 5 6 7 8 9",
        ),
        ("( ( [MAX 3 ) ]", "unbalanced parentheses: 2 '(' but 1 ')'"),
    ],
)
def test_unreadable_text_is_refused(text, complaint):
    with pytest.raises(ExpressionError) as caught:
        expressions.tokenize(text)
    assert str(caught.value) == complaint


@pytest.mark.parametrize("number", [-1, 16])
def test_unknown_ids_are_named(number):
    with pytest.raises(ExpressionError, match=f"^id {number} at position 1 is not in 0..15$"):
        expressions.decode([6, number])


def test_deep_nesting_needs_no_recursion():
    depth = 2_000
    tokens = expressions.tokenize("[MAX 3 " * depth + "7" + " ]" * depth)
    assert expressions.parse(tokens).value == 7
    assert expressions.parse(tokens).depth == depth
    assert expressions.tokenize(expressions.to_official(tokens)) == tokens
    node = expressions.parse(tokens).tree
    for level in range(depth):  # node is (((operator, 3), inner), bracket)
        (head, inner), bracket = node
        assert head == (2 * level, 2 * level + 1)
        assert bracket == len(tokens) - 1 - level
        node = inner
    assert node == 2 * depth
