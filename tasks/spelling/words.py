"""Split natural text into the words of the Penn Treebank."""

from __future__ import annotations

import re
from collections.abc import Container
from functools import lru_cache
from itertools import cycle

ABBREVIATION = re.compile(r"(?:\w\.)+\w\.|[b-hj-z]\.|(?:co|corp|inc|jr|ltd|sr)\.", re.IGNORECASE)
"""Abbreviations, and initials: "a" and "I" are words."""
QUOTATION_MARK = re.compile(r"""(["“”]|``|'')""")
QUOTES = {"“": "``", "”": "''", "``": "``", "''": "''"}
"""The treebank's quotation marks; straight ones open and close in turn."""
_ABBREVIATION = re.compile(
    rf"[\[({{<]*(?:{ABBREVIATION.pattern}|(?:al|bros|dr|etc|mr|mrs|ms|prof|st|vs)\.|no\.(?= \d))[])}}>]* ",
    re.IGNORECASE,
)
"""A word, with the space after it, that keeps its period."""
OPENING_QUOTE = re.compile(
    r"'(?=\w)(?!(?:s|d|m|re|ve|ll|em|till?|tis|twas|n'?|neath|ere|nother|kay|cause|cuz|round|bout|\d\ds?)(?![\w'/,-]))",
    re.IGNORECASE,
)
"""A single quotation mark at the beginning of a word: no contraction, no year."""
_BRACKETS_AND_OPENING_QUOTE = re.compile(rf"([\[({{<]*){OPENING_QUOTE.pattern}", re.IGNORECASE)
_INNER_AMPERSAND = re.compile(r"(?<=\w)&(?=\w)")
_HIDDEN_AMPERSAND = "\ue000"
_PLAIN = str.maketrans({"‘": "'", "’": "'", "…": " ... ", "—": " -- ", "–": " -- "})


def split_as_treebank(text: str, known: Container[str] = ()) -> list[str]:
    """Split natural text into words and punctuation by the conventions of the Penn Treebank.

    Every period at the end of a sentence is split off; those of abbreviations such as "Mr." are kept.

    Args:
        text: one or more sentences.
        known: words that stay whole, such as `<unk>`.
    Returns:
        The words: typographic apostrophes and dashes as in the treebank, quotation marks as `` and '', single
        ones as ` and '.
    Example:
        >>> split_as_treebank("It isn’t good… Mr. Bean saw it.")
        ['It', 'is', "n't", 'good', '...', 'Mr.', 'Bean', 'saw', 'it', '.']
    """
    pieces = text.split()
    straight_quotes = cycle(["``", "''"])
    words: list[str] = []
    for number, piece in enumerate(pieces, start=1):
        if piece in known:
            words.append(piece)
            continue
        # NLTK would take a closing quotation mark that stands alone for an opening one.
        for segment in filter(None, QUOTATION_MARK.split(piece)):
            plain = segment.translate(_PLAIN)
            if QUOTATION_MARK.fullmatch(segment):
                words.append(QUOTES.get(segment) or next(straight_quotes))
                continue
            if (opening := _BRACKETS_AND_OPENING_QUOTE.match(plain)) is not None:
                words += [*opening[1], "`"]
                plain = plain[opening.end() :]
            if number < len(pieces) and _ABBREVIATION.match(f"{plain} {pieces[number]}"):
                words += _tokenize(f"{plain} x")[:-1]  # NLTK splits off a period at the end only
            else:
                words += _tokenize(plain)
    return words


@lru_cache(maxsize=1 << 16)
def _tokenize(text: str) -> tuple[str, ...]:
    """Split as NLTK does, but not at an ampersand within a word, such as R&D."""
    from nltk.tokenize import TreebankWordTokenizer  # here, as most commands read no natural text

    words = TreebankWordTokenizer().tokenize(_INNER_AMPERSAND.sub(_HIDDEN_AMPERSAND, text))
    return tuple(word.replace(_HIDDEN_AMPERSAND, "&") for word in words)
