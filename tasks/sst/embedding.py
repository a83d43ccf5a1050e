"""Word embeddings, frozen or learned, and how a checkpoint describes them.

B is the batch size, T the number of words of the longest phrase in a batch, E the embedding size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ordered_memory.devices import copy_to
from tasks.runs.checkpoints import read_metadata
from tasks.runs.errors import UserError
from tasks.sst.config import SentimentConfig
from tasks.sst.contextual import ContextualEmbedding, escape, undo_escapes
from tasks.sst.vectors import Vectors, draw_vectors, load_vectors

EMBEDDING = "embedding"
"""The key of `describe` in the metadata of a checkpoint."""
SHARED = "shared"
"""The description of the embedding in the checkpoints that come with the project: its vectors are in
`WORDS`."""
WORDS = Path(__file__).with_name("pretrained") / "words.safetensors"


class WordEmbedding(nn.Module):
    """A vector for each word of a vocabulary, frozen or learned. Words are compared in lower case.

    A word is looked up as it is written or else as the treebank spells it (`(` as `-lrb-`). If it is in the
    vocabulary in neither spelling, it gets the vector of the unknown word if vectors are learned, and a
    random vector if they are frozen. It is drawn from the word alone, with the standard deviation of the
    vectors that the embedding was created with, so it is the same in every run.

    Args:
        vocabulary: distinct words in lower case.
        size: E.
        learned: whether the vectors are parameters.
        saved: whether frozen vectors are in the state dict.
    """

    def __init__(
        self, vocabulary: Sequence[str], size: int, *, learned: bool = False, saved: bool = True
    ) -> None:
        super().__init__()
        self.vocabulary = list(vocabulary)
        self._ids = {word: row for row, word in enumerate(self.vocabulary)}
        self.embedding_size, self.learned = size, learned
        self._first_words = len(self.vocabulary)
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
        """
        lengths = [len(words) for words in sentences]
        padded = self.weight.new_zeros(len(sentences), max(lengths), self.embedding_size)
        positions = torch.arange(max(lengths), device=padded.device)
        is_word = positions < copy_to(torch.tensor(lengths), padded.device).unsqueeze(1)
        words = [word.lower() for sentence in sentences for word in sentence]
        return padded.masked_scatter(is_word.unsqueeze(-1), self._vectors(words))

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
        scale = self.weight[: self._first_words].std(0, correction=0)
        return torch.from_numpy(draw_vectors(words, scale.cpu().numpy(), seed=0)).to(self.weight)

    def save_vectors(self) -> None:
        """Include frozen vectors in the state dict from now on, if they are not."""
        if not self.learned:
            self.register_buffer("weight", self.weight)

    def _vectors(self, words: list[str]) -> Tensor:
        """The vectors of n words in lower case, (n, E)."""
        table, count = self.weight, len(self.vocabulary)
        unknown = dict.fromkeys(self.unknown(words), count)
        if unknown and not self.learned:
            table = torch.cat([table, self.random_vectors(list(unknown))])
            unknown = {word: row for row, word in enumerate(unknown, count)}
        rows = [unknown[word] if word in unknown else self._row(word) for word in words]
        return table.index_select(0, copy_to(torch.tensor(rows), table.device))

    def _row(self, word: str) -> int | None:
        """The row of a word in lower case; None if it is unknown."""
        row = self._ids.get(word)
        return self._ids.get(escape(word).lower()) if row is None else row


Embedding = WordEmbedding | ContextualEmbedding


def treebank_vectors(names: Sequence[str], words: Sequence[str]) -> Vectors:
    """Load vectors of words, from each file as in the treebank (`-lrb-`) or else as in plain text (`(`).

    Args:
        names: names of files, or of vectors in an installed package.
        words: in lower case.
    Raises:
        UserError: a file is missing or bad.
    """
    return load_vectors(names, words, seed=0, spellings=[undo_escapes(word) for word in words])


def describe(embedding: Embedding) -> Any:
    """Describe an embedding, so that `restore` can rebuild it from a checkpoint.

    Args:
        embedding: embedding of the model.
    Returns:
        JSON values: vocabulary and embedding size, or the fingerprint of a contextual encoder.
    """
    if isinstance(embedding, ContextualEmbedding):
        return {"fingerprint": embedding.fingerprint}
    return {"vocabulary": embedding.vocabulary, "size": embedding.embedding_size}


def restore(config: SentimentConfig, description: Any) -> Embedding:
    """Rebuild the embedding of a checkpoint; its weights are loaded later.

    Args:
        config: the training configuration.
        description: what `describe` returned, or `SHARED`.
    Raises:
        UserError: the contextual encoder has changed since training, or the description is malformed.
    """
    if config.encoder is not None:
        contextual = ContextualEmbedding(config.encoder, fine_tune=config.fine_tune)
        if description != describe(contextual):
            raise UserError(
                f"--encoder {config.encoder} has changed since training: its weights or vocabulary differ"
            )
        return contextual
    if description == SHARED:
        if config.learns_embeddings:
            raise UserError("--vectors none: the word vectors of this model are not learned but from files")
        return _shared_embedding()
    match description:
        case {"vocabulary": [str(), *_] as words, "size": int(size)} if size > 0:
            return WordEmbedding(words, size, learned=config.learns_embeddings)
    raise UserError("not a checkpoint of a sentiment model: it does not describe its embedding")


def _shared_embedding() -> WordEmbedding:
    """The vectors that come with the project, which its checkpoints share."""
    values = load_file(WORDS)["weight"]
    embedding = WordEmbedding(read_metadata(WORDS)["vocabulary"], values.shape[1], saved=False)
    embedding.weight.copy_(values)
    return embedding
