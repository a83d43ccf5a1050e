"""Valid trees: trees over the words of a formula in which every operator has its own operands.

Without parentheses, the words do not determine the operands of an operator; the true tree does.
"""

from __future__ import annotations

from collections.abc import Sequence

from ordered_memory.trees import Span, Tree, fold, spans
from tasks.logic.formulas import AND, OR


def valid_spans(tree: Tree, words: Sequence[str]) -> set[Span]:
    """Compute the constituents that valid trees over a formula may have.

    A tree is valid if it applies every operator to its own operands: `not` to one operand, `and` and `or` to
    two operands, one at a time and in any order: `a or b` is (a (or b)) or ((a or) b). Then each constituent
    of two or more words is a formula of the true tree, or `and` or `or` with one of its operands. In other
    words, no constituent contains an operator and only a part of its operand.

    All valid trees compute the same function, but a tree that computes it need not be valid: ((a or b) or c)
    is not valid for a or (b or c), since its first `or` has another operand.

    Args:
        tree: the true tree, over the words: `F op G` is (F (op G)).
        words: words of the formula, without parentheses.
    Returns:
        First and last word of each constituent.
    Example:
        >>> sorted(valid_spans(((0, 1), (2, 3)), ["not", "a", "and", "b"]))
        [(0, 1), (0, 2), (0, 3), (2, 3)]
    """
    valid = set(spans(tree))

    def join(children: list[Span]) -> Span:
        (first, _), (second, last) = children
        if words[second] in (AND, OR):
            valid.add((first, second))  # the operator with its left operand, not its right one
        return first, last

    fold(tree, lambda word: (word, word), join)
    return valid
