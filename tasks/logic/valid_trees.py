"""Which trees over the words of a formula compute what the formula says.

Without their parentheses the words do not say what an operator applies to: the true tree does.
"""

from __future__ import annotations

from collections.abc import Sequence

from ordered_memory.trees import Span, Tree, fold, spans
from tasks.logic.formulas import AND, OR


def valid_spans(tree: Tree, words: Sequence[str]) -> set[Span]:
    """The constituents that a valid tree over a formula may have.

    A tree is valid if it applies every operator to its own operands: `not` to its one, `and` and `or` to
    their two, one at a time and in either order: `a or b` is (a (or b)) or ((a or) b). Each constituent of
    two words or more is then a formula of the true tree, or `and` or `or` with one of its operands. In other
    words, no constituent has an operator and a part of its operand.

    Valid trees compute the same function, but not only they: ((a or b) or c) is not valid for a or (b or c),
    since its first `or` has another operand.

    Args:
        tree: the true one, over the words: `F op G` is (F (op G)).
        words: of the formula, without parentheses.
    Returns:
        First and last word of each.
    Example:
        >>> sorted(valid_spans(((0, 1), (2, 3)), ["not", "a", "and", "b"]))
        [(0, 1), (0, 2), (0, 3), (2, 3)]
    """
    found = set(spans(tree))

    def join(children: list[Span]) -> Span:
        (first, _), (second, last) = children
        if words[second] in (AND, OR):
            found.add((first, second))  # the operator with its left operand, not its right one
        return first, last

    fold(tree, lambda word: (word, word), join)
    return found
