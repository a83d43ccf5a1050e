"""Training expressions with shuffled arguments."""

import numpy as np
from torch.testing import assert_close

from tasks.listops.augmentation import augmented
from tasks.listops.data import Dataset
from tasks.listops.expressions import decode, parse
from tasks.listops.generator import generate


def sorted_arguments(tokens):
    """The expression as nested tuples, with the arguments of each operator in alphabetical order."""
    stack = [[]]
    for token in tokens:
        if token.startswith("["):
            stack.append([token])
        elif token == "]":
            operator, *arguments = stack.pop()
            stack[-1].append((operator, *sorted(arguments, key=str)))
        else:
            stack[-1].append(token)
    return stack[0][0]


def test_augmented_expressions_differ_in_the_order_of_arguments_only():
    data = Dataset(generate(500, seed=1))
    before = [expression.tokens for expression in data.expressions]
    new_data = augmented(data, np.random.default_rng(1))
    assert [expression.tokens for expression in data.expressions] == before
    after = [expression.tokens for expression in new_data.expressions]
    assert [sorted_arguments(decode(tokens)) for tokens in after] == [
        sorted_arguments(decode(tokens)) for tokens in before
    ]
    parsed = [parse(new_data.tokens_of(index)) for index in range(500)]
    assert [one.value for one in parsed] == new_data.labels.tolist() == data.labels.tolist()
    assert (new_data.lengths == data.lengths).all()
    assert (new_data.depths == data.depths).all()
    changed = sum(new != old for new, old in zip(after, before, strict=True))
    assert changed > 0.9 * sum(len(tokens) > 4 for tokens in before)
    again = augmented(data, np.random.default_rng(1))
    assert [expression.tokens for expression in again.expressions] == after


def test_augmentation_draws_all_orders_of_all_operators_alike():
    data = Dataset.from_texts(["[MED 1 [SM 2 3 ] 4 ]"] * 6_000)
    drawn = augmented(data, np.random.default_rng(1)).expressions
    _, counts = np.unique([" ".join(decode(one.tokens)) for one in drawn], return_counts=True)
    assert len(counts) == 6 * 2
    assert counts.min() > 400  # 500 expected
    assert counts.max() < 600


def test_augmented_expressions_have_their_true_trees():
    data = Dataset(generate(300, seed=1), include_trees=True)
    new_data = augmented(data, np.random.default_rng(1))
    expected = Dataset(new_data.expressions, include_trees=True).batch(range(300))
    assert_close(new_data.batch(range(300)), expected, rtol=0, atol=0)


def test_augmentation_takes_any_expression():
    data = Dataset.from_texts(["7", "[MAX 3 ]", "[SM " * 5_000 + "1" + " ]" * 5_000])
    new_data = augmented(data, np.random.default_rng(1))
    assert [new_data.tokens_of(index) for index in range(3)] == [data.tokens_of(index) for index in range(3)]
    assert len(augmented(data.select([]), np.random.default_rng(1))) == 0
