"""The vocabulary of a language model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tasks.formatting.tables import count_text
from tasks.runs.errors import UserError

END = "<eos>"
"""Follows every sentence; also precedes the first word of a text."""
EOS_ID = 0
"""The id of `<eos>` in every vocabulary."""
UNKNOWN = "<unk>"
"""Replaces words that are not in the vocabulary, if the vocabulary has it."""

_WORD = re.compile(r"\S+", re.ASCII)


class Coverage(NamedTuple):
    """How many words of a text a model reads as `<unk>`.

    Args:
        words: number of words, ends of sentences not counted.
        written: number of words that are written `<unk>`.
        missing: number of other words that are not in the vocabulary.
    """

    words: int
    written: int
    missing: int

    @property
    def unknown(self) -> int:
        """Number of words that are read as `<unk>`."""
        return self.written + self.missing

    @property
    def known_fraction(self) -> float:
        """Fraction of the words that are not read as `<unk>`."""
        return (self.words - self.unknown) / self.words

    def __str__(self) -> str:
        if not self.unknown:
            return f"none of {count_text(self.words, 'word')} is read as {UNKNOWN}"
        are = "is" if self.unknown == 1 else "are"
        reasons = [
            f"{count:,} {'is' if count == 1 else 'are'} {reason}"
            for count, reason in ((self.written, "written so"), (self.missing, "not in the vocabulary"))
        ]
        return (
            f"{self.unknown:,} of {count_text(self.words, 'word')} {are} read as {UNKNOWN}: "
            f"{', '.join(reasons)}"
        )


class Vocabulary:
    """The words of a language model.

    Args:
        words: distinct words, `<eos>` first; the id of a word is its index.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self._ids = {word: i for i, word in enumerate(self.words)}
        assert len(self._ids) == len(self.words), "two words of a vocabulary are the same"
        assert self._ids[END] == EOS_ID

    @classmethod
    def from_sentences(cls, sentences: Iterable[Sequence[str]], min_count: int = 1) -> Vocabulary:
        """Make the vocabulary of a text: `<eos>`, then its words in the order of their first occurrence.

        Args:
            sentences: the words of each sentence.
            min_count: words that occur fewer times are left out. If it is above 1, the vocabulary also has
                `<unk>`, as its last word unless it occurs in the text.
        Example:
            >>> Vocabulary.from_sentences([["a", "b"], ["c", "a"]]).words
            ['<eos>', 'a', 'b', 'c']
            >>> Vocabulary.from_sentences([["a", "b"], ["c", "a"]], min_count=2).words
            ['<eos>', 'a', '<unk>']
        """
        counts = Counter(word for sentence in sentences for word in sentence)
        words = [word for word in counts if counts[word] >= min_count or word == UNKNOWN]
        if min_count > 1 and UNKNOWN not in counts:
            words.append(UNKNOWN)
        return cls([END, *words])

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def coverage(self, sentences: Iterable[Sequence[str]]) -> Coverage:
        """Count the words of a text that the model reads as `<unk>`.

        Args:
            sentences: words spelled as in the vocabulary; at least one word in total.
        Example:
            >>> str(Vocabulary(["<eos>", "<unk>", "a"]).coverage([["a", "b"], ["<unk>"]]))
            '2 of 3 words are read as <unk>: 1 is written so, 1 is not in the vocabulary'
        """
        words = [word for sentence in sentences for word in sentence]
        missing = sum(word not in self for word in words if word != UNKNOWN)
        return Coverage(len(words), words.count(UNKNOWN), missing)

    def encode(self, sentence: Sequence[str], where: str) -> list[int]:
        """Convert words to ids.

        Args:
            sentence: words.
            where: file and line, for error messages.
        Returns:
            One id per word; unknown words have the id of `<unk>`.
        Raises:
            UserError: a word is `<eos>`, or unknown and the vocabulary has no `<unk>`.
        """
        check_no_end(sentence, where)
        unknown = self._ids.get(UNKNOWN)
        ids = [self._ids.get(word, unknown) for word in sentence]
        for word, i in zip(sentence, ids, strict=True):
            if i is None:
                raise UserError(f"{where}: {word!r} is not in the vocabulary, which has no {UNKNOWN}")
        return ids  # type: ignore[return-value]


def split_at_spaces(text: str) -> list[str]:
    """Split a text at ASCII white space. A word may contain a no-break space.

    Args:
        text: words as a model reads them.
    """
    return _WORD.findall(text)


def check_no_end(words: Sequence[str], where: str) -> None:
    """Raise a UserError if a word of a sentence is `<eos>`.

    Args:
        words: words of a sentence.
        where: file and line, for the error message.
    """
    if END in words:
        raise UserError(f"{where}: expected no {END}, which is added at the end of each sentence")
