"""Normalize text as in Mikolov's Penn Treebank text, on which language models are trained.

That text has lower-case words, no punctuation, `N` for every number, and words split as in the treebank:
"does n't", "john 's", "the airlines ' creditors", "$ N". Text in that form is not changed. For a model of
another text, with capital letters or punctuation, sentences must not be normalized: see `is_normalized`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tasks.language_model.ptb_spelling import NUMERAL, is_number
from tasks.language_model.vocabulary import Vocabulary
from tasks.spelling.words import ABBREVIATION, OPENING_QUOTE

PUNCTUATION = re.compile(r"""[?!;()\[\]{}"“”…–—]|``|''|--|\.{2,}|[,:](?!\d)""")
"""Removed; commas and colons in numbers are kept."""
_ABBREVIATION = re.compile(
    rf"{ABBREVIATION.pattern}|(?:ala|ariz|ark|calif|colo|conn|fla|ga|ind|kan|ky|mich|minn|neb|nev|okla|pa|tenn|tex"
    r"|va|vt|wis|wyo)\.",
    re.IGNORECASE,
)
"""If the last word of a sentence matches, it keeps its period: states, too."""
_PUNCTUATION_IN_QUOTES = re.compile(r"(?<=\w)([,;:!?]+)'(?!\w)")
"""Before a closing quotation mark, which is to stand next to its word."""
_APOSTROPHES = str.maketrans("‘’", "''")
CLITICS = ("n't", "'s", "'re", "'ve", "'ll", "'d", "'m", "'")
"""Split off the end of a word."""


def normalize(text: str) -> tuple[str, ...]:
    """Split a sentence into words.

    Args:
        text: one sentence.
    Returns:
        Its words; none if it is only punctuation.
    Example:
        >>> normalize("Doesn't John's boss like this, too?")
        ('does', "n't", 'john', "'s", 'boss', 'like', 'this', 'too')
        >>> normalize("the author does n't like $ N")
        ('the', 'author', 'does', "n't", 'like', '$', 'N')
    """
    text = _PUNCTUATION_IN_QUOTES.sub(r"'\1", text.translate(_APOSTROPHES))
    words = _without_single_quotes(PUNCTUATION.sub(" ", text).split())
    words = [word for word in words if word.strip("-.")]  # only now: what is left of ":-)"
    if words and not _ABBREVIATION.fullmatch(words[-1]):
        words[-1] = words[-1].rstrip(".")
    return tuple(part for word in words for part in _split_word(word))


def is_normalized(vocabulary: Vocabulary) -> bool:
    """Whether normalization changes no word of a vocabulary, so that its text has most likely this form.

    Args:
        vocabulary: vocabulary of a model.
    Example:
        >>> words = ("the", "N", "mr.", "The", ".", "don't", "3", "。")
        >>> [is_normalized(Vocabulary(["<eos>", word])) for word in words]
        [True, True, True, False, False, False, False, False]
    """
    # A word follows, since the last one of a sentence loses its period.
    return all(
        normalize(f"{word} x") == (word, "x") and (word.isascii() or any(map(str.isalnum, word)))
        for word in vocabulary.words
    )


def _without_single_quotes(words: list[str]) -> list[str]:
    """Remove single quotation marks: an opening one, and the next one that ends a word, if there is one."""
    start = 0
    for first, word in enumerate(words):
        if first < start or not OPENING_QUOTE.match(word):
            continue
        ends = (i for i in range(first, len(words)) if re.search(r"[^']'\.*$", words[i]))
        last = next(ends, None)
        if last is not None:
            words[first] = words[first][1:]
            words[last] = words[last].rstrip(".")[:-1]
            start = last + 1
    return words


@lru_cache(maxsize=1 << 16)
def _split_word(word: str) -> tuple[str, ...]:
    """Split a word as in the treebank."""
    if word == NUMERAL:
        return (NUMERAL,)
    word = word.lower()
    first_parts: list[str] = []
    last_parts: list[str] = []  # in reverse order
    while word:
        clitic = next((end for end in CLITICS if word.endswith(end) and word != end), None)
        if word == "cannot":
            first_parts += ["can", "not"]
            word = ""
        elif word.startswith("$") and word != "$":
            first_parts.append("$")
            word = word[1:]
        elif word.endswith("%"):
            last_parts.append(NUMERAL)
            word = word[:-1]
        elif is_number(word):
            first_parts.append(NUMERAL)
            word = ""
        elif clitic is not None:
            last_parts.append(clitic)
            word = word.removesuffix(clitic)
        else:
            first_parts.append(word)
            word = ""
    return (*first_parts, *reversed(last_parts))
