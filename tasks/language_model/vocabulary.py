"""The vocabulary of a language model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from torch import Tensor

from tasks.runs.errors import UserError

END = "<eos>"
"""Follows every sentence; also precedes the first word of a text."""
EOS_ID = 0
UNKNOWN = "<unk>"
"""Replaces words that are not in the vocabulary, if the vocabulary has it."""


class Vocabulary:
    """The words of a language model.

    Args:
        words: distinct words, `<eos>` first; the id of a word is its index.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self._ids = {word: i for i, word in enumerate(self.words)}
        assert len(self._ids) == len(self.words), "two words of a vocabulary are the same"
        self.end = self._ids[END]
        assert self.end == EOS_ID

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

    def count_unknown(self, text: Tensor) -> int:
        """Count the words of a text that the model reads as `<unk>`, those that are written so included.

        Args:
            text: word ids, of any shape.
        """
        return int((text == self._ids.get(UNKNOWN, -1)).sum())

    def encode(self, sentence: Sequence[str], where: str) -> list[int]:
        """Convert words to ids.

        Args:
            sentence: words.
            where: file and line, for error messages.
        Returns:
            One id per word; unknown words have the id of `<unk>`.
        Raises:
            UserError: a word is unknown and the vocabulary has no `<unk>`.
        """
        unknown = self._ids.get(UNKNOWN)
        ids = [self._ids.get(word, unknown) for word in sentence]
        for word, i in zip(sentence, ids, strict=True):
            if i is None:
                raise UserError(f"{where}: {word!r} is not in the vocabulary, which has no {UNKNOWN}")
        return ids  # type: ignore[return-value]
