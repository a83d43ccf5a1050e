"""Trees over the tokens of a sentence: conversions, and the ways to read them off a model.

A tree is a nested tuple of leaf positions 0, 1, …, n - 1 in order, such as `((0, 1), 2)`; a single leaf is
the tree `0`. Trees are binary unless they come from a treebank. Nothing here recurses, so a tree may
be as deep as its sentence is long.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    import nltk

Tree = int | tuple["Tree", ...]
Span = tuple[int, int]
Value = TypeVar("Value")


# ---- what a tree consists of


def leaves(tree: Tree) -> list[int]:
    """The leaf positions from left to right.

    Args:
        tree: binary or not.
    Returns:
        One position (tokens, from 0) for each leaf.
    Raises:
        ValueError: a constituent without children.
    Example:
        >>> leaves((0, (1, 2)))
        [0, 1, 2]
    """
    found: list[int] = []
    fold(tree, found.append, lambda values: None)
    return found


def spans(tree: Tree) -> list[Span]:
    """The first and last leaf of every constituent of two leaves or more, children before parents.

    Args:
        tree: binary or not; a constituent with the span of its only child counts once.
    Returns:
        Pairs (i, j), both inclusive, without duplicates.
    Raises:
        ValueError: the leaves are not consecutive, or a constituent has no children.
    Example:
        >>> spans(((0, 1), (2, 3)))
        [(0, 1), (2, 3), (0, 3)]
    """
    found: dict[Span, None] = {}

    def join(children: list[Span]) -> Span:
        for left, right in itertools.pairwise(children):
            if right[0] != left[1] + 1:
                raise ValueError(f"leaves must be consecutive, but {right[0]} follows {left[1]}")
        span = (children[0][0], children[-1][1])
        if span[0] < span[1]:
            found[span] = None
        return span

    fold(tree, lambda leaf: (leaf, leaf), join)
    return list(found)


def depth(tree: Tree) -> int:
    """The number of constituents above the deepest leaf.

    Args:
        tree: binary or not; each constituent of a unary chain counts.
    Returns:
        Constituents; 0 for a single leaf.
    Raises:
        ValueError: a constituent without children.
    Example:
        >>> depth(((0, 1), 2)), depth(0)
        (2, 0)
    """
    return fold(tree, lambda leaf: 0, lambda depths: max(depths) + 1)


def fold(
    tree: Any,
    leaf: Callable[[Any], Value],
    join: Callable[[list[Value]], Value],
    is_inner: Callable[[Any], bool] = lambda node: not isinstance(node, int),
) -> Value:
    """A value for the tree from those of its leaves, children before parents, left before right.

    Args:
        tree: binary or not, or nested in another way, if `is_inner` says how.
        leaf: the value of a leaf, such as its position.
        join: the value of a constituent, from those of its children.
        is_inner: whether a node has children, which iterating over it yields.
    Returns:
        The value of the whole tree.
    Raises:
        ValueError: a constituent without children.
    Example:
        >>> fold(((0, 1), 2), lambda position: 1, sum)  # how many leaves
        3
    """
    if not is_inner(tree):
        return leaf(tree)
    frames: list[tuple[Iterator[Any], list[Value]]] = [(iter(tree), [])]
    while True:
        children, values = frames[-1]
        for child in children:
            if is_inner(child):
                frames.append((iter(child), []))
                break
            values.append(leaf(child))
        else:
            if not values:
                raise ValueError("a constituent has no children")
            frames.pop()
            value = join(values)
            if not frames:
                return value
            frames[-1][1].append(value)


# ---- conversions


def keep_leaves(tree: Tree, kept: Iterable[int]) -> Tree:
    """The tree over some of its leaves, numbered anew: punctuation or brackets dropped, for instance.

    Constituents that lose all leaves vanish, and one that is left with a single part becomes that part.

    Args:
        tree: binary or not.
        kept: leaf positions (tokens, from 0).
    Returns:
        A tree with the leaves 0, 1, … in the old order.
    Raises:
        ValueError: no leaf is left, or a position is no leaf.
    Example:
        >>> keep_leaves(((0, 1), ((2, 3), 4)), [0, 2, 4])
        (0, (1, 2))
    """
    numbers = {position: number for number, position in enumerate(sorted(set(kept)))}
    missing = numbers.keys() - set(leaves(tree))
    if missing or not numbers:
        raise ValueError(f"leaves to keep must be some of the tree's, got {sorted(missing) or 'none'}")

    def join(parts: list[Tree | None]) -> Tree | None:
        left = tuple(part for part in parts if part is not None)
        return (left[0] if len(left) == 1 else left) if left else None

    result = fold(tree, numbers.get, join)
    assert result is not None
    return result


def to_brackets(tree: Tree, tokens: Sequence[str]) -> str:
    """The tree as text, one space between any two of parentheses and tokens.

    Args:
        tree: leaves index `tokens`.
        tokens: the words; none may be "(" or ")" if the text is to be read again.
    Returns:
        For example "( ( a b ) c )".
    Raises:
        ValueError: the tree has other leaves than there are tokens.
    Example:
        >>> to_brackets(((0, 1), 2), ["a", "b", "c"])
        '( ( a b ) c )'
    """
    _check_tokens(tree, tokens)
    words: list[str] = []
    pending: list[Tree | None] = [tree]
    while pending:
        node = pending.pop()
        if node is None:
            words.append(")")
        elif isinstance(node, int):
            words.append(tokens[node])
        else:
            words.append("(")
            pending += [None, *reversed(node)]
    return " ".join(words)


def from_brackets(text: str) -> tuple[Tree, list[str]]:
    """Read what `to_brackets` writes.

    Args:
        text: parentheses and tokens, separated by spaces.
    Returns:
        The tree and its tokens.
    Raises:
        ValueError: unbalanced or empty parentheses, or more than one tree; says at which word of the
            text, parentheses counted, from 0.
    Example:
        >>> from_brackets("( ( a b ) c )")
        (((0, 1), 2), ['a', 'b', 'c'])
    """
    tokens: list[str] = []
    open_nodes: list[list[Tree]] = [[]]
    opened_at: list[int] = []
    for place, word in enumerate(text.split()):
        if len(open_nodes) == 1 and open_nodes[0]:
            raise ValueError(f"{word!r} at word {place} follows the end of the tree")
        if word == "(":
            open_nodes.append([])
            opened_at.append(place)
        elif word == ")":
            if len(open_nodes) == 1:
                raise ValueError(f"')' at word {place} closes nothing")
            if not open_nodes[-1]:
                raise ValueError(f"')' at word {place} closes an empty constituent")
            node = tuple(open_nodes.pop())
            opened_at.pop()
            open_nodes[-1].append(node)
        else:
            open_nodes[-1].append(len(tokens))
            tokens.append(word)
    if opened_at:
        raise ValueError(
            f"{len(opened_at)} '(' not closed at the end, the last of them at word {opened_at[-1]}"
        )
    if not open_nodes[0]:
        raise ValueError("no tree: the text is empty")
    return open_nodes[0][0], tokens


def to_nltk(tree: Tree, tokens: Sequence[Any], label: str = "") -> nltk.Tree:
    """The tree as an `nltk.Tree`, every constituent with the same label.

    Args:
        tree: leaves index `tokens`.
        tokens: the words, or whatever the leaves shall be.
        label: of every constituent.
    Returns:
        An nltk.Tree; a one-word sentence becomes a constituent of one leaf.
    Raises:
        ValueError: the tree has other leaves than there are tokens.
        ModuleNotFoundError: nltk is not installed.
    Example:
        >>> str(to_nltk(((0, 1), 2), ["a", "b", "c"], "X"))
        '(X (X a b) c)'
    """
    make = _nltk().Tree
    _check_tokens(tree, tokens)
    return fold(
        (tree,) if isinstance(tree, int) else tree,
        lambda leaf: tokens[leaf],
        lambda children: make(label, children),
    )


def from_nltk(tree: nltk.Tree) -> tuple[Tree, list[str]]:
    """The shape of an `nltk.Tree`, and its words.

    Args:
        tree: labels are dropped; a constituent with one child is replaced by that child.
    Returns:
        The tree and its tokens.
    Raises:
        ValueError: a constituent without children.
        ModuleNotFoundError: nltk is not installed.
    Example:
        >>> import nltk
        >>> from_nltk(nltk.Tree.fromstring("(S (NP (D the) (N cat)) (V sat))"))
        (((0, 1), 2), ['the', 'cat', 'sat'])
    """
    kind = _nltk().Tree
    tokens: list[str] = []

    def leaf(word: Any) -> Tree:
        tokens.append(str(word))
        return len(tokens) - 1

    def join(children: list[Tree]) -> Tree:
        return children[0] if len(children) == 1 else tuple(children)

    return fold(tree, leaf, join, lambda node: isinstance(node, kind)), tokens


def to_chart(tree: Tree, length: int | None = None) -> Tensor:
    """The tree as the chart that `torch_struct.TreeCRF` uses.

    Args:
        tree: over the leaves 0..n - 1.
        length: T ≥ n, the side of the chart; None for n.
    Returns:
        (T, T) bool: entry (i, j) says whether leaves i to j, both inclusive, are a constituent. Single
        leaves are, as they are in TreeCRF's argmax: the diagonal is true for the n leaves and false beyond.
    Raises:
        ValueError: T < n, or other leaves.
    Example:
        >>> to_chart((0, (1, 2))).int().tolist()
        [[1, 0, 1], [0, 1, 1], [0, 0, 1]]
    """
    positions = leaves(tree)
    size = len(positions)
    if positions != list(range(size)):
        raise ValueError(f"the {size} leaves of the tree must be 0..{size - 1} in order")
    length = size if length is None else length
    if length < size:
        raise ValueError(f"length must be at least the {size} leaves of the tree, got {length}")
    chart = torch.zeros(length, length, dtype=torch.bool)
    chart.diagonal()[:size] = True
    found = spans(tree)
    if found:
        chart[tuple(torch.tensor(found).T)] = True
    return chart


def from_chart(chart: Tensor, length: int | None = None) -> Tree:
    """Read a tree off a chart of its constituents.

    Args:
        chart: (T, T) bool or numbers; entry (i, j) is non-zero for the constituents i..j.
            Entries below the diagonal or beyond the length are not looked at.
        length: n in 1..T, the leaves of the tree; None for T.
    Returns:
        The tree, binary if the chart is.
    Raises:
        ValueError: the whole sentence is no constituent, two constituents cross, the chart is not square,
            or the length does not fit it.
    Example:
        >>> from_chart(torch.tensor([[1, 0, 1], [0, 1, 1], [0, 0, 1]]))
        (0, (1, 2))
    """
    if chart.dim() != 2 or chart.shape[0] != chart.shape[1]:
        raise ValueError(f"chart must be (T, T), got shape {tuple(chart.shape)}")
    size = len(chart) if length is None else length
    if not 1 <= size <= len(chart):
        raise ValueError(f"length must lie in 1..{len(chart)}, the side of the chart, got {size}")
    marked = chart[:size, :size].triu(1).nonzero().tolist()
    if size > 1 and [0, size - 1] not in marked:
        raise ValueError(f"the chart has no constituent over all {size} leaves")
    opening = iter(sorted(((i, j) for i, j in marked), key=lambda span: (span[0], -span[1])))
    following = next(opening, None)
    unfinished: list[tuple[Span, list[Tree]]] = []
    tree: Tree = 0
    for leaf in range(size):
        while following is not None and following[0] == leaf:
            if unfinished and following[1] > unfinished[-1][0][1]:
                raise ValueError(f"constituents {unfinished[-1][0]} and {following} cross")
            unfinished.append((following, []))
            following = next(opening, None)
        tree = leaf
        while unfinished:
            span, children = unfinished[-1]
            children.append(tree)
            if span[1] != leaf:
                break
            unfinished.pop()
            tree = tuple(children)
    return tree


# ---- helpers


def reduce_topmost(subtrees: list[Tree]) -> None:
    """Join the two topmost subtrees of a stack."""
    right, left = subtrees.pop(), subtrees.pop()
    subtrees.append((left, right))


def _check_tokens(tree: Tree, tokens: Sequence[Any]) -> None:
    found = leaves(tree)
    if found != list(range(len(tokens))):
        raise ValueError(f"the tree must have the leaves 0..{len(tokens) - 1} of {len(tokens)} tokens")


def _nltk() -> Any:
    try:
        import nltk
    except ModuleNotFoundError:
        raise ModuleNotFoundError("nltk is not installed: pip install nltk", name="nltk") from None
    return nltk
