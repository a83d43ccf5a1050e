"""From the words of a phrase to the probabilities of its sentiments."""

from __future__ import annotations

import torch
from lightning_fabric.utilities.apply_func import move_data_to_device
from torch import Tensor, nn
from torch.nn.functional import dropout

from tasks.classifiers.classification import Prediction
from tasks.classifiers.encoders import MeanOfTokens, build_encoder, encode, summary_size
from tasks.classifiers.head import build_head
from tasks.sst.config import SentimentConfig
from tasks.sst.dataset import Batch
from tasks.sst.embedding import Embedding, WordEmbedding


class SentimentModel(nn.Module):
    """Vectors → dropout → encoder → head.

    The dropout of the vectors has one mask for all words of a phrase.

    Args:
        config: sizes, dropout and which encoder.
        embedding: of the words.
    Raises:
        UserError: an option that the encoder refuses.
    """

    def __init__(self, config: SentimentConfig, embedding: Embedding) -> None:
        super().__init__()
        self.embedding = embedding
        size = embedding.embedding_size
        self.input_dropout = config.input_dropout
        self.encoder = build_encoder(config, size)
        self.classifier = build_head(config, summary_size(config, size), config.classes)

    def forward(self, batch: Batch, num_slots: int | None = None) -> Prediction:
        """Read a batch.

        Args:
            batch: B phrases; with trees, for a model that is given them.
            num_slots: for this call, where the encoder has slots; None for its own.
        Returns:
            Logits, and what the encoder has of attention, merges and penalty.
        """
        embedded, sentences = self._embed(batch.words)
        mask = dropout(torch.ones_like(embedded[:, :1]), self.input_dropout, self.training)
        if sentences is not None and isinstance(self.encoder, MeanOfTokens):
            return Prediction(self.classifier(sentences * mask[:, 0]))
        encoded = encode(self.encoder, embedded * mask, batch.lengths, num_slots=num_slots, trees=batch.trees)
        return Prediction(
            self.classifier(encoded.summary), encoded.attention, encoded.merges, encoded.penalty
        )

    def _embed(self, words: list[list[str]]) -> tuple[Tensor, Tensor | None]:
        """The vectors of the words, and of whole sentences where the embedding has any."""
        if isinstance(self.embedding, WordEmbedding):
            return self.embedding(words), None
        device = next(self.classifier.parameters()).device
        pieces = move_data_to_device(self.embedding.tokenize(words), device)
        vectors: tuple[Tensor, Tensor] = self.embedding(pieces)
        return vectors
