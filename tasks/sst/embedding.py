"""Vectors of words, fixed or learned, and what a checkpoint says of them.

B is the batch, T the words of the longest phrase in it, E the features of a vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tasks.runs.checkpoints import read_metadata
from tasks.runs.errors import UserError
from tasks.sst.config import SentimentConfig
from tasks.sst.contextual import ContextualEmbedding
from tasks.sst.vectors import draw_vectors

SHARED = "shared"
"""What the checkpoints that come with the project say of their embedding: its vectors are in `WORDS`."""
WORDS = Path(__file__).with_name("pretrained") / "words.safetensors"


class WordEmbedding(nn.Module):
    """A vector for each word of a vocabulary, fixed or learned.

    A word that is not in it has a vector drawn from the word itself where vectors are fixed, and the one of
    the unknown word where they are learned. Case makes no difference.

    Args:
        vocabulary: different words in lower case.
        size: E, features of a vector.
        learned: whether the vectors are parameters.
        saved: whether the state dict has the vectors.
    """

    def __init__(
        self, vocabulary: Sequence[str], size: int, *, learned: bool = False, saved: bool = True
    ) -> None:
        super().__init__()
        self.vocabulary = list(vocabulary)
        self._ids = {word: row for row, word in enumerate(self.vocabulary)}
        self.embedding_size, self.learned = size, learned
        self.weight: Tensor
        if learned:
            self.weight = nn.Parameter(torch.randn(len(self.vocabulary) + 1, size))  # the last is unknown
        else:
            self.register_buffer("weight", torch.zeros(len(self.vocabulary), size), persistent=saved)

    def forward(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """Look words up.

        Args:
            sentences: B phrases of T words or fewer.
        Returns:
            (B, T, E), zero in padding.
        """
        lengths = [len(words) for words in sentences]
        padded = self.weight.new_zeros(len(sentences), max(lengths), self.embedding_size)
        places = torch.arange(max(lengths), device=padded.device)
        inside = places < torch.tensor(lengths, device=padded.device).unsqueeze(1)
        words = [word.lower() for sentence in sentences for word in sentence]
        return padded.masked_scatter(inside.unsqueeze(-1), self._vectors(words))

    def unknown(self, words: Iterable[str]) -> list[str]:
        """Those of some words that are not in the vocabulary, each once, in lower case.

        Args:
            words: in any case.
        """
        return list(dict.fromkeys(word.lower() for word in words if word.lower() not in self._ids))

    def extend(self, words: Sequence[str], vectors: Tensor) -> None:
        """Add words to the vocabulary; the vectors must be fixed.

        Args:
            words: n unknown ones.
            vectors: (n, E).
        """
        self._ids |= {word: row for row, word in enumerate(words, len(self.vocabulary))}
        self.vocabulary += words
        self.weight = torch.cat([self.weight, vectors.to(self.weight)])

    def _vectors(self, words: list[str]) -> Tensor:
        """(n, E), of n words in lower case."""
        table, ids = self.weight, self._ids
        unknown = self.unknown(words)
        if unknown and not self.learned:
            drawn = draw_vectors(unknown, table.std(0).cpu().numpy(), seed=0)
            table = torch.cat([table, torch.from_numpy(drawn).to(table)])
            ids = ids | {word: row for row, word in enumerate(unknown, len(self.vocabulary))}
        rows = [ids.get(word, len(self.vocabulary)) for word in words]
        return table.index_select(0, torch.tensor(rows, device=table.device))


Embedding = WordEmbedding | ContextualEmbedding


def describe(embedding: Embedding) -> Any:
    """What a checkpoint must say of an embedding beside options and weights.

    Args:
        embedding: of a model that is saved.
    Returns:
        JSON: the vocabulary and the size of its vectors, or the fingerprint of a contextual encoder.
    """
    if isinstance(embedding, ContextualEmbedding):
        return {"fingerprint": embedding.fingerprint}
    return {"vocabulary": embedding.vocabulary, "size": embedding.embedding_size}


def restore(config: SentimentConfig, description: Any) -> Embedding:
    """The embedding of a checkpoint, its weights to be loaded.

    Args:
        config: of the training.
        description: what `describe` returned, or `SHARED`.
    Raises:
        UserError: the contextual encoder is not the one of the training, or it is no such description.
    """
    if config.encoder is not None:
        contextual = ContextualEmbedding(config.encoder, fine_tune=config.fine_tune)
        if description != describe(contextual):
            raise UserError(
                f"--encoder {config.encoder} is not that of the training: its weights or vocabulary differ"
            )
        return contextual
    if description == SHARED:
        return _shared()
    match description:
        case {"vocabulary": [str(), *_] as words, "size": int(size)} if size > 0:
            return WordEmbedding(words, size, learned=config.learns_embeddings)
    raise UserError("not a checkpoint of a sentiment model: it does not describe its embedding")


def _shared() -> WordEmbedding:
    """The vectors that come with the project, which no checkpoint repeats."""
    values = load_file(WORDS)["weight"]
    embedding = WordEmbedding(read_metadata(WORDS)["vocabulary"], values.shape[1], saved=False)
    embedding.weight.copy_(values)
    return embedding
