"""Generate random ListOps expressions: the official distribution and splits, and harder tests.

A node is an operator with probability 1/4, else a digit; at the maximum depth it is always a digit (the root
has depth 1). An operator has 2 to `max_args` arguments. All choices are uniform, and no expression is
generated twice. For speed, many expressions are drawn at once with NumPy, one depth after another.

Each use of a seed has its own random numbers. NumPy gets `seed` for the standard task (it takes `(seed, 0)`
for the same), `(seed, i + 1)` for the hard test with index i in `HARD_TESTS`, and `(seed, 0, 1)` for the
standard expressions that `python -m tasks.listops generate` writes.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.classifiers.classification import Splits
from tasks.listops.expressions import CLOSE, DIGITS, IDS, OPERATORS
from tasks.runs.errors import UserError
from tasks.runs.progress import progress_bar

OPERATOR_PROBABILITY = 0.25
PATIENCE = 2_000_000
"""`generate` gives up after this many draws in a row without a new expression."""

_BLOCK_NODES = 1 << 20  # limits the expected number of nodes in a block, and so the memory
_BLOCK_DRAWS = 1 << 16  # maximum number of expressions in a block
_NO_LIMIT = np.iinfo(np.int64).max

Ints = NDArray[np.int64]
Seed = int | Sequence[int]


class Expression(NamedTuple):
    """A generated expression and its value.

    Args:
        tokens: token ids, one byte each; `expressions.decode` converts them to text.
        label: the value, 0..9.
    """

    tokens: bytes
    label: int


class Limits(NamedTuple):
    """Limits on the shape of an expression.

    Args:
        max_depth: depth at which every node is a digit; the root has depth 1.
        max_args: maximum number of arguments of an operator.
        min_length: minimum number of tokens.
        max_length: maximum number of tokens; None for no limit.
    """

    max_depth: int = 20
    max_args: int = 5
    min_length: int = 1
    max_length: int | None = None


class _Level(NamedTuple):
    """All nodes of one depth in a block of expressions; siblings are adjacent, in the order of their parents.

    `is_operator` says which nodes are operators. `arity` and `operator` have one entry for each operator;
    `size` (number of tokens of the subtree) and `value` have one entry for each node.
    """

    is_operator: NDArray[np.bool_]
    arity: Ints
    operator: Ints
    size: Ints
    value: Ints


HARD_TESTS: dict[str, Limits] = {
    **{f"{low}-{low + 100}": Limits(min_length=low, max_length=low + 100) for low in range(200, 1000, 100)},
    "10-args": Limits(max_depth=9, max_args=10, min_length=100, max_length=1000),
    "15-args": Limits(max_depth=9, max_args=15, min_length=100, max_length=1000),
    "lra": Limits(max_depth=10, max_args=10, min_length=501, max_length=1999),
    "operators": Limits(max_depth=2, max_args=15, min_length=4, max_length=17),
}
"""Tests with longer expressions or more arguments than the training data.

