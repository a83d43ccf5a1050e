"""Trees in brackets: text such as `( ( a b ) c )`, with or without labels."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence

from ordered_memory.checks import check_flags
from ordered_memory.trees import Tree, check_tokens

WORD = re.compile(r"[^\s()]+", re.ASCII)
"""A word. Only ASCII white space and parentheses end one, so it may contain a no-break space."""
TOKEN = re.compile(rf"[()]|{WORD.pattern}", re.ASCII)
LABEL = re.compile(r"\([^\s()]", re.ASCII)
LABELED = re.compile(r"ww|wc+")
"""The children of a labeled constituent: a label and a word, or a label and constituents."""


def to_brackets(tree: Tree, tokens: Sequence[str]) -> str:
    """Write a tree as text, with one space between parentheses and tokens.

    Args:
        tree: leaves index `tokens`.
        tokens: the words, without parentheses and ASCII white space.
    Returns:
        The text, such as "( ( a b ) c )"; `from_brackets` reads it.
    Raises:
        TypeError: not a tree.
        ValueError: not a tree, there is not one token for each leaf, or a token is not such a word.
    Example:
        >>> to_brackets(((0, 1), 2), ["a", "b", "c"])
        '( ( a b ) c )'
    """
    check_tokens(tree, tokens)
    for position, token in enumerate(tokens):
        if not isinstance(token, str) or not WORD.fullmatch(token):
            raise ValueError(
                f"expected words without parentheses and white space, got tokens[{position}] = "
                f"{reprlib.repr(token)}"
            )
    pieces: list[str] = []
    pending: list[Tree | None] = [tree]
    while pending:
        node = pending.pop()
        if node is None:
            pieces.append(")")
        elif isinstance(node, tuple):
            pieces.append("(")
            pending += [None, *reversed(node)]
        else:
            pieces.append(tokens[node])
    return " ".join(pieces)


def from_brackets(text: str, labels: bool | None = None) -> tuple[Tree, list[str]]:
    """Read a tree in brackets, with or without labels.

    Parentheses need no spaces around them: `((a b) c)` is `( ( a b ) c )`. In `(S (NP the cat) sat)` a word
    after "(" may be a label or the first leaf; only the caller knows which.

    Without `labels`, text in the format of the Penn Treebank is refused. It is recognized by all of this:

    - At least one word follows its "(" without a space. No other space beside a parenthesis matters. Text
      that has one after every "(", as `to_brackets` writes it, is never refused.
    - Every "(" is followed by a label, and then by either one word or constituents only. The outermost "("
      may be without a label, around one constituent.
    - There are two constituents side by side, or the outermost "(" has no label. So `(NP (NN cats))` is not
      recognized, because it could be `(a (b c))`.

    Args:
        text: one tree of parentheses and words.
        labels: True: the first word after each "(" is a label. Labels are dropped, and a constituent with one
            child is replaced by that child. False: every word is a leaf. None: as False, but text in the
            format of the Penn Treebank raises an error.
    Returns:
        The tree and its tokens.
    Raises:
        TypeError: the text is not a string, or `labels` is not True, False or None.
        ValueError: parentheses do not match or are empty, there is more than one tree, or the tree looks
            labeled. The message gives the position, in tokens of the text (with parentheses) from 0.
    Example:
        >>> from_brackets("((a b) c)")
        (((0, 1), 2), ['a', 'b', 'c'])
        >>> from_brackets("(S (NP (DT the) (NN cat)) (VP (VBD sat)))", labels=True)
        (((0, 1), 2), ['the', 'cat', 'sat'])
    """
    if not isinstance(text, str):
        raise TypeError(f"expected text to be a str, got {type(text).__name__} {reprlib.repr(text)}")
    if labels is not None:
        check_flags(labels=labels)
    if labels is None and _looks_labeled(text):
        raise ValueError(
            f"expected a tree without labels, got {reprlib.repr(text)}, which looks labeled: labels=True "
            "drops the labels, labels=False takes every word for a leaf"
        )
    words: list[str] = []
    open_nodes: list[list[Tree]] = [[]]
    opened_at: list[int] = []
    after_opening = False
    for position, token in enumerate(TOKEN.findall(text)):
        is_label = labels is True and after_opening and token not in ("(", ")")
        after_opening = token == "("
        if len(open_nodes) == 1 and open_nodes[0]:
            raise ValueError(f"expected one tree, got {token!r} at token {position}, after its end")
        if token == "(":
            open_nodes.append([])
            opened_at.append(position)
        elif token == ")":
            if len(open_nodes) == 1:
                raise ValueError(
                    f"expected matching parentheses, got ')' at token {position}, which closes nothing"
                )
            if not open_nodes[-1]:
                raise ValueError(f"expected words, got an empty constituent that ends at token {position}")
            node = tuple(open_nodes.pop())
            opened_at.pop()
            open_nodes[-1].append(node[0] if labels and len(node) == 1 else node)
        elif not is_label:
            open_nodes[-1].append(len(words))
            words.append(token)
    if opened_at:
        raise ValueError(
            f"expected matching parentheses, got {len(opened_at)} '(' never closed, the last at token "
            f"{opened_at[-1]}"
        )
    if not open_nodes[0]:
        raise ValueError("expected a tree, got no words")
    return open_nodes[0][0], words


def _looks_labeled(text: str) -> bool:
    """Whether text is in the format of the Penn Treebank, by the rules of `from_brackets`.

    Right-branching trees such as `(a (b c))` do not count: with labels they would have one word.
    """
    if not LABEL.search(text):
        return False
    shapes: list[str] = []  # for each open bracket, a letter for each child: w(ord), c(onstituent)
    branches = False
    for token in TOKEN.findall(text):
        if token == "(":
            shapes.append("")
        elif not shapes:
            return False
        elif token != ")":
            shapes[-1] += "w"
        else:
            shape = shapes.pop()
            outermost = not shapes
            if not LABELED.fullmatch(shape) and not (outermost and shape == "c"):
                return False
            branches |= shape.count("c") > 1 or shape == "c"
            if shapes:
                shapes[-1] += "c"
    return branches and not shapes
