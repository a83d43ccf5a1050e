"""Text as people write it, in the form of the Penn Treebank text that language models are trained on.

That text has lower-case words between spaces, no punctuation, `N` for every number, and splits words where
the treebank does: "does n't", "john 's", "the airlines ' creditors", "$ N". Text in that form stays as it is.
"""

from __future__ import annotations

import re
from functools import cache

NUMERAL = "N"
"""Stands for every number."""

PUNCTUATION = re.compile(r"""[?!;()\[\]{}"“”…–—]|``|''|--|[,:](?!\d)|(?<!\S)[-.]+(?!\S)""")
"""What is dropped; commas and colons in numbers are not."""
ABBREVIATION = re.compile(r"(?:\w\.)+\w\.|[b-hj-z]\.|(?:co|corp|inc|jr|ltd|sr)\.", re.IGNORECASE)
"""A last word that keeps its period; "a" and "I" are words."""
NUMBER = re.compile(r"[-+]?\.?\d+(?:\\?[.,:/]\d+)*")
CLITIC = re.compile(r"(.+?)(n't|'s|'re|'ve|'ll|'d|'m|')")


def normalize(text: str) -> tuple[str, ...]:
    """The words of a sentence.

    Args:
        text: one sentence.
    Returns:
        Its words; none where there is nothing but punctuation.
    Example:
        >>> normalize("Doesn't John's boss like this, too?")
        ('does', "n't", 'john', "'s", 'boss', 'like', 'this', 'too')
        >>> normalize("the author does n't like $ N")
        ('the', 'author', 'does', "n't", 'like', '$', 'N')
    """
    words = PUNCTUATION.sub(" ", text.replace("’", "'")).split()
    if words and not ABBREVIATION.fullmatch(words[-1]):
        words[-1] = words[-1].rstrip(".")
    return tuple(part for word in words for part in _parts(word))


@cache
def _parts(word: str) -> tuple[str, ...]:
    """The words that one word between spaces is split into."""
    if word == NUMERAL:
        return (NUMERAL,)
    word = word.lower()
    if word == "cannot":
        return ("can", "not")
    if word[:1] == "$" and word != "$":
        return ("$", *_parts(word[1:]))
    if word[-1:] == "%":
        return (*_parts(word[:-1]), NUMERAL)
    if NUMBER.fullmatch(word):
        return (NUMERAL,)
    split = CLITIC.fullmatch(word)
    if split:
        return (*_parts(split[1]), split[2])
    return (word,) if word else ()
