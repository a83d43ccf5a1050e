"""The ListOps model: an encoder, and a linear layer from its summary to the ten values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from tasks.classifiers.classification import Prediction, TokenBatch
from tasks.classifiers.classifier import Classifier
from tasks.classifiers.encoders import build_encoder, encode, summary_size
from tasks.listops.config import ListOpsConfig
from tasks.listops.data import Dataset
from tasks.listops.expressions import DIGITS, PADDING, TOKENS

PRETRAINED = Path(__file__).with_name("pretrained.safetensors")
"""A trained model that comes with the project: `ListOpsModel.from_pretrained(PRETRAINED)`."""


class ListOpsModel(Classifier):
    """Embedding → dropout → encoder → dropout → linear.

    Args:
        config: encoder, sizes and dropout.
    Raises:
        UserError: the encoder does not accept an option.
    """

    usage = 'print(model.answer("[MAX 2 9 [MIN 4 7 ] 0 ]"))'
    config_class = ListOpsConfig
    classes = DIGITS

    def __init__(self, config: ListOpsConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(len(TOKENS) + 1, config.embedding_size, padding_idx=PADDING)
        self.input_dropout = nn.Dropout(config.input_dropout)
        self.encoder = build_encoder(config, config.embedding_size)
        self.output_dropout = nn.Dropout(config.output_dropout)
        self.output = nn.Linear(summary_size(config, config.embedding_size), len(DIGITS))

    @staticmethod
    def read_examples(examples: Sequence[Sequence[str]]) -> Dataset:
        for texts in examples:
            Classifier.check_texts(texts, 1, "expression")
        return Dataset.from_texts((text for [text] in examples), include_trees=True)

    def forward(self, batch: TokenBatch) -> Prediction:
        embedded = self.input_dropout(self.embedding(batch.tokens))
        encoded = encode(self.encoder, embedded, batch.lengths, batch.trees)
        logits = self.output(self.output_dropout(encoded.summary))
        return Prediction(logits, encoded)
