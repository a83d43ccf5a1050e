"""Words of a treebank in the spelling of the text that a language model was trained on."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks.language_model.vocabulary import Vocabulary

NUMBER = re.compile(r"[-+]?[\d.,:/\\-]*\d[\d.,:/\\-]*|%", re.ASCII)
"""What the usual Penn Treebank text for language models writes as N: 61, 1\\/2, 3-4, 7:30, and the sign %."""
ANY_NUMBER = "N"


def spell(words: Sequence[str], vocabulary: Vocabulary) -> list[str]:
    """Words as the vocabulary spells them.

    A word that the vocabulary has stays as it is. Others become lower case, and where the vocabulary has N,
    words that are numbers become N, as in Mikolov's Penn Treebank text: words with digits in them, such as
    30-year and 1980s, are no numbers there. The authors' evaluation
    replaces digits within words, so that 30-year and 1.5 are unknown to their model.

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
        sentences: as `spell` returns them, with a word or more in all.
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
    if lower not in vocabulary and ANY_NUMBER in vocabulary and NUMBER.fullmatch(word):
        return ANY_NUMBER
    return lower
