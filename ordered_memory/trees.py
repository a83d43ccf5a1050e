"""Trees over the tokens of a sentence: the type, and conversions to and from `nltk.Tree`.

A tree is a nested tuple of leaf positions 0, 1, …, n - 1 in order, such as `((0, 1), 2)`; a single leaf is
the tree `0`. Trees are binary unless they come from a treebank. No function here is recursive, so a tree may
be as deep as its sentence is long. (Python's own `==`, `hash`, `repr` and `pickle` are recursive, up to about
1,000 levels: compare the `spans` of deeper trees.)

Functions that take a tree raise an error for strings and `nltk.Tree`: convert them with
`brackets.from_brackets` and `from_nltk`.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ordered_memory.checks import integer_or_none

if TYPE_CHECKING:
    import nltk

Tree = int | tuple["Tree", ...]
"""A leaf position, or a tuple of trees."""
Span = tuple[int, int]
"""The first and the last leaf of a constituent, both inclusive."""
Value = TypeVar("Value")

LONGEST_PATH = 8
"""An error message shows at most this many steps of the path to a bad node."""


# ---- structure


def leaves(tree: Tree) -> list[int]:
    """The leaf positions from left to right.

    Args:
        tree: binary or not.
    Returns:
        One token position, from 0, for each leaf.
    Raises:
        TypeError, ValueError: not a tree, as `fold`.
    Example:
        >>> leaves((0, (1, 2)))
        [0, 1, 2]
    """
    positions: list[int] = []
    fold(tree, positions.append, lambda values: None)
    return positions


def spans(tree: Tree, name: str = "tree") -> list[Span]:
    """The first and last leaf of every constituent of two leaves or more, children before parents.

    Args:
        tree: binary or not; a constituent and its only child have one span.
        name: name of the tree in error messages.
    Returns:
        Pairs (i, j), both inclusive, without duplicates.
    Raises:
        TypeError, ValueError: not a tree, as `fold`.
    Example:
        >>> spans(((0, 1), (2, 3)))
        [(0, 1), (2, 3), (0, 3)]
    """
    unique_spans: dict[Span, None] = {}

    def join(children: list[Span]) -> Span:
        span = (children[0][0], children[-1][1])
        if span[0] < span[1]:
            unique_spans[span] = None
        return span

    fold(tree, lambda leaf: (leaf, leaf), join, name)
    return list(unique_spans)


def depth(tree: Tree) -> int:
    """The number of constituents above the deepest leaf.

    Args:
        tree: binary or not; each constituent of a unary chain counts.
    Returns:
        The depth; 0 for a single leaf.
    Raises:
        TypeError, ValueError: not a tree, as `fold`.
    Example:
        >>> depth(((0, 1), 2)), depth(0)
        (2, 0)
    """
    return fold(tree, lambda leaf: 0, lambda depths: max(depths) + 1)


def min_slots(tree: Tree) -> int:
    """The smallest number of memory slots with which Ordered Memory can build a tree.

    It is the largest number of right branches on the way from the root to a leaf, or 1 if there are none: 1
    for a left-branching tree, n - 1 for a right-branching one of n leaves. In other words, attention to N
    slots gives a tree by Algorithm 2 if and only if `min_slots(tree) <= N`.

    For a tree that is not binary, such as one of a treebank, it is the number for the binary tree that has
    the same constituents and needs the fewest slots: the children of a constituent are joined from the left.

    Args:
        tree: binary or not.
    Returns:
        A number of slots, at least 1.
    Raises:
        TypeError, ValueError: not a tree, as `fold`.
    Example:
        >>> min_slots(((0, 1), 2)), min_slots((0, (1, (2, 3)))), min_slots((0, (1, 2, 3)))
        (1, 3, 2)
    """

    def join(right_branches: list[int]) -> int:
        first, *others = right_branches  # all but the first child are right branches
        return max([first, *(child + 1 for child in others)])

    return max(1, fold(tree, lambda leaf: 0, join))


def fold(
    tree: Tree, leaf: Callable[[int], Value], join: Callable[[list[Value]], Value], name: str = "tree"
) -> Value:
    """Compute a value for a tree bottom-up, children before parents, left before right.

    Args:
        tree: binary or not. Leaves may be integers of any type, NumPy's for instance; `leaf` gets an int.
        leaf: computes the value of a leaf from its position.
        join: computes the value of a constituent from the values of its children.
        name: name of the tree in error messages.
    Returns:
        The value of the whole tree.
    Raises:
        TypeError: a node is neither an integer nor a tuple.
        ValueError: a constituent has no children, or the leaves are not consecutive. The message says where.
    Example:
        >>> fold(((0, 1), 2), lambda position: 1, sum)  # how many leaves
        3
    """
    previous: int | None = None

    def checked_leaf(node: Any, location: Callable[[], str]) -> Value:
        nonlocal previous
        position = _position(node, location)
        if position < 0:
            raise ValueError(f"expected leaf positions from 0, got {location()} = {position}")
        if previous is not None and position != previous + 1:
            raise ValueError(f"expected consecutive leaves, got {location()} = {position} after {previous}")
        previous = position
        return leaf(position)

    return _fold(tree, checked_leaf, join, tuple, name)


def _position(node: Any, location: Callable[[], str]) -> int:
    """A leaf as an int. Booleans are not positions, although they are integers in Python."""
    position = integer_or_none(node)
    if position is not None:
        return position
    node_type = type(node)
    hint = ""
    if isinstance(node, str):
        hint = "; from_brackets reads text"
    elif node_type.__module__.partition(".")[0] == "nltk":
        hint = "; from_nltk converts nltk.Tree"
    elif isinstance(node, list) and not any(isinstance(child, str) for child in node):
        hint = "; JSON turns tuples into lists: save trees as text, by to_brackets"
    raise TypeError(
        f"expected {location()} to be an integer or a tuple, got {node_type.__name__} "
        f"{reprlib.repr(node)}{hint}"
    )


def _fold(
    tree: Any,
    leaf: Callable[[Any, Callable[[], str]], Value],
    join: Callable[[list[Value]], Value],
    inner_type: type,
    name: str,
) -> Value:
    """`fold` with inner nodes of any type. `leaf` also gets a function that describes the leaf's location."""
    open_nodes: list[tuple[int, Iterator[Any], list[Value]]] = []  # id, remaining children, values so far
    open_ids: set[int] = set()

    def location() -> str:
        indices = [f"[{len(values)}]" for _, _, values in open_nodes]
        return name + "".join(indices if len(indices) <= LONGEST_PATH else [*indices[:LONGEST_PATH], "…"])

    def enter(node: Any) -> None:
        if id(node) in open_ids:
            raise ValueError(f"expected a tree, got {location()}, which contains itself")
        open_ids.add(id(node))
        open_nodes.append((id(node), iter(node), []))

    if not isinstance(tree, inner_type):
        return leaf(tree, location)
    enter(tree)
    while True:
        identity, children, values = open_nodes[-1]
        for child in children:
            if isinstance(child, inner_type):
                enter(child)
                break
            values.append(leaf(child, location))
        else:
            open_nodes.pop()
            open_ids.remove(identity)
            if not values:
                raise ValueError(f"expected one child or more, got none: {location()} has no children")
            value = join(values)
            if not open_nodes:
                return value
            open_nodes[-1][2].append(value)


