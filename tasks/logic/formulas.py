"""Formulas of propositional logic over six variables, and the seven relations between two of them.

A formula is a variable, `( not F )`, `( F ( and F ) )` or `( F ( or F ) )`. Parentheses are tokens, but the
leaves of its tree are only the words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ordered_memory.trees import Tree
from tasks.runs.errors import UserError

VARIABLES = ("a", "b", "c", "d", "e", "f")
NOT, AND, OR = "not", "and", "or"
OPEN, CLOSE = "(", ")"
TOKENS = (OPEN, CLOSE, *VARIABLES, OR, AND, NOT)
PADDING = 0
IDS = {token: number for number, token in enumerate(TOKENS, start=1)}
_BYTES = {token: bytes([number]) for token, number in IDS.items()}
_OPEN, _CLOSE = _BYTES[OPEN], _BYTES[CLOSE]
PARENTHESES = (IDS[OPEN], IDS[CLOSE])

RELATIONS = ("<", ">", "=", "^", "|", "#", "v")
RELATION_NAMES = {
    "<": "forward entailment",
    ">": "reverse entailment",
    "=": "equivalence",
    "^": "negation",
    "|": "alternation",
    "#": "independence",
    "v": "cover",
}
CONVERSES = [RELATIONS.index({"<": ">", ">": "<"}.get(sign, sign)) for sign in RELATIONS]
"""Index of the relation that holds if the two formulas are exchanged, for each relation."""
DUALS = [RELATIONS.index({"<": ">", ">": "<", "|": "v", "v": "|"}.get(sign, sign)) for sign in RELATIONS]
"""Index of the relation that holds if `and` and `or` are exchanged in both formulas, for each relation."""

WORLDS = 1 << len(VARIABLES)
TAUTOLOGY = (1 << WORLDS) - 1
"""The truth table of a tautology. Bit w of a truth table is the value in world w; bit i of w is variable
i."""


def _table(variable: int) -> int:
    return sum(1 << world for world in range(WORLDS) if world >> variable & 1)


TABLES = {name: _table(number) for number, name in enumerate(VARIABLES)}


class FormulaError(UserError):
    """A malformed formula. The message says what is wrong, and at which token."""


class Formula(NamedTuple):
    """A parsed formula.

    Args:
        table: truth table, one bit for each of the 64 worlds.
        tree: binary, over the words without parentheses.
        operations: number of `and`, `or` and `not`.
        tokens: token ids, one byte each, without redundant parentheses.
    """

    table: int
    tree: Tree
    operations: int
    tokens: bytes


def tokenize(text: str) -> list[str]:
    """Split a formula into tokens; spaces around parentheses are optional.

    Args:
        text: one formula. Whether it is well-formed is checked by `parse`.
    Example:
        >>> tokenize("(a (or b))")
        ['(', 'a', '(', 'or', 'b', ')', ')']
    """
    return text.replace(OPEN, f" {OPEN} ").replace(CLOSE, f" {CLOSE} ").split()


def decode(ids: Iterable[int]) -> list[str]:
    """Convert token ids to tokens.

    Args:
        ids: integers from 1; padding, 0, is dropped.
    """
    return [TOKENS[number - 1] for number in ids if number]


def without_redundant_parentheses(text: str) -> str:
    """Remove parentheses around what is already a formula; the training data have no such parentheses.

    Args:
        text: one formula.
    Returns:
        The remaining tokens, separated by spaces.
    Raises:
        FormulaError: the text is not a formula, with or without such parentheses.
    Example:
        >>> without_redundant_parentheses("((not((c))))")
        '( not c )'
    """
    return " ".join(decode(parse(tokenize(text), allow_redundant=True).tokens))


class _Partial(NamedTuple):
    """`( and F )` or `( or F )`: the right half of a formula, without its left operand."""

    operator: str
    formula: Formula


def parse(tokens: Sequence[str], *, allow_redundant: bool = False) -> Formula:
    """Parse a formula, without recursion.

    Args:
        tokens: words and parentheses.
        allow_redundant: whether a formula may have parentheses around it, `( F )`.
    Returns:
        Its truth table, tree and number of operations.
    Raises:
        FormulaError: a word is not in the vocabulary, the parentheses do not match, or the formula is
            malformed; the message names the token.
    Example:
        >>> formula = parse(tokenize("( a ( or ( not a ) ) )"))
        >>> formula.tree, formula.operations, formula.table == TAUTOLOGY
        ((0, (1, (2, 3))), 2, True)
    """
    open_groups: list[list[str | int | Formula | _Partial]] = [[]]
    position = 0  # among the words
    for number, token in enumerate(tokens, start=1):
        if token == OPEN:
            open_groups.append([])
        elif token == CLOSE:
            group = open_groups.pop()
            if not open_groups:
                raise FormulaError(f"unmatched ) at token {number}")
            is_redundant = allow_redundant and len(group) == 1 and isinstance(group[0], Formula)
            open_groups[-1].append(group[0] if is_redundant else _join(group, number))
        elif token in TABLES:
            open_groups[-1].append(Formula(TABLES[token], position, 0, _BYTES[token]))
            position += 1
        elif token in (NOT, AND, OR):
            # An operator is also a leaf of the tree: remember its position.
            open_groups[-1] += [token, position]
            position += 1
        else:
            raise FormulaError(
                f"unknown word {token[:60]!r} at token {number}: expected one of {' '.join(TOKENS)}"
            )
    if len(open_groups) > 1:
        raise FormulaError(f"{len(open_groups) - 1} unmatched ( at the end")
    if len(open_groups[0]) != 1 or not isinstance(open_groups[0][0], Formula):
        raise FormulaError(
            f"not one formula: {' '.join(tokens)[:60] or 'nothing'}; a formula F is a variable, ( not F ), "
            "( F ( and F ) ) or ( F ( or F ) )"
        )
    return open_groups[0][0]


def _join(group: list[str | int | Formula | _Partial], number: int) -> Formula | _Partial:
    """Combine what stands between two parentheses, of which the second is token `number`."""
    match group:
        case ["not", int(leaf), Formula() as inner]:
            tokens = _OPEN + _BYTES[NOT] + inner.tokens + _CLOSE
            return Formula(TAUTOLOGY ^ inner.table, (leaf, inner.tree), inner.operations + 1, tokens)
        case [("and" | "or") as operator, int(leaf), Formula() as right]:
            tokens = _OPEN + _BYTES[str(operator)] + right.tokens + _CLOSE
            return _Partial(str(operator), right._replace(tree=(leaf, right.tree), tokens=tokens))
        case [Formula() as left, _Partial() as partial]:
            right = partial.formula
            table = left.table & right.table if partial.operator == AND else left.table | right.table
            tokens = _OPEN + left.tokens + right.tokens + _CLOSE
            return Formula(table, (left.tree, right.tree), left.operations + right.operations + 1, tokens)
    raise FormulaError(
        f"the parentheses that end at token {number} contain no formula: expected ( not F ) or "
        "( F ( and F ) )"
    )


def relation(left: int, right: int) -> str:
    """Compute the relation between two formulas from their truth tables.

    The relations are those of Bowman et al. (2015), after MacCartney. Let L and R be the sets of worlds where
    the formulas are true: `=` means L = R, `<` L ⊂ R, `>` L ⊃ R, `^` L is the complement of R, `|` L and R
    are disjoint, `v` their union is everything, `#` none of these. Tautologies and contradictions do not
    occur in the data; their relation to any formula is `#`.

    Args:
        left, right: truth tables.
    Returns:
        One of RELATIONS.
    Example:
        >>> relation(TABLES["a"], TABLES["a"] | TABLES["b"])
        '<'
    """
    both, only_left = bool(left & right), bool(left & ~right)
    only_right, neither = bool(right & ~left), bool(TAUTOLOGY & ~(left | right))
    return _RELATION_OF.get((both, only_left, only_right, neither), "#")


_RELATION_OF = {
    (True, False, False, True): "=",
    (True, False, True, True): "<",
    (True, True, False, True): ">",
    (False, True, True, False): "^",
    (False, True, True, True): "|",
    (True, True, True, False): "v",
}
