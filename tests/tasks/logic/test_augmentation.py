"""Training pairs that are changed as the symmetries of logic allow."""

from itertools import chain

import numpy as np
import pytest
from torch.testing import assert_close

from tasks.logic.augmentation import augmented
from tasks.logic.data import PATTERNS, Dataset, make_pair, matches, split
from tasks.logic.formulas import CONVERSES, DUALS, TABLES, decode

SYMMETRIES = ("names", "formulas", "operands", "duals")


@pytest.fixture(scope="module")
def dataset(groups):
    return Dataset(list(chain.from_iterable(groups[0])))


def changes(dataset, *symmetries):
    """The longest pairs, and what becomes of them."""
    data = Dataset(dataset.pairs[-600:])
    new_data = augmented(data, np.random.default_rng(1), symmetries)
    return list(zip(data.pairs, new_data.pairs, strict=True))


def normal(formula):
    """The formula as nested tuples, in which the operands of `and` and `or` are sorted."""

    def read():
        token = next(tokens)
        if token != "(":
            return token
        group = []
        while (part := read()) != ")":
            group.append(part)
        match group:
            case [left, (operator, right)] if operator in ("and", "or"):
                return (operator, *sorted([left, right], key=str))
        return tuple(group)

    tokens = iter(decode(formula))
    return read()


def other_operator(word):
    return {"and": "or", "or": "and"}.get(word, word)


def without_names(pair):
    """The formulas with their variables numbered by first occurrence: renaming does not change them."""
    words = [*decode(pair.left), "|", *decode(pair.right)]
    names = list(dict.fromkeys(word for word in words if word in TABLES))
    return [names.index(word) if word in names else word for word in words]


@pytest.mark.parametrize("symmetries", [[], *([one] for one in SYMMETRIES), SYMMETRIES])
def test_new_pairs_have_the_relation_of_their_formulas(dataset, symmetries):
    data = Dataset(dataset.pairs[::3])
    new_data = augmented(data, np.random.default_rng(1), symmetries)
    for new in new_data.pairs:  # with their number of operations
        assert new == make_pair(" ".join(decode(new.left)), " ".join(decode(new.right)))
    assert (np.sort(new_data.sentence_lengths) == np.sort(data.sentence_lengths)).all()
    assert new_data.labels.tolist() == [pair.label for pair in new_data.pairs]
    assert (new_data.pairs == data.pairs) == (not symmetries)
    assert augmented(data, np.random.default_rng(1), symmetries).pairs == new_data.pairs
    if symmetries:
        assert augmented(data, np.random.default_rng(2), symmetries).pairs != new_data.pairs


def test_names_change_nothing_but_names(dataset):
    found = changes(dataset, "names")
    assert all(without_names(old) == without_names(new) for old, new in found)
    assert sum(old != new for old, new in found) > 450


def test_formulas_are_exchanged(dataset):
    found = changes(dataset, "formulas")
    assert all(
        new in (old, old._replace(left=old.right, right=old.left, label=CONVERSES[old.label]))
        for old, new in found
    )
    assert 200 < sum(old != new for old, new in found) < 400


def test_operands_are_exchanged(dataset):
    found = changes(dataset, "operands")
    assert all(old.label == new.label for old, new in found)
    assert all(normal(old[side]) == normal(new[side]) for old, new in found for side in (0, 1))
    assert sum(old != new for old, new in found) > 500


def test_and_becomes_or_in_both_formulas(dataset):
    found = changes(dataset, "duals")
    exchanged = [(old, new) for old, new in found if old != new]
    for old, new in exchanged:
        assert new.label == DUALS[old.label]
        for side in (0, 1):
            assert [other_operator(word) for word in decode(old[side])] == decode(new[side])
    assert 150 < len(exchanged) < 400


@pytest.mark.parametrize(
    ("texts", "symmetries", "count"),
    [
        (("a", "( a ( or b ) )"), ["names", "formulas"], 2 * 6 * 5),
        (("a", "( ( a ( or b ) ) ( and ( not b ) ) )"), ["operands", "duals"], 2 * 4),
        (("( a ( or b ) )", "( a ( and b ) )"), SYMMETRIES, 6 * 5 * 2 * 2),
    ],
)
def test_all_possible_pairs_are_drawn_alike(texts, symmetries, count):
    data = Dataset.from_texts([texts] * 100 * count)
    drawn = augmented(data, np.random.default_rng(1), symmetries).pairs
    _, counts = np.unique([f"{pair.left} {pair.right}" for pair in drawn], return_counts=True)
    assert len(counts) == count
    assert counts.min() > 60  # 100 expected
    assert counts.max() < 140


@pytest.mark.parametrize("symmetry", SYMMETRIES)
@pytest.mark.parametrize("name", ["full", "A", "B", "C"])
def test_no_pair_gets_the_pattern_that_a_split_leaves_out(groups, name, symmetry):
    pattern = PATTERNS[name]
    data = Dataset(split(*groups, name).train)
    new_data = augmented(data, np.random.default_rng(1), [symmetry], pattern=pattern)
    assert not any(matches(pair, pattern) for pair in new_data.pairs)
    names = {"".join(sorted({*decode(pair.left + pair.right)} & {*"abcdef"})) for pair in new_data.pairs}
    assert {"a", "bcde", "cdef"} <= names
    # Without `pattern` there would be such pairs.
    free = augmented(data, np.random.default_rng(1), [symmetry])
    makes_it = {"A": {"names", "operands", "duals"}, "B": {"operands", "duals"}, "C": {"operands"}}
    assert any(matches(pair, pattern) for pair in free.pairs) == (symmetry in makes_it.get(name, ()))


def test_operands_that_may_be_exchanged_are_when_others_may_not():
    data = Dataset.from_texts([("a", "( ( not a ) ( or ( b ( and c ) ) ) )")] * 100)
    drawn = augmented(data, np.random.default_rng(1), ["operands"], pattern=PATTERNS["C"]).pairs
    formulas = {" ".join(decode(pair.right)) for pair in drawn}
    assert formulas == {"( ( not a ) ( or ( b ( and c ) ) ) )", "( ( not a ) ( or ( c ( and b ) ) ) )"}


def test_new_pairs_have_their_true_trees(dataset):
    data = Dataset(dataset.pairs[:300], include_trees=True)
    new_data = augmented(data, np.random.default_rng(1), SYMMETRIES)
    expected = Dataset(new_data.pairs, include_trees=True).batch(range(300))
    assert_close(new_data.batch(range(300)), expected, rtol=0, atol=0)


def test_long_formulas_are_no_problem():
    data = Dataset.from_texts([("( a ( and " * 3_000 + "b" + " ) )" * 3_000, "( not a )")])
    (pair,) = augmented(data, np.random.default_rng(1), SYMMETRIES).pairs
    assert pair == make_pair(" ".join(decode(pair.left)), " ".join(decode(pair.right)))
    assert pair.operations == 3_000


def test_unknown_symmetries_are_refused(dataset):
    with pytest.raises(ValueError, match=r"symmetries must be some of names .* duals, got 'name'"):
        augmented(dataset, np.random.default_rng(1), ["formulas", "name"])