The first ten are from Chowdhury and Caragea, *Beam Tree Recursive Cells* (ICML 2023), who use about 2,000
examples of each. "lra" is the distribution of the ListOps task in Tay et al., *Long Range Arena* (ICLR 2021),
whose generator leaves out expressions of exactly 500 and 2,000 tokens. "operators" has a single operator with
2 to 15 digits; operators and numbers of digits are equally likely. Bounds on the length are inclusive.
"""


def generate(
    count: int,
    *,
    seed: Seed,
    max_depth: int = 20,
    max_args: int = 5,
    min_length: int = 1,
    max_length: int | None = None,
) -> list[Expression]:
    """Generate distinct expressions in random order.

    Lengths are bounded by rejection sampling, so the result has the ListOps distribution conditioned on the
    length. An expression is rejected as soon as it is certain to become too long.

    Args:
        count: number of expressions.
        seed: a seed for `numpy.random.SeedSequence`.
        max_depth, max_args, min_length, max_length: see `Limits`.
    Returns:
        `count` distinct expressions.
    Raises:
        UserError: an argument is out of range, or so many distinct expressions do not exist or are too rare
            to be found.

    Example:
        >>> from tasks.listops.expressions import decode
        >>> sorted(" ".join(decode(e.tokens)) for e in generate(10, seed=1, max_length=1))
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9']
    """
    limits = Limits(max_depth, max_args, min_length, max_length)
    _check_arguments(count, limits)
    rng = np.random.Generator(np.random.PCG64(seed))
    block = _block_size(count, limits)
    seen: set[bytes] = set()
    expressions: list[Expression] = []
    draws_without_new = 0
    with progress_bar(total=count, desc="generating", unit=" expressions") as bar:  # long ones take minutes
        while len(expressions) < count:
            count_before = len(expressions)
            for expression in _draw(rng, block, limits):
                if expression.tokens not in seen:
                    seen.add(expression.tokens)
                    expressions.append(expression)
                    if len(expressions) == count:
                        break
            bar.update(len(expressions) - count_before)
            draws_without_new = 0 if len(expressions) > count_before else draws_without_new + block
            if draws_without_new >= PATIENCE:
                raise UserError(
                    f"count={count}: found only {len(expressions)} different expressions with "
                    f"{_describe(limits)}; the last {draws_without_new:,} draws gave no new one"
                )
    # Short expressions are mostly at the start, since later draws repeat them: shuffle.
    return [expressions[index] for index in rng.permutation(count)]


def standard(seed: Seed, count: int = 100_000, *, validation: int = 5_000) -> Splits[list[Expression]]:
    """Generate the standard task: 100,000 expressions, one tenth for testing.

    The official files have no validation data. Here they are taken from the other nine tenths.

    Args:
        seed: the same as for `generate`.
        count: total number of expressions.
        validation: number of validation expressions.
    Returns:
        Three disjoint lists.
    Raises:
        UserError: `validation` leaves no training data.

    Example:
        >>> [len(part) for part in standard(0, count=200, validation=20)]
        [160, 20, 20]
    """
    test_start = count - count // 10
    if not 0 <= validation < test_start:
        raise UserError(
            f"--validation-size must be at least 0 and below {test_start}, got {validation}: one tenth of "
            f"the {count} expressions is test data"
        )
    expressions = generate(count, seed=seed)
    return Splits(
        train=expressions[validation:test_start],
        validation=expressions[:validation],
        test=expressions[test_start:],
    )


def hard_test(name: str, count: int = 2_000, *, seed: int) -> list[Expression]:
    """Generate one of `HARD_TESTS`.

    Args:
        name: a key of `HARD_TESTS`.
        count: number of expressions.
        seed: not negative; different tests are independent for the same seed.
    Returns:
        `count` distinct expressions.
    Raises:
        UserError: there is no test of this name.

    Example:
        >>> all(100 <= len(e.tokens) <= 1000 for e in hard_test("10-args", 5, seed=0))
        True
    """
    if name not in HARD_TESTS:
        raise UserError(f"unknown test {name!r}: expected one of {', '.join(HARD_TESTS)}")
    index = list(HARD_TESTS).index(name)
    return generate(count, seed=(seed, index + 1), **HARD_TESTS[name]._asdict())


def _draw(rng: np.random.Generator, draws: int, limits: Limits) -> Iterator[Expression]:
    """Draw a block of expressions; yield those of an allowed length, in the order drawn."""
    arities, lengths = _draw_shapes(rng, draws, limits)
    if not lengths.size:
        return
    tokens, labels = _draw_tokens(rng, arities, lengths)
    text = tokens.tobytes()
    ends = np.cumsum(lengths)
    for start, end, label in zip((ends - lengths).tolist(), ends.tolist(), labels.tolist(), strict=True):
        yield Expression(text[start:end], label)


def _draw_shapes(rng: np.random.Generator, draws: int, limits: Limits) -> tuple[list[Ints], Ints]:
    """Draw the shapes of expressions, one depth after another.

    Returns the number of arguments of each node (0 for a digit), in one array per depth, and the length of
    each expression. The nodes of a depth are in the order of their parents, so siblings are adjacent.
    Expressions whose length is not allowed are left out.
    """
    max_length = _NO_LIMIT if limits.max_length is None else limits.max_length
    root = np.arange(draws)
    lengths = np.zeros(draws, dtype=np.int64)
    levels: list[tuple[Ints, Ints]] = []
    for depth in range(1, limits.max_depth + 1):
        if depth == 1 and limits.min_length > 1:
            operators = np.arange(draws)  # a single digit would be too short
        elif depth < limits.max_depth:
            operators = np.flatnonzero(rng.random(root.size, dtype=np.float32) < OPERATOR_PROBABILITY)
        else:
            operators = np.zeros(0, dtype=np.int64)
        arity = np.zeros(root.size, dtype=np.int64)
        arity[operators] = rng.integers(2, limits.max_args + 1, size=operators.size)
        lengths += np.bincount(root, minlength=draws)
        lengths += np.bincount(root[operators], minlength=draws)
        if limits.max_length is not None:
            lower_bounds = lengths + np.bincount(root, weights=arity, minlength=draws).astype(np.int64)
            too_long = lower_bounds > max_length
            arity[too_long[root]] = 0
            lengths[too_long] = lower_bounds[too_long]
        levels.append((root, arity))
        root = np.repeat(root, arity)
        if not root.size:
            break
    is_allowed = (lengths >= limits.min_length) & (lengths <= max_length)
    return [arity[is_allowed[root]] for root, arity in levels], lengths[is_allowed]


def _draw_tokens(
    rng: np.random.Generator, arities: list[Ints], lengths: Ints
) -> tuple[NDArray[np.uint8], Ints]:
    """Draw operators and digits; return the concatenated token ids of all expressions, and their values."""
    levels: list[_Level] = []
    for arity in reversed(arities):  # from the leaves up
        is_operator = arity > 0
        size, value = np.ones_like(arity), rng.integers(0, len(DIGITS), size=arity.size)
        operator = rng.integers(0, len(OPERATORS), size=int(is_operator.sum()))
        if operator.size:
            children = levels[-1]
            size[is_operator] = 2 + np.add.reduceat(children.size, _starts(arity[is_operator]))
            value[is_operator] = _apply(operator, children.value, arity[is_operator])
        levels.append(_Level(is_operator, arity[is_operator], operator, size, value))
    levels.reverse()
    return _write_tokens(levels, lengths), levels[0].value


def _write_tokens(levels: list[_Level], lengths: Ints) -> NDArray[np.uint8]:
    """Write the tokens of all nodes to their positions, from the root down."""
    tokens = np.empty(int(lengths.sum()), dtype=np.uint8)
    positions = _starts(lengths)
    for level, children in zip(levels, [*levels[1:], None], strict=True):
        is_operator = level.is_operator
        tokens[positions[~is_operator]] = IDS[DIGITS[0]] + level.value[~is_operator]
        tokens[positions[is_operator]] = IDS[OPERATORS[0]] + level.operator
        tokens[positions[is_operator] + level.size[is_operator] - 1] = IDS[CLOSE]
        if children is not None:
            offsets = _starts(children.size)  # tokens of earlier nodes of this depth, then only of siblings
            offsets -= np.repeat(offsets[_starts(level.arity)], level.arity)
            positions = np.repeat(positions[is_operator] + 1, level.arity) + offsets
    return tokens


def _apply(operator: Ints, arguments: Ints, arity: Ints) -> Ints:
    """Apply each operator to its arguments."""
    starts = _starts(arity)
    group = np.repeat(np.arange(arity.size), arity)
    ordered = np.sort(group * 16 + arguments) & 15  # sorts the arguments of each operator
    smallest, largest = ordered[starts], ordered[starts + arity - 1]
    median = (ordered[starts + (arity - 1) // 2] + ordered[starts + arity // 2]) // 2
    total = np.add.reduceat(arguments, starts) % 10
    return np.choose(operator, [smallest, largest, median, total])


def _starts(counts: Ints) -> Ints:
    return np.cumsum(counts) - counts


def _block_size(count: int, limits: Limits) -> int:
    """How many expressions to draw at once: enough to be fast, but few enough to fit into memory."""
    growth = OPERATOR_PROBABILITY * (2 + limits.max_args) / 2
    nodes = sum(growth**depth for depth in range(limits.max_depth))
    if limits.max_length is not None:
        nodes = min(nodes, limits.max_length)
    max_draws = 4 * count + 256 if limits.min_length == 1 else _BLOCK_DRAWS
    return max(1, min(max_draws, _BLOCK_DRAWS, int(_BLOCK_NODES / nodes)))


def _check_arguments(count: int, limits: Limits) -> None:
    for name, value, minimum in (
        ("count", count, 0),
        ("max_depth", limits.max_depth, 1),
        ("max_args", limits.max_args, 2),
        ("min_length", limits.min_length, 1),
    ):
        if value < minimum:
            raise UserError(f"{name} must be at least {minimum}, not {value}")
    if limits.max_length is not None and limits.max_length < limits.min_length:
        raise UserError(f"max_length={limits.max_length} is less than min_length={limits.min_length}")
    if limits.max_depth == 1 and limits.min_length > 1:
        raise UserError(
            f"min_length={limits.min_length} is impossible with max_depth=1: every expression is a digit"
        )


def _describe(limits: Limits) -> str:
    return ", ".join(f"{name}={value}" for name, value in limits._asdict().items())
