"""Data augmentation: new training pairs whose relation is known from the pairs that they are made of."""

from __future__ import annotations

import re
from collections.abc import Collection

import numpy as np

from tasks.logic.data import Dataset, FormulaPair
from tasks.logic.formulas import CONVERSES, IDS, VARIABLES


def augmented(dataset: Dataset, rng: np.random.Generator, *, keep: Collection[str] = ()) -> Dataset:
    """Rename the variables of each pair and exchange its formulas, at random.

    The relation of renamed formulas is the same; that of exchanged formulas is the converse, such as > for <.
    The length and the tree of a formula do not change.

    Args:
        dataset: the pairs, which are not changed.
        rng: draws the names and the order, independently for each pair.
        keep: names of variables that are not changed.
    Returns:
        A data set with the new pairs, in the same order.

    Example:
        >>> from tasks.logic.formulas import RELATIONS, decode
        >>> dataset = Dataset.from_texts([("a", "( a ( or b ) )")])
        >>> left, right, label, _ = augmented(dataset, np.random.default_rng(0)).pairs[0]
        >>> " ".join(decode(left)), RELATIONS[label], " ".join(decode(right))
        ('d', '<', '( d ( or c ) )')
    """
    variables = bytes(IDS[name] for name in VARIABLES if name not in keep)
    names = rng.permuted(np.tile(np.frombuffer(variables, np.uint8), (len(dataset), 1)), axis=1)
    exchanged = rng.random(len(dataset)) < 0.5
    pairs = []
    for pair, new_names, exchange in zip(dataset.pairs, names, exchanged.tolist(), strict=True):
        table = bytes.maketrans(variables, new_names.tobytes())
        left, right, label = pair.left.translate(table), pair.right.translate(table), pair.label
        if exchange:
            left, right, label = right, left, CONVERSES[label]
        pairs.append(FormulaPair(left, right, label, pair.operations))
    result = Dataset(pairs)
    if dataset.nodes is not None:
        rows = np.arange(2 * len(dataset)).reshape(-1, 2)
        rows[exchanged] = rows[exchanged, ::-1]
        result.nodes = [dataset.nodes[row] for row in rows.flatten()]
    return result


def variables_in(pattern: re.Pattern[str] | None) -> list[str]:
    """Return the variables that the pattern of a split names: `a` for split A, none for the others.

    Args:
        pattern: one of `tasks.logic.data.PATTERNS`.
    """
    words = [] if pattern is None else re.findall(r"\w+", pattern.pattern)
    return [word for word in words if word in VARIABLES]
