"""The ListOps language: tokens, values, trees and the official text, on flat lists of tokens.

An expression is a digit, or an operator with one or more arguments and a closing bracket:
``[MAX 2 9 [MIN 4 7 ] 0 ]``. The operator and the bracket are tokens of their own. The official files
add parentheses that show the binarised tree; they are not tokens. Positions count tokens from 0.
Nothing here recurses, so nesting may be as deep as memory allows.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ordered_memory.trees import Tree
from tasks.runs.errors import UserError

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
CLOSE = "]"
DIGITS = tuple("0123456789")
TOKENS: tuple[str, ...] = (*OPERATORS, CLOSE, *DIGITS)
"""The vocabulary. The id of a token is its place here plus one: 1..15."""

PADDING = 0
"""The id that is no token."""

IDS = {token: number for number, token in enumerate(TOKENS, start=1)}


class ExpressionError(UserError):
    """Says in one line what is wrong with an expression, and at which token."""


def tokenize(text: str) -> list[str]:
    """Split a written expression into tokens.

    Takes the flat form and the official, parenthesised one; a closing bracket may touch what stands
    before it. Of the parentheses only the number is checked: the tokens determine the tree.

    Args:
        text: one expression.
    Returns:
        Its tokens. They need not make a well-formed expression: see ``check``.
    Raises:
        ExpressionError: a word is not in the vocabulary, or "(" and ")" differ in number.

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
        raise _unknown(tokens, position)
    return tokens


def encode(tokens: Iterable[str]) -> NDArray[np.int64]:
    """Turn tokens into ids.

    Args:
        tokens: n tokens.
    Returns:
        (n,) int64, entries 1..15.
    Raises:
        ExpressionError: a word is not in the vocabulary.

    Example:
        >>> encode(["[SM", "7", "8", "]"]).tolist()
        [4, 13, 14, 5]
    """
    words = list(tokens)
    try:
        return np.array([IDS[word] for word in words], dtype=np.int64)
    except KeyError:
        position = next(i for i, word in enumerate(words) if word not in IDS)
        raise _unknown(words, position) from None


def decode(ids: Iterable[int]) -> list[str]:
    """Turn ids back into tokens, leaving padding out.

    Args:
        ids: integers 0..15: an array, a list, or bytes.
    Returns:
        The tokens.
    Raises:
        ExpressionError: a number outside 0..15.

    Example:
        >>> decode([4, 13, 14, 5, 0, 0])
        ['[SM', '7', '8', ']']
    """
    numbers = [int(number) for number in ids]
    for position, number in enumerate(numbers):
        if not 0 <= number <= len(TOKENS):
            raise ExpressionError(f"id {number} at position {position} is not in 0..{len(TOKENS)}")
    return [TOKENS[number - 1] for number in numbers if number != PADDING]


def check(tokens: Sequence[str]) -> None:
    """Raise unless the tokens are exactly one well-formed expression.

    Args:
        tokens: n tokens.
    Raises:
        ExpressionError: no token at all; an unknown one; a bracket that closes nothing; an operator with
            no arguments or no closing bracket; tokens after the end of the expression.
    """
    evaluate(tokens)


def evaluate(tokens: Sequence[str]) -> int:
    """Compute the value of an expression.

    MED is the median, of an even number of arguments the mean of the middle two, rounded down; SM is the
    sum modulo 10.

    Args:
        tokens: n tokens.
    Returns:
        The value, 0..9.
    Raises:
        ExpressionError: as for ``check``.

    Example:
        >>> evaluate(tokenize("[MAX 2 [MED 4 7 ] 0 ]"))
        5
    """
    if not tokens:
        raise ExpressionError("the expression is empty")
    opened: list[int] = []  # positions of the operators still open, and the arguments each has so far
    arguments: list[list[int]] = []
    value = 0
    for position, token in enumerate(tokens):
        if token not in IDS:
            raise _unknown(tokens, position)
        if token == CLOSE:
            if not opened:
                raise ExpressionError(f"'{CLOSE}' at position {position} closes no operator")
            start, closed = opened.pop(), arguments.pop()
            if not closed:
                raise ExpressionError(f"operator '{tokens[start]}' at position {start} has no arguments")
            value = _OPERATIONS[tokens[start]](closed)
        elif position and not opened:
            raise ExpressionError(f"'{token}' at position {position} follows the end of the expression")
        elif token in _OPERATIONS:
            opened.append(position)
            arguments.append([])
            continue
        else:
            value = int(token)
        if arguments:
            arguments[-1].append(value)
    if opened:
        raise ExpressionError(
            f"operator '{tokens[opened[-1]]}' at position {opened[-1]} has no closing '{CLOSE}'"
        )
    return value


def tree(tokens: Sequence[str]) -> Tree:
    """Build the official binary tree: an operator takes its arguments, then its bracket, one at a time.

    Args:
        tokens: n tokens.
    Returns:
        Nested pairs of the positions 0..n-1.
    Raises:
        ExpressionError: as for ``check``.

    Example:
        >>> tree(["[MAX", "2", "9", "]"])
        (((0, 1), 2), 3)
    """
    check(tokens)
    partial: list[Tree] = []
    node: Tree = 0
    for position, token in enumerate(tokens):
        if token in _OPERATIONS:
            partial.append(position)
            continue
        node = (partial.pop(), position) if token == CLOSE else position
        if partial:
            partial[-1] = (partial[-1], node)
    return node


def to_official(tokens: Sequence[str]) -> str:
    """Write an expression as the official files do, with the binary tree's parentheses.

    Args:
        tokens: n tokens.
    Returns:
        The text: tokens and parentheses with single spaces between them.
    Raises:
        ExpressionError: as for ``check``.

    Example:
        >>> to_official(["[MAX", "2", "9", "]"])
        '( ( ( [MAX 2 ) 9 ) ] )'
        >>> to_official(["3"])
        '3'
    """
    check(tokens)
    pieces: list[str] = []
    opened: list[int] = []  # where in `pieces` the operators still open stand
    for token in tokens:
        if token in _OPERATIONS:
            opened.append(len(pieces))
            pieces.append(token)
            continue
        if token == CLOSE:
            place = opened.pop()
            pieces[place] = "( " + pieces[place]
            token = f"{CLOSE} )"
        if opened:
            pieces[opened[-1]] = "( " + pieces[opened[-1]]
            token += " )"
        pieces.append(token)
    return " ".join(pieces)


def nesting_depth(tokens: Sequence[str]) -> int:
    """Count the operators around the most deeply nested digit.

    Args:
        tokens: n tokens.
    Returns:
        The depth in operators; 0 for a lone digit.
    Raises:
        ExpressionError: as for ``check``.

    Example:
        >>> nesting_depth(tokenize("[MAX 2 9 [MIN 4 7 ] 0 ]"))
        2
    """
    check(tokens)
    depth = deepest = 0
    for token in tokens:
        depth += (token in _OPERATIONS) - (token == CLOSE)
        deepest = max(deepest, depth)
    return deepest


def _median(arguments: list[int]) -> int:
    ordered = sorted(arguments)
    count = len(ordered)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) // 2


def _sum_modulo_10(arguments: list[int]) -> int:
    return sum(arguments) % 10


_OPERATIONS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": _median,
    "[SM": _sum_modulo_10,
}


def _unknown(tokens: Sequence[str], position: int) -> ExpressionError:
    return ExpressionError(f"unknown token {tokens[position]!r} at position {position}")
