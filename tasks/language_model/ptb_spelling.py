"""Spell words as in Mikolov's Penn Treebank text for language models: lower case, `N` for numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from tasks.language_model.vocabulary import Vocabulary

NUMERAL = "N"
"""Stands for every number, in a text that has no other numbers."""
_NUMBER = re.compile(r"%|[-+]?(?=\D*\d)[\d.,:/\\-]+", re.ASCII)


def is_number(word: str) -> bool:
    """Whether a word becomes `N`, such as 61, 1\\/2, 3-4, 7:30 and the sign %.

    Other words with digits, such as 30-year and 1980s, are not numbers.

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
    """Spell the words of a treebank as in the vocabulary.

    A word in the vocabulary stays as it is. Other words are converted to lower case and, if the vocabulary
    has N and no number, numbers to N. (The authors' evaluation replaces digits within words, so that 30-year
    and 1.5 are unknown to their model.)

    Args:
        words: words from a treebank.
        vocabulary: vocabulary of the model.
    Returns:
        The same number of words, some of which may still be unknown.
    Example:
        >>> spell(["The", "30-year", "3.5", "%", "Cat"], Vocabulary(["<eos>", "the", "30-year", "N"]))
        ['the', '30-year', 'N', 'N', 'cat']
    """
    return [_spell(word, vocabulary) for word in words]


def _spell(word: str, vocabulary: Vocabulary) -> str:
    if word in vocabulary:
        return word
    return NUMERAL if is_number(word) and _has_numeral(vocabulary) else word.lower()


@lru_cache(maxsize=8)
def _has_numeral(vocabulary: Vocabulary) -> bool:
    """Whether N stands for numbers. If the vocabulary has numbers other than %, N is an ordinary word."""
    return NUMERAL in vocabulary and not any(word != "%" and is_number(word) for word in vocabulary.words)
