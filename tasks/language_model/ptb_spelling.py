"""How the Penn Treebank text for language models spells words: lower case, and `N` for every number."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks.language_model.vocabulary import Vocabulary

NUMERAL = "N"
"""Stands for every number."""
_NUMBER = re.compile(r"%|[-+]?(?=\D*\d)[\d.,:/\\-]+", re.ASCII)


def is_number(word: str) -> bool:
    """Whether the text has `N` in place of a word: of 61, 1\\/2, 3-4, 7:30, and the sign %.

    Words with digits in them, such as 30-year and 1980s, are not numbers.

    Args:
        word: without white space.
    Returns:
        True or False.
    Example:
        >>> [is_number(word) for word in ("3.5", "%", "30-year", "...")]
        [True, True, False, False]
    """
    return _NUMBER.fullmatch(word) is not None


def spell(words: Sequence[str], vocabulary: Vocabulary) -> list[str]:
    """Spell the words of a treebank as the vocabulary does.

    A word in the vocabulary stays as it is. Others become lower case, and where the vocabulary has N, numbers
    become N, as in Mikolov's Penn Treebank text. The authors' evaluation replaces digits within words, so
    that 30-year and 1.5 are unknown to their model.

    Args:
        words: from a treebank.
        vocabulary: of the model.
    Returns:
        As many words; those that are still not in the vocabulary are unknown to the model.
    Example:
        >>> spell(["The", "30-year", "3.5", "%", "Cat"], Vocabulary(["<eos>", "the", "30-year", "N"]))
        ['the', '30-year', 'N', 'N', 'cat']
    """
    return [_spell(word, vocabulary) for word in words]


def coverage(sentences: Sequence[Sequence[str]], vocabulary: Vocabulary) -> float:
    """The fraction of words that the vocabulary has.

    Args:
        sentences: as `spell` returns them, with one word or more in all.
        vocabulary: of the model.
    Returns:
        A fraction in [0, 1] of all words, repeated ones counted each time.
    """
    known = [word in vocabulary for words in sentences for word in words]
    return sum(known) / len(known)


def _spell(word: str, vocabulary: Vocabulary) -> str:
    if word in vocabulary:
        return word
    lower = word.lower()
    if lower not in vocabulary and NUMERAL in vocabulary and is_number(word):
        return NUMERAL
    return lower
