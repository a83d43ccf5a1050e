"""Words and their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tasks.runs.errors import UserError

END = "<eos>"
"""Ends every line of text; also what a text follows."""
EOS_ID = 0
UNKNOWN = "<unk>"
"""Stands for every word that is not in the vocabulary, where the vocabulary has it."""


class Vocabulary:
    """The words of a language model.

    Args:
        words: all different, `<eos>` the first; a word's number is its place.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self._numbers = {word: number for number, word in enumerate(self.words)}
        assert len(self._numbers) == len(self.words), "two words of a vocabulary are the same"
        self.end = self._numbers[END]
        assert self.end == EOS_ID

    @classmethod
    def of(cls, sentences: Iterable[Sequence[str]]) -> Vocabulary:
        """The vocabulary of a text: `<eos>`, then its words in the order in which they first occur.

        Args:
            sentences: lists of words.
        """
        found = dict.fromkeys([END])
        for sentence in sentences:
            found.update(dict.fromkeys(sentence))
        return cls(list(found))

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._numbers

    def encode(self, sentence: Sequence[str], where: str) -> list[int]:
        """The numbers of words.

        Args:
            sentence: words.
            where: where they stand, for errors: a file and a line.
        Returns:
            One number for each; that of `<unk>` for a word that is not in the vocabulary.
        Raises:
            UserError: there is such a word and no `<unk>`.
        """
        unknown = self._numbers.get(UNKNOWN)
        numbers = [self._numbers.get(word, unknown) for word in sentence]
        for word, number in zip(sentence, numbers, strict=True):
            if number is None:
                raise UserError(f"{where}: {word!r} is not in the vocabulary, which has no {UNKNOWN}")
        return numbers  # type: ignore[return-value]
