"""Generate random pairs of formulas: the distribution of the official data, and longer formulas.

The distribution is that of Bowman, Potts and Manning (2015). Each pair uses four of the six variables. A
formula of budget n is, with probability 4/9 and if n ≥ 2, two formulas of budget ⌊n/2⌋ combined by `and` or
`or` with equal probability, else one of the four variables; in both cases it is then negated with probability
1/3. Both formulas have budget 12. Pairs with a tautology or a contradiction are rejected. Pairs are grouped
by the number of operations of the formula that has more (the last group has 12 and more), duplicates are
dropped, and the first 85 % of a group are training data.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from tasks.logic.data import MAX_OPERATIONS, FormulaPair
from tasks.logic.formulas import AND, CLOSE, IDS, NOT, OPEN, OR, RELATIONS, TABLES, TAUTOLOGY, relation
from tasks.runs.errors import UserError

OFFICIAL_COUNT = 500_000
BUDGET = 12
LONG_BUDGET = 24
"""Budget of formulas with more than 12 operations; it allows one more level of nesting."""
VARIABLES_IN_A_PAIR = 4
TRAIN_FRACTION = 0.85
PATIENCE = 2_000_000
"""`longer` gives up after this many draws in a row without a new pair of the right size."""


class RandomFormula(NamedTuple):
    """A random formula.

    Args:
        tokens: token ids, one byte each.
        table: truth table; see `formulas.Formula`.
        operations: number of `and`, `or` and `not`.
    """

    tokens: bytes
    table: int
    operations: int


_OPEN, _CLOSE, _NOT = bytes([IDS[OPEN]]), bytes([IDS[CLOSE]]), bytes([IDS[NOT]])
_JOIN = {
    operator: (bytes([IDS[OPEN], IDS[operator]]), bytes([IDS[CLOSE], IDS[CLOSE]])) for operator in (AND, OR)
}
_VARIABLES = [RandomFormula(bytes([IDS[name]]), table, 0) for name, table in TABLES.items()]


def generate(
    count: int, *, seed: int, stream: str | None = None
) -> tuple[list[list[FormulaPair]], list[list[FormulaPair]]]:
    """Generate training and test data.

    Args:
        count: number of pairs to draw; about half of them remain when duplicates are dropped.
        seed: not negative.
        stream: any word; the same seed with another word, or with none, gives other pairs.
    Returns:
        Training and test pairs by number of operations, 0 to 12.
    Raises:
        UserError: an argument is out of range.
    Example:
        >>> train, test = generate(1_000, seed=1)
        >>> len(train), max(pair.operations for pair in train[6])
        (13, 6)
    """
    _check(count, seed)
    groups: list[dict[FormulaPair, None]] = [{} for _ in range(MAX_OPERATIONS + 1)]
    generator = random.Random(seed if stream is None else f"{seed} {stream}")
    pairs = _pairs(generator, BUDGET)
    for _ in range(count):
        pair = next(pairs)
        groups[min(pair.operations, MAX_OPERATIONS)][pair] = None
    parts = [(list(group), int(TRAIN_FRACTION * len(group))) for group in groups]
    return [group[:cut] for group, cut in parts], [group[cut:] for group, cut in parts]


def longer(operations: int, count: int, *, seed: int) -> list[FormulaPair]:
    """Generate pairs with a given number of operations, also more than in the official data.

    Args:
        operations: number of operations of the formula that has more, from 0 to 46 (the maximum for a budget
            of 24).
        count: number of distinct pairs.
        seed: not negative.
    Returns:
        The pairs.
    Raises:
        UserError: an argument is out of range, or too few pairs are found in a reasonable time.
    Example:
        >>> {pair.operations for pair in longer(14, 3, seed=1)}
        {14}
    """
    _check(count, seed)
    pairs: dict[FormulaPair, None] = {}
    misses = 0
    for pair in _pairs(random.Random(f"{seed} {operations}"), LONG_BUDGET):
        is_new = pair.operations == operations and pair not in pairs
        misses = 0 if is_new else misses + 1
        if is_new:
            pairs[pair] = None
        if len(pairs) == count:
            return list(pairs)
        if misses == PATIENCE:
            break
    raise UserError(
        f"found only {len(pairs):,} of {count:,} pairs with {operations} operations, and none in the last "
        f"{PATIENCE:,} draws"
    )


def _pairs(rng: random.Random, budget: int) -> Iterator[FormulaPair]:
    while True:
        variables = rng.sample(_VARIABLES, VARIABLES_IN_A_PAIR)
        left, right = _formula(rng, variables, budget), _formula(rng, variables, budget)
        if left.table in (0, TAUTOLOGY) or right.table in (0, TAUTOLOGY):
            continue
        label = RELATIONS.index(relation(left.table, right.table))
        yield FormulaPair(left.tokens, right.tokens, label, max(left.operations, right.operations))


def _formula(rng: random.Random, variables: list[RandomFormula], budget: int) -> RandomFormula:
    choice = rng.randrange(9)
    if choice < 4 and budget >= 2:
        left, right = (_formula(rng, variables, budget // 2) for _ in range(2))
        operator = AND if choice < 2 else OR
        opening, closing = _JOIN[operator]
        formula = RandomFormula(
            _OPEN + left.tokens + opening + right.tokens + closing,
            left.table & right.table if operator == AND else left.table | right.table,
            left.operations + right.operations + 1,
        )
    else:
        formula = rng.choice(variables)
    if rng.randrange(3):
        return formula
    return RandomFormula(
        _OPEN + _NOT + formula.tokens + _CLOSE, TAUTOLOGY ^ formula.table, formula.operations + 1
    )


def _check(count: int, seed: int) -> None:
    if count < 1:
        raise UserError(f"the number of pairs must be at least 1, got {count}")
    if seed < 0:
        raise UserError(f"the seed must not be negative, got {seed}")