# ---- conversions


def keep_leaves(tree: Tree, kept: Iterable[int]) -> Tree:
    """Restrict a tree to some of its leaves and renumber them, for instance to drop punctuation.

    A constituent without leaves is removed, and one with a single child is replaced by that child.

    Args:
        tree: binary or not.
        kept: positions of the leaves to keep, from 0.
    Returns:
        A tree over the leaves 0, 1, … in the old order.
    Raises:
        TypeError: not a tree, or a position is not an integer (a boolean mask, for instance).
        ValueError: not a tree, no leaf is left, or a position is not a leaf.
    Example:
        >>> keep_leaves(((0, 1), ((2, 3), 4)), [0, 2, 4])
        (0, (1, 2))
    """
    positions = set[int]()
    for leaf_to_keep in kept:
        position = integer_or_none(leaf_to_keep)
        if position is None:
            raise TypeError(f"expected kept to be integers, got {reprlib.repr(leaf_to_keep)}")
        positions.add(position)
    new_positions = {position: new_position for new_position, position in enumerate(sorted(positions))}
    if not new_positions:
        raise ValueError("expected one leaf or more to keep, got none")

    def join(children: list[Tree | None]) -> Tree | None:
        remaining = tuple(child for child in children if child is not None)
        return (remaining[0] if len(remaining) == 1 else remaining) if remaining else None

    tree_leaves: set[int] = set()

    def leaf(position: int) -> Tree | None:
        tree_leaves.add(position)
        return new_positions.get(position)

    result = fold(tree, leaf, join)
    missing = new_positions.keys() - tree_leaves
    if missing or result is None:
        raise ValueError(f"expected kept to be leaves of the tree, got {sorted(missing)}, which are not")
    return result


