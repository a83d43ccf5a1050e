"""Formulas and relations against Python's own `and`, `or`, `not` in all 64 worlds."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordered_memory.trees import leaves
from tasks.logic.formulas import (
    RELATIONS,
    TABLES,
    TAUTOLOGY,
    VARIABLES,
    FormulaError,
    decode,
    parse,
    relation,
    tokenize,
    without_redundant_parentheses,
)


def to_text(formula):
    if isinstance(formula, str):
        return formula
    if formula[0] == "not":
        return f"( not {to_text(formula[1])} )"
    return f"( {to_text(formula[1])} ( {formula[0]} {to_text(formula[2])} ) )"


def holds(formula, world):
    if isinstance(formula, str):
        return world[formula]
    if formula[0] == "not":
        return not holds(formula[1], world)
    left, right = holds(formula[1], world), holds(formula[2], world)
    return left and right if formula[0] == "and" else left or right


def size(formula):
    return 0 if isinstance(formula, str) else 1 + sum(size(part) for part in formula[1:])


def tree(formula, start=0):
    """The tree over words, and where the next word stands."""
    if isinstance(formula, str):
        return start, start + 1
    if formula[0] == "not":
        inner, end = tree(formula[1], start + 1)
        return (start, inner), end
    left, middle = tree(formula[1], start)
    right, end = tree(formula[2], middle + 1)
    return (left, (middle, right)), end


WORLDS = [dict(zip(VARIABLES, [bool(bits >> i & 1) for i in range(6)], strict=True)) for bits in range(64)]
FORMULAS = st.recursive(
    st.sampled_from(VARIABLES),
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner), st.tuples(st.sampled_from(["and", "or"]), inner, inner)
    ),
    max_leaves=8,
)


@given(FORMULAS)
def test_a_formula_has_the_table_size_and_tree_of_its_meaning(formula):
    tokens = tokenize(to_text(formula))
    parsed = parse(tokens)
    assert [bool(parsed.table >> w & 1) for w in range(64)] == [holds(formula, world) for world in WORLDS]
    assert parsed.operations == size(formula)
    assert parsed.tree == tree(formula)[0]
    assert leaves(parsed.tree) == list(range(sum(token not in "()" for token in tokens)))
    assert decode([*parsed.tokens, 0, 0]) == tokens


def with_idle_brackets(formula, draw):
    """The text of a formula with brackets around some of its parts that say nothing."""
    if isinstance(formula, str):
        text = formula
    elif formula[0] == "not":
        text = f"(not {with_idle_brackets(formula[1], draw)})"
    else:
        left, right = (with_idle_brackets(part, draw) for part in formula[1:])
        text = f"({left} ({formula[0]} {right}))"
    count = draw(st.integers(0, 2))
    return "(" * count + text + ")" * count


@given(FORMULAS, st.data())
def test_brackets_that_say_nothing_are_left_out(formula, data):
    plain = to_text(formula)
    assert without_redundant_parentheses(with_idle_brackets(formula, data.draw)) == plain
    assert without_redundant_parentheses(plain) == plain


@pytest.mark.parametrize("text", ["( ( a )", "( a ) )", "( a ( ( and b ) ) )", "( )", "( ( ) )", ""])
def test_removing_parentheses_does_not_repair_malformed_formulas(text):
    with pytest.raises(FormulaError):
        without_redundant_parentheses(text)


def test_an_error_beside_redundant_parentheses_names_the_token_as_it_was_written():
    with pytest.raises(FormulaError, match="the parentheses that end at token 11 contain no formula"):
        without_redundant_parentheses("( ( ( a ) ) ( and ( not ) ) )")


def by_sets(left, right):
    everything = set(range(64))
    left, right = ({w for w in everything if table >> w & 1} for table in (left, right))
    if left == right:
        return "="
    if left < right:
        return "<"
    if left > right:
        return ">"
    if not left & right:
        return "^" if left | right == everything else "|"
    return "v" if left | right == everything else "#"


@given(FORMULAS, FORMULAS)
def test_relations_are_those_of_the_sets_of_worlds(left, right):
    tables = [parse(tokenize(to_text(formula))).table for formula in (left, right)]
    if any(table in (0, TAUTOLOGY) for table in tables):
        assert relation(*tables) == "#"
    else:
        assert relation(*tables) == by_sets(*tables)


def test_every_relation_occurs_and_turning_a_pair_round_turns_it():
    a, b, c = TABLES["a"], TABLES["b"], TABLES["c"]
    some = [a, b, a & b, a | b, TAUTOLOGY ^ a, TAUTOLOGY ^ b, TAUTOLOGY ^ (a & b), a & b & c]
    found = {relation(x, y) for x, y in itertools.product(some, some)}
    assert found == set(RELATIONS)
    turned = {"<": ">", ">": "<"}
    for x, y in itertools.product(some, some):
        assert relation(y, x) == turned.get(relation(x, y), relation(x, y))


def test_nesting_may_be_deep():
    depth = 5_000
    text = "( not " * depth + "a" + " )" * depth
    assert parse(tokenize(text)).operations == depth


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("( a ( xor b ) )", "unknown word 'xor' at token 4"),
        ("( a ( or b )", "1 unmatched ( at the end"),
        ("( a ( or b ) ) )", "unmatched ) at token 8"),
        ("( a b )", "the parentheses that end at token 4 contain no formula"),
        ("( a )", "the parentheses that end at token 3 contain no formula"),
        ("( not ( and a ) )", "the parentheses that end at token 7 contain no formula"),
        ("( or a )", "not one formula: ( or a )"),
        ("a b", "not one formula: a b"),
        ("", "not one formula: nothing"),
        ("( not )", "the parentheses that end at token 3 contain no formula"),
        ("not", "not one formula: not"),
    ],
)
def test_what_is_no_formula_is_refused_by_name(text, message):
    with pytest.raises(FormulaError, match="^" + re.escape(message)):
        parse(tokenize(text))
