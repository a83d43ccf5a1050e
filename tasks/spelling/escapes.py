"""How the Penn Treebank spells brackets, quotation marks and slashes."""

from __future__ import annotations

from collections.abc import Sequence

_ESCAPES = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "``": '"',
    "''": '"',
}
_BRACKETS = {plain: escaped for escaped, plain in _ESCAPES.items() if plain != '"'}


def undo_escapes(word: str) -> str:
    """Replace the escapes of the Penn Treebank in a word by plain text.

    Args:
        word: word in upper or lower case.
    Example:
        >>> [undo_escapes(word) for word in ("-LRB-", "''", "and\\\\/or", "n't")]
        ['(', '"', 'and/or', "n't"]
    """
    return _ESCAPES.get(word.upper(), word).replace("\\/", "/").replace("\\*", "*")


def escape(word: str) -> str:
    """Spell a word as the Penn Treebank does; quotation marks, which may open or close, stay as they are.

    Args:
        word: a word of plain text.
    Example:
        >>> [escape(word) for word in ("(", "and/or", "*", "n't")]
        ['-LRB-', 'and\\\\/or', '\\\\*', "n't"]
    """
    return _BRACKETS.get(word, word).replace("/", "\\/").replace("*", "\\*")


def escape_parentheses(words: Sequence[str]) -> list[str]:
    """Write words as in the Penn Treebank, where parentheses are brackets of the tree.

    Args:
        words: may contain parentheses.
    Example:
        >>> escape_parentheses(["(", "sic", ":)"])
        ['-LRB-', 'sic', ':-RRB-']
    """
    return [word.replace("(", "-LRB-").replace(")", "-RRB-") for word in words]
