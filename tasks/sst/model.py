"""The sentiment model: word vectors, encoder, classification head."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import torch
from nltk.tokenize import NLTKWordTokenizer
from torch import Tensor
from torch.nn.functional import dropout

from ordered_memory.baseline_trees import right_branching
from tasks.classifiers.classification import Prediction
from tasks.classifiers.encoders import MeanOfTokens, build_encoder, encode, summary_size
from tasks.classifiers.head import build_head
from tasks.classifiers.pretrained import Classifier
from tasks.classifiers.task import EMBEDDING
from tasks.runs.errors import UserError
from tasks.runs.machine import to_device
from tasks.runs.options import check_text
from tasks.runs.trained import load_trained
from tasks.sst.config import SentimentConfig
from tasks.sst.dataset import Batch, PhraseData, unlabelled_phrases
from tasks.sst.embedding import Embedding, WordEmbedding, describe, restore

CLASSES = {
    2: ("- negative", "+ positive"),
    5: ("-- very negative", "- negative", "0 neutral", "+ positive", "++ very positive"),
}


class SentimentModel(Classifier):
    """Vectors → dropout → encoder → head.

    The dropout on word vectors uses the same mask for all words of a phrase.

    Args:
        config: encoder, sizes and dropout.
        embedding: of the words.
    Raises:
        UserError: the encoder does not accept an option.
    """

    usage = 'print(model.answer("neither bad nor dull"))'

    def __init__(self, config: SentimentConfig, embedding: Embedding) -> None:
        super().__init__(config)
        self.embedding = embedding
        self.classes = CLASSES[config.classes]
        size = embedding.embedding_size
        self.input_dropout = config.input_dropout
        self.encoder = build_encoder(config, size)
        self.classifier = build_head(config, summary_size(config, size), config.classes)

    @staticmethod
    def read_text(*texts: str) -> PhraseData:
        Classifier.check_texts(texts, 1, "sentence")
        check_text(texts[0], "the sentence")
        words = NLTKWordTokenizer().tokenize(texts[0])
        if not words:
            raise UserError(f"the sentence must have one word or more, got {texts[0]!r}")
        return unlabelled_phrases(words, right_branching(len(words)), [(0, len(words) - 1)])

    @classmethod
    def load(cls, path: Path) -> Self:
        return load_trained(path, SentimentConfig, cls.build, metadata_key=EMBEDDING)[0]

    @classmethod
    def build(cls, config: SentimentConfig, description: Any) -> Self:
        """Build the model of a checkpoint; its weights are loaded later.

        Args:
            config: the training configuration.
            description: of the embedding; see `describe`.
        Raises:
            UserError: see `restore`; or the encoder does not accept an option.
        """
        return cls(config, restore(config, description))

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {EMBEDDING: describe(self.embedding)}

    def weights(self) -> dict[str, Tensor]:
        if not isinstance(self.embedding, WordEmbedding):
            return super().weights()
        # The state dicts of the models that come with the project lack the shared word vectors.
        return super().weights() | {f"{EMBEDDING}.weight": self.embedding.weight}

    def forward(self, batch: Batch, num_slots: int | None = None) -> Prediction:
        """Compute the logits of a batch.

        Args:
            batch: B phrases, with trees if the encoder needs them.
            num_slots: number of slots for this call, if the encoder has any; None for the encoder's own.
        Returns:
            Logits, and the encoder's attention, merges, penalty and rollout, if any.
        """
        embedded, sentences = self._embed(batch.words)
        mask = dropout(torch.ones_like(embedded[:, :1]), self.input_dropout, self.training)
        if sentences is not None and isinstance(self.encoder, MeanOfTokens):
            return Prediction(self.classifier(sentences * mask[:, 0]))
        encoded = encode(self.encoder, embedded * mask, batch.lengths, num_slots=num_slots, trees=batch.trees)
        logits = self.classifier(encoded.summary)
        return Prediction(logits, encoded.attention, encoded.merges, encoded.penalty, encoded.rollout)

    def _embed(self, words: list[list[str]]) -> tuple[Tensor, Tensor | None]:
        """The vectors of the words, and those of whole sentences if the embedding is contextual."""
        if isinstance(self.embedding, WordEmbedding):
            return self.embedding(words), None
        device = next(self.classifier.parameters()).device
        pieces = to_device(self.embedding.tokenize(words), device)
        vectors: tuple[Tensor, Tensor] = self.embedding(pieces)
        return vectors
