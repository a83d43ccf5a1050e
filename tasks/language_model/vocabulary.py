"""Words and their ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tasks.runs.errors import UserError

END = "<eos>"
"""Ends every line; also precedes the first word of a text."""
EOS_ID = 0
UNKNOWN = "<unk>"
"""Stands for every word that is not in the vocabulary, where the vocabulary has it."""


class Vocabulary:
    """The words of a language model.

    Args:
        words: all different, `<eos>` the first; a word's id is its index.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self._ids = {word: i for i, word in enumerate(self.words)}
        assert len(self._ids) == len(self.words), "two words of a vocabulary are the same"
        self.end = self._ids[END]
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
        return word in self._ids

    def encode(self, sentence: Sequence[str], where: str) -> list[int]:
        """The ids of words.

        Args:
            sentence: words.
            where: file and line, for errors.
        Returns:
            One id per word; that of `<unk>` for a word that is not in the vocabulary.
        Raises:
            UserError: there is such a word and no `<unk>`.
        """
        unknown = self._ids.get(UNKNOWN)
        ids = [self._ids.get(word, unknown) for word in sentence]
        for word, i in zip(sentence, ids, strict=True):
            if i is None:
                raise UserError(f"{where}: {word!r} is not in the vocabulary, which has no {UNKNOWN}")
        return ids  # type: ignore[return-value]