def to_nltk(tree: Tree, tokens: Sequence[Any], label: str = "") -> nltk.Tree:
    """Convert a tree to an `nltk.Tree`, with the same label on every constituent.

    Args:
        tree: leaves index `tokens`.
        tokens: the words, or any other objects for the leaves.
        label: label of every constituent.
    Returns:
        An nltk.Tree; a one-word sentence becomes a constituent of one leaf.
    Raises:
        TypeError: not a tree.
        ValueError: not a tree, or there is not one token for each leaf.
        ModuleNotFoundError: nltk is not installed.
    Example:
        >>> str(to_nltk(((0, 1), 2), ["a", "b", "c"], "X"))
        '(X (X a b) c)'
    """
    nltk_tree = _import_nltk().Tree
    check_tokens(tree, tokens)
    return fold(
        tree if isinstance(tree, tuple) else (tree,),
        lambda leaf: tokens[leaf],
        lambda children: nltk_tree(label, children),
    )


def from_nltk(tree: nltk.Tree) -> tuple[Tree, list[str]]:
    """Convert an `nltk.Tree` to a tree and its words.

    Args:
        tree: tree whose labels are dropped; a constituent with one child is replaced by that child.
    Returns:
        The tree and its tokens.
    Raises:
        TypeError: not an nltk.Tree, or a leaf is a tuple, such as the word and its tag in a chunk tree.
        ValueError: a constituent has no children, or contains itself.
        ModuleNotFoundError: nltk is not installed.
    Example:
        >>> import nltk
        >>> from_nltk(nltk.Tree.fromstring("(S (NP (D the) (N cat)) (V sat))"))
        (((0, 1), 2), ['the', 'cat', 'sat'])
    """
    nltk_tree = _import_nltk().Tree
    if not isinstance(tree, nltk_tree):
        raise TypeError(f"expected tree to be an nltk.Tree, got {type(tree).__name__} {reprlib.repr(tree)}")
    tokens: list[str] = []

    def leaf(word: Any, location: Callable[[], str]) -> Tree:
        if isinstance(word, tuple):
            raise TypeError(f"expected {location()} to be a word, got {reprlib.repr(word)}: drop tags")
        tokens.append(str(word))
        return len(tokens) - 1

    def join(children: list[Tree]) -> Tree:
        return children[0] if len(children) == 1 else tuple(children)

    return _fold(tree, leaf, join, nltk_tree, "tree"), tokens


def reduce_topmost(subtrees: list[Tree]) -> None:
    """Join the two topmost subtrees of a stack.

    Args:
        subtrees: the stack, at least two subtrees; changed in place.
    """
    right, left = subtrees.pop(), subtrees.pop()
    subtrees.append((left, right))


def check_tokens(tree: Tree, tokens: Sequence[Any], name: str = "tokens") -> None:
    """Check that a tree has one leaf for each token, 0..n - 1.

    Args:
        tree: binary or not.
        tokens: n tokens.
        name: name of the tokens in error messages.
    Raises:
        TypeError: not a tree.
        ValueError: not a tree, or the tree has other leaves.
    """
    positions = leaves(tree)
    if positions != list(range(len(tokens))):
        raise ValueError(
            f"expected a tree with the leaves 0..{len(tokens) - 1} of {len(tokens)} {name}, got the leaves "
            f"{positions[0]}..{positions[-1]}"
        )


def _import_nltk() -> Any:
    try:
        import nltk
    except ModuleNotFoundError:
        raise ModuleNotFoundError("nltk is not installed: pip install nltk", name="nltk") from None
    return nltk
