"""The logic model: encoder, comparison of the two formulas, classification head."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from tasks.classifiers.classification import Prediction, TokenBatch
from tasks.classifiers.classifier import Classifier
from tasks.classifiers.config import TRANSFORMERS
from tasks.classifiers.encoders import build_encoder, build_head, encode, join_pairs, summary_size
from tasks.classifiers.transformers import PairTransformer
from tasks.logic.config import LogicConfig
from tasks.logic.data import Dataset, for_both
from tasks.logic.formulas import (
    PADDING,
    RELATION_NAMES,
    RELATIONS,
    TOKENS,
    without_redundant_parentheses,
)

PRETRAINED = Path(__file__).with_name("pretrained.safetensors")
"""A trained model that comes with the project: `LogicModel.from_pretrained(PRETRAINED)`."""


class LogicModel(Classifier):
    """Embedding → dropout → encoder → head.

    An encoder of single formulas computes a summary of each, which `join_pairs` joins for the head. A
    transformer encodes the pair to a single vector.

    Args:
        config: encoder, sizes and dropout.
    Raises:
        UserError: the encoder does not accept an option.
    """

    usage = 'print(model.answer("( a ( and b ) )", "( a ( or ( not c ) ) )"))'
    config_class = LogicConfig
    classes = tuple(f"{sign} {RELATION_NAMES[sign]}" for sign in RELATIONS)

    def __init__(self, config: LogicConfig) -> None:
        super().__init__(config)
        self.joint = config.model in TRANSFORMERS
        # The embedding of a transformer has its hidden size: there is no projection in between.
        size = config.slot_size if self.joint else config.embedding_size
        self.embedding = nn.Embedding(len(TOKENS) + 1, size, padding_idx=PADDING)
        self.input_dropout = nn.Dropout(config.input_dropout)
        self.encoder: nn.Module
        if self.joint:
            shared = config.model == "universal-transformer"
            sizes = (size, config.layers, config.heads)
            self.encoder = PairTransformer(*sizes, config.cell_dropout, shared=shared)
            features = size
        else:  # beside positions, whose mean square is 1/2, a transformer would not see embeddings so small
            with torch.no_grad():
                self.embedding.weight[1:].uniform_(-0.1, 0.1)
            self.encoder = build_encoder(config, size)
            features = 4 * summary_size(config, size)
        self.classifier = build_head(config, features, len(RELATIONS))

    @staticmethod
    def read_examples(examples: Sequence[Sequence[str]]) -> Dataset:
        for texts in examples:
            Classifier.check_texts(texts, 2, "formulas")
        pairs = (for_both(without_redundant_parentheses, *texts) for texts in examples)
        return Dataset.from_texts(pairs, include_trees=True)

    def forward(self, batch: TokenBatch) -> Prediction:
        embedded = self.input_dropout(self.embedding(batch.tokens))
        encoded = encode(self.encoder, embedded, batch.lengths, batch.trees)
        summary = encoded.summary if self.joint else join_pairs(encoded.summary)
        return Prediction(self.classifier(summary), encoded)
