"""Data augmentation: new training pairs whose relation is known from the pairs that they are made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial

import numpy as np

from tasks.logic.data import Dataset, FormulaPair, has_pattern, matches
from tasks.logic.formulas import AND, CLOSE, CONVERSES, DUALS, IDS, OPEN, OR, VARIABLES

_OPEN, _CLOSE = bytes([IDS[OPEN]]), bytes([IDS[CLOSE]])
_OPERATORS = bytes([IDS[AND], IDS[OR]])
_VARIABLES = bytes(IDS[name] for name in VARIABLES)
_OTHER_OPERATOR = bytes.maketrans(_OPERATORS, _OPERATORS[::-1])


def augmented(
    dataset: Dataset,
    rng: np.random.Generator,
    symmetries: Collection[str],
    *,
    pattern: re.Pattern[str] | None = None,
) -> Dataset:
    """Change each pair at random, as some symmetries of propositional logic allow.

    The lengths and the numbers of operations of the two formulas do not change, but the formulas may be
    exchanged.

    Args:
        dataset: the pairs, which are not changed.
        rng: draws the changes, independently for each pair.
        symmetries: the changes to make, each of them independently of the others:

            - `names`: the variables get other names, drawn from all six, the same in both formulas;
            - `formulas`: with a probability of 1/2 the two formulas are exchanged, and so are < and >;
            - `operands`: with a probability of 1/2, for each `and` and `or`, its operands are exchanged;
            - `duals`: with a probability of 1/2, `and` and `or` are exchanged in both formulas, and so are <
              and >, and | and v.
        pattern: the pattern of a systematic split, which no pair of `dataset` has. A change that would make
            it is left out.
    Returns:
        A data set with the new pairs, in the same order.
    Raises:
        ValueError: an unknown symmetry.

    Example:
        >>> from tasks.logic.formulas import RELATIONS, decode
        >>> dataset = Dataset.from_texts([("a", "( a ( or b ) )")])
        >>> new = augmented(dataset, np.random.default_rng(2), ["names", "operands", "duals"])
        >>> left, right, label, _ = new.pairs[0]
        >>> " ".join(decode(left)), RELATIONS[label], " ".join(decode(right))
        ('d', '>', '( f ( and d ) )')
    """
    all_changes: dict[str, Callable[[FormulaPair, np.random.Generator], FormulaPair]] = {
        "names": _rename_variables,
        "formulas": _exchange_formulas,
        "operands": partial(_exchange_operands, pattern=pattern),  # leaves out single exchanges, not all
        "duals": _exchange_operators,
    }
    for symmetry in symmetries:
        if symmetry not in all_changes:
            raise ValueError(f"symmetries must be some of {' '.join(all_changes)}, got {symmetry!r}")
    changes = [change for symmetry, change in all_changes.items() if symmetry in symmetries]
    pairs = []
    for pair in dataset.pairs:
        for change in changes:
            changed = change(pair, rng)
            pair = pair if matches(changed, pattern) else changed
        pairs.append(pair)
    return Dataset(pairs, include_trees=dataset.include_trees)


def _rename_variables(pair: FormulaPair, rng: np.random.Generator) -> FormulaPair:
    names = bytes.maketrans(_VARIABLES, bytes(rng.permutation(bytearray(_VARIABLES))))
    return pair._replace(left=pair.left.translate(names), right=pair.right.translate(names))


def _exchange_formulas(pair: FormulaPair, rng: np.random.Generator) -> FormulaPair:
    if rng.random() < 0.5:
        return pair
    return FormulaPair(pair.right, pair.left, CONVERSES[pair.label], pair.operations)


def _exchange_operators(pair: FormulaPair, rng: np.random.Generator) -> FormulaPair:
    if rng.random() < 0.5:
        return pair
    left, right = pair.left.translate(_OTHER_OPERATOR), pair.right.translate(_OTHER_OPERATOR)
    return FormulaPair(left, right, DUALS[pair.label], pair.operations)


def _exchange_operands(
    pair: FormulaPair, rng: np.random.Generator, *, pattern: re.Pattern[str] | None
) -> FormulaPair:
    left, right = (_with_exchanged_operands(formula, rng, pattern) for formula in (pair.left, pair.right))
    return pair._replace(left=left, right=right)


def _with_exchanged_operands(
    formula: bytes, rng: np.random.Generator, pattern: re.Pattern[str] | None
) -> bytes:
    """Exchange the operands of some operators, without recursion."""
    open_groups: list[list[bytes]] = [[]]
    for number in formula:
        if number == IDS[OPEN]:
            open_groups.append([])
        elif number == IDS[CLOSE]:
            group = open_groups.pop()
            if len(group) == 3:  # left operand, operator, right operand
                left, operator, right = group
                exchanged = _OPEN + operator + left + _CLOSE
                if rng.random() < 0.5 and not has_pattern(exchanged, pattern):
                    group = [right, exchanged]
                else:
                    group = [left, _OPEN + operator + right + _CLOSE]
            if group[0] in _OPERATORS:  # the operator and its right operand are joined with the left one
                open_groups[-1] += group
            else:
                open_groups[-1].append(b"".join([_OPEN, *group, _CLOSE]))
        else:
            open_groups[-1].append(bytes([number]))
    return open_groups[0][0]
