"""The ListOps language: tokens, parser and official text format.

An expression is a digit, or an operator with one or more arguments and a closing bracket:
`[MAX 2 9 [MIN 4 7 ] 0 ]`. Operators and brackets are tokens. The official files add parentheses that show
the binarized tree; these are not tokens. Positions count tokens from 0. No function is recursive, so the
nesting depth is not limited.
"""

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import NamedTuple

from ordered_memory.brackets import to_brackets
from ordered_memory.trees import Tree
from tasks.runs.errors import UserError

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
CLOSE = "]"
DIGITS = tuple("0123456789")
TOKENS: tuple[str, ...] = (*OPERATORS, CLOSE, *DIGITS)
"""The vocabulary. The id of a token is its index plus one: 1..15."""

PADDING = 0
"""The padding id."""

IDS = {token: number for number, token in enumerate(TOKENS, start=1)}


class ExpressionError(UserError):
    """A malformed expression. The message says in one line what is wrong, and at which token."""


def tokenize(text: str) -> list[str]:
    """Split a written expression into tokens.

    Accepts expressions with and without the parentheses of the official files; no space is needed before a
    closing bracket. Parentheses are dropped after a check that as many close as open.

    Args:
        text: one expression.
    Returns:
        Its tokens. Whether they are a well-formed expression is checked by `parse`.
    Raises:
        ExpressionError: a word is not in the vocabulary, or the numbers of "(" and ")" differ.

    Example:
        >>> tokenize("[MAX 2 9]")
        ['[MAX', '2', '9', ']']
        >>> tokenize("( ( ( [MAX 2 ) 9 ) ] )")
        ['[MAX', '2', '9', ']']
    """
    opened, closed = text.count("("), text.count(")")
    if opened != closed:
        raise ExpressionError(f"unbalanced parentheses: {opened} '(' but {closed} ')'")
    tokens = text.replace("(", " ").replace(")", " ").replace(CLOSE, f" {CLOSE} ").split()
    if not IDS.keys() >= set(tokens):
        position = next(i for i, token in enumerate(tokens) if token not in IDS)
        raise _unknown_token_error(tokens, position)
    return tokens


def decode(ids: Iterable[int]) -> list[str]:
    """Convert ids to tokens; padding is dropped.

    Args:
        ids: integers 0..15: an array, a list, or bytes.
    Returns:
        The tokens.
    Raises:
        ExpressionError: an id is not in 0..15.

    Example:
        >>> decode([4, 13, 14, 5, 0, 0])
        ['[SM', '7', '8', ']']
    """
    numbers = [int(number) for number in ids]
    for position, number in enumerate(numbers):
        if not 0 <= number <= len(TOKENS):
            raise ExpressionError(f"id {number} at position {position} is not in 0..{len(TOKENS)}")
    return [TOKENS[number - 1] for number in numbers if number != PADDING]


class Parsed(NamedTuple):
    """A parsed expression.

    Args:
        value: 0..9.
        tree: the binary tree of the official files, over the positions 0..n-1.
        depth: the number of operators around the most deeply nested digit; 0 for a single digit.
    """

    value: int
    tree: Tree
    depth: int


class _OpenOperator(NamedTuple):
    """An operator whose bracket is still open: position, arguments, and a list with the tree so far."""

    position: int
    arguments: list[int]
    tree: list[Tree]


def parse(tokens: Sequence[str]) -> Parsed:
    """Parse and evaluate an expression in one pass.

    MED is the median; of an even number of arguments it is the mean of the middle two, rounded down. SM is
    the sum modulo 10. The tree is left-branching: an operator takes its arguments and then its bracket one at
    a time.

    Args:
        tokens: n tokens.
    Returns:
        Its value, tree and depth.
    Raises:
        ExpressionError: there is no token or an unknown one, a bracket without an operator, an operator
            without arguments or closing bracket, or a token after the end of the expression.

    Example:
        >>> parse(["[MAX", "2", "9", "]"])
        Parsed(value=9, tree=(((0, 1), 2), 3), depth=1)
    """
    if not tokens:
        raise ExpressionError("the expression is empty")
    stack: list[_OpenOperator] = []
    value, depth = 0, 0
    node: Tree = 0
    for position, token in enumerate(tokens):
        if token not in IDS:
            raise _unknown_token_error(tokens, position)
        if token == CLOSE:
            if not stack:
                raise ExpressionError(f"'{CLOSE}' at position {position} closes no operator")
            start, arguments, partial_tree = stack.pop()
            if not arguments:
                raise ExpressionError(f"operator '{tokens[start]}' at position {start} has no arguments")
            value, node = _OPERATIONS[tokens[start]](arguments), (partial_tree[0], position)
        elif position and not stack:
            raise ExpressionError(f"'{token}' at position {position} follows the end of the expression")
        elif token in _OPERATIONS:
            stack.append(_OpenOperator(position, [], [position]))
            depth = max(depth, len(stack))
            continue
        else:
            value, node = int(token), position
        if stack:
            stack[-1].arguments.append(value)
            stack[-1].tree[0] = (stack[-1].tree[0], node)
    if stack:
        start = stack[-1].position
        raise ExpressionError(f"operator '{tokens[start]}' at position {start} has no closing '{CLOSE}'")
    return Parsed(value, node, depth)


def to_official(tokens: Sequence[str]) -> str:
    """Format an expression as in the official files, with parentheses that show the binary tree.

    Args:
        tokens: n tokens.
    Returns:
        Tokens and parentheses, separated by single spaces.
    Raises:
        ExpressionError: as for `parse`.

    Example:
        >>> to_official(["[MAX", "2", "9", "]"])
        '( ( ( [MAX 2 ) 9 ) ] )'
        >>> to_official(["3"])
        '3'
    """
    return to_brackets(parse(tokens).tree, tokens)


_OPERATIONS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda arguments: int(median(arguments)),
    "[SM": lambda arguments: sum(arguments) % 10,
}


def _unknown_token_error(tokens: Sequence[str], position: int) -> ExpressionError:
    return ExpressionError(
        f"unknown token {tokens[position][:60]!r} at position {position}: expected one of {' '.join(TOKENS)}"
    )
