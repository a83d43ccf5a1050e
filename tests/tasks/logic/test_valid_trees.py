"""Valid trees against what trees compute: operators applied to what stands beside them."""

import functools

import pytest

from ordered_memory.trees import fold, spans
from tasks.logic.valid_trees import valid_spans
from tasks.reporting.induced_trees import valid_fractions
from tests.small_trees import all_trees

LONGEST = 7


@functools.cache
def formulas(first, last):
    """Every formula over the words first..last: its words, its tree, and what it means."""
    if first == last:
        return [(("a",), first, first)]
    negated = [
        (("not", *words), (first, tree), ("not", meaning))
        for words, tree, meaning in formulas(first + 1, last)
    ]
    joined = [
        ((*left[0], name, *right[0]), (left[1], (middle, right[1])), (middle, name, left[2], right[2]))
        for middle in range(first + 1, last)
        for left in formulas(first, middle - 1)
        for right in formulas(middle + 1, last)
        for name in ("and", "or")
    ]
    return negated + joined


def meaning_of(tree, words):
    """What a tree means if each node applies one child to the other; None if that is impossible."""

    def leaf(place):
        if words[place] == "not":
            return {"operator": ("not",), "missing": ("right",)}
        if words[place] in ("and", "or"):
            return {"operator": (place, words[place]), "missing": ("left", "right")}
        return place

    def apply(function, side, operand):
        if side not in function["missing"] or isinstance(operand, dict) or operand is None:
            return None
        function = {**function, side: operand, "missing": tuple(set(function["missing"]) - {side})}
        if function["missing"]:
            return function
        return (*function["operator"], *(function[name] for name in ("left", "right") if name in function))

    def join(children):
        left, right = children
        if isinstance(left, dict):
            return apply(left, "right", right)
        return apply(right, "left", left) if isinstance(right, dict) else None

    meaning = fold(tree, leaf, join)
    return None if isinstance(meaning, dict) else meaning


def needs_of(tree, words):
    """Every operator with each of its operands, a list of words."""
    found = []

    def walk(node):
        if isinstance(node, int):
            return [node]
        parts = [walk(child) for child in node]
        if isinstance(node[0], int) and words[node[0]] == "not":
            found.append((node[0], parts[1]))
        if isinstance(node[1], tuple) and words[parts[1][0]] in ("and", "or"):
            operator, *right = parts[1]
            found.extend([(operator, parts[0]), (operator, right)])
        return parts[0] + parts[1]

    walk(tree)
    return found


@pytest.mark.parametrize("length", range(1, LONGEST + 1))
def test_a_tree_is_valid_if_and_only_if_it_means_the_formula(length):
    for words, true_tree, meaning in formulas(0, length - 1):
        assert meaning_of(true_tree, words) == meaning
        valid = valid_spans(true_tree, words)
        for tree in all_trees(0, length - 1):
            assert valid.issuperset(spans(tree)) == (meaning_of(tree, words) == meaning)


@pytest.mark.parametrize("length", range(1, LONGEST))
def test_a_valid_constituent_has_an_operator_with_all_or_nothing_of_each_operand(length):
    for words, true_tree, _ in formulas(0, length - 1):
        valid, needs = valid_spans(true_tree, words), needs_of(true_tree, words)
        for tree in all_trees(0, length - 1):
            whole = all(
                sum(first <= word <= last for word in operand) in (0, len(operand))
                for first, last in spans(tree)
                for operator, operand in needs
                if first <= operator <= last
            )
            assert valid.issuperset(spans(tree)) == whole


def test_a_tree_with_some_of_the_valid_constituents_is_valid():
    assert valid_fractions({"model": [((0, 1), 2)]}, [{(0, 1), (1, 2), (0, 2)}])["model"] == 1.0
    assert valid_fractions({"model": [((0, 1), 2)]}, [{(1, 2), (0, 2)}])["model"] == 0.0


def test_an_equal_formula_with_other_operands_is_not_valid():
    valid = valid_spans((0, (1, (2, (3, 4)))), ["a", "or", "b", "or", "c"])
    assert not valid.issuperset(spans(((0, (1, 2)), (3, 4))))


def test_a_formula_may_be_nested_deep():
    words, tree = ["not"] * 5_000 + ["a"], 5_000
    for place in reversed(range(5_000)):
        tree = (place, tree)
    assert valid_spans(tree, words) == {(place, 5_000) for place in range(5_000)}
