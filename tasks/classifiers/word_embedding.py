"""Word embeddings, frozen or learned.

B is the batch size, T the number of words of the longest sentence in a batch, E the embedding size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import embedding

from ordered_memory.devices import copy_to
from tasks.runs.options import check_sentences
from tasks.spelling.escapes import escape, undo_escapes


class WordEmbedding(nn.Module):
    """A vector for each word of a vocabulary, frozen or learned. Words are compared in lower case.

    A word is looked up as it is written or else as the treebank spells it (`(` as `-lrb-`). If it is in the
    vocabulary in neither spelling, it gets the vector of the unknown word if vectors are learned, and a
    random vector if they are frozen. The random vector depends only on the word, in either spelling, and
    on the standard deviation of the vectors that the embedding was created with, so it is the same in every
    run.

    Args:
        vocabulary: distinct words in lower case.
        size: E.
        learned: whether the vectors are parameters.
        saved: whether frozen vectors are in the state dict.
        num_initial_words: number of words before `extend` added others; None if it added none. Random vectors
            have the scale of these words.
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        size: int,
        *,
        learned: bool = False,
        saved: bool = True,
        num_initial_words: int | None = None,
    ) -> None:
        super().__init__()
        self.vocabulary = list(vocabulary)
        self._ids = {word: row for row, word in enumerate(self.vocabulary)}
        self.embedding_size, self.learned = size, learned
        self.num_initial_words = len(self.vocabulary) if num_initial_words is None else num_initial_words
        self.weight: Tensor
        if learned:
            self.weight = nn.Parameter(torch.randn(len(self.vocabulary) + 1, size))  # the last is unknown
        else:
            self.register_buffer("weight", torch.zeros(len(self.vocabulary), size), persistent=saved)

    def forward(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """Look up the vectors of words.

        Args:
            sentences: B phrases with at most T words.
        Returns:
            (B, T, E), zero in padding.
        Raises:
            TypeError: a phrase is a text instead of a list of words.
        """
        check_sentences(sentences)
        lengths = torch.tensor([len(words) for words in sentences])
        is_word = torch.arange(int(lengths.max())) < lengths.unsqueeze(1)
        table, rows = self._look_up([word.lower() for sentence in sentences for word in sentence])
        padded = torch.zeros(is_word.shape, dtype=torch.int64)
        padded[is_word] = torch.tensor(rows, dtype=torch.int64)
        is_padding = copy_to(~is_word, table.device).unsqueeze(-1)
        return embedding(copy_to(padded, table.device), table).masked_fill(is_padding, 0.0)

    def unknown(self, words: Iterable[str]) -> list[str]:
        """Return the words that are not in the vocabulary, without duplicates, in lower case.

        Args:
            words: words in upper or lower case.
        """
        lower = dict.fromkeys(word.lower() for word in words)
        return [word for word in lower if self._row(word) is None]

    def extend(self, words: Sequence[str], vectors: Tensor) -> None:
        """Add words to the vocabulary of a frozen embedding. The vectors of other words stay the same.

        Args:
            words: n words that are not in the vocabulary.
            vectors: (n, E).
        """
        self._ids |= {word: row for row, word in enumerate(words, len(self.vocabulary))}
        self.vocabulary += words
        self.weight = torch.cat([self.weight, vectors.to(self.weight)])

    def random_vectors(self, words: Sequence[str]) -> Tensor:
        """The vectors of words that are not in the vocabulary of a frozen embedding.

        Args:
            words: n words in lower case.
        Returns:
            (n, E).
        """
        scale = self.weight[: self.num_initial_words].float().std(0, correction=0)  # NumPy has no bfloat16
        return torch.from_numpy(draw_vectors(words, scale.cpu().numpy())).to(self.weight)

    def save_vectors(self) -> None:
        """Include frozen vectors in the state dict from now on, if they are not."""
        if not self.learned:
            self.register_buffer("weight", self.weight)

    def _look_up(self, words: list[str]) -> tuple[Tensor, list[int]]:
        """A table of vectors, and the rows of n words in lower case."""
        table, count = self.weight, len(self.vocabulary)
        unknown = dict.fromkeys(self.unknown(words), count)
        if unknown and not self.learned:
            table = torch.cat([table, self.random_vectors(list(unknown))])
            unknown = {word: row for row, word in enumerate(unknown, count)}
        rows = zip(words, map(self._row, words), strict=True)
        return table, [unknown[word] if row is None else row for word, row in rows]

    def _row(self, word: str) -> int | None:
        """The row of a word in lower case; None if it is unknown."""
        row = self._ids.get(word)
        return self._ids.get(escape(word).lower()) if row is None else row


def draw_vectors(words: Sequence[str], scale: NDArray[np.floating]) -> NDArray[np.float32]:
    """Draw normally distributed vectors; each depends only on its word, in either spelling, and the scale.

    Args:
        words: n words.
        scale: standard deviation of each dimension, (E,).
    Returns:
        (n, E).
    """
    vectors = np.zeros((len(words), len(scale)), dtype=np.float32)
    for row, word in enumerate(words):
        digest = hashlib.sha256(undo_escapes(word).encode(errors="surrogatepass")).digest()
        # Any number in place of 0 would do, but saved models would get other vectors.
        generator = np.random.default_rng([0, int.from_bytes(digest, "little")])
        vectors[row] = scale * generator.standard_normal(len(scale))
    return vectors
