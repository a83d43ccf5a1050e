"""Data augmentation: training expressions with the arguments of each operator in another order."""

from __future__ import annotations

import numpy as np

from tasks.listops.data import Dataset
from tasks.listops.expressions import CLOSE, IDS, OPERATORS
from tasks.listops.generator import Expression

_OPERATORS = frozenset(IDS[name] for name in OPERATORS)
_CLOSE = bytes([IDS[CLOSE]])


def augmented(dataset: Dataset, rng: np.random.Generator) -> Dataset:
    """Shuffle the arguments of each operator.

    The value of an expression does not change, nor do its length, its depth and its numbers of arguments: all
    four operators are symmetric.

    Args:
        dataset: the expressions, which are not changed.
        rng: draws the order of the arguments, independently for each operator.
    Returns:
        A data set with the new expressions, in the same order.

    Example:
        >>> dataset = Dataset.from_texts(["[SM 7 [MAX 1 2 ] 5 ]"])
        >>> " ".join(augmented(dataset, np.random.default_rng(0)).tokens_of(0))
        '[SM [MAX 1 2 ] 7 5 ]'
    """
    keys = iter(rng.random(int(dataset.lengths.sum())).tolist())
    expressions = [
        Expression(_shuffled(expression.tokens, [next(keys) for _ in expression.tokens]), expression.label)
        for expression in dataset.expressions
    ]
    return Dataset(expressions, include_trees=dataset.include_trees)


def _shuffled(tokens: bytes, keys: list[float]) -> bytes:
    """Sort the arguments of each operator by their keys, those of their first tokens; without recursion."""
    # One list for each open operator: the key of its first token, that token, and the arguments so far.
    open_operators: list[tuple[float, bytes, list[tuple[float, bytes]]]] = [(0.0, b"", [])]
    for position, key in enumerate(keys):
        token = tokens[position : position + 1]
        if token[0] in _OPERATORS:
            open_operators.append((key, token, []))
            continue
        if token == _CLOSE:
            key, operator, arguments = open_operators.pop()
            token = b"".join([operator, *(argument for _, argument in sorted(arguments)), _CLOSE])
        open_operators[-1][2].append((key, token))
    return open_operators[0][2][0][1]
