"""An encoder that reads an expression, and a linear map from its summary to the ten values."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from tasks.classifiers.classification import Prediction
from tasks.classifiers.encoders import build_encoder, encode, summary_size
from tasks.classifiers.pretrained import Classifier
from tasks.listops.config import ListOpsConfig
from tasks.listops.data import Batch, Dataset
from tasks.listops.expressions import DIGITS, PADDING, TOKENS
from tasks.runs.trained import load_trained

NUM_VALUES = 10

PRETRAINED = Path(__file__).with_name("pretrained.safetensors")
"""A trained model that comes with the project: `model, config = load_model(PRETRAINED)`."""


class ListOpsModel(Classifier):
    """Embedding → dropout → encoder → dropout → linear.

    Args:
        config: sizes, dropout and which encoder.
    Raises:
        UserError: an option that the encoder refuses.
    """

    usage = 'print(model.answer("[MAX 2 9 [MIN 4 7 ] 0 ]"))'
    classes = DIGITS

    def __init__(self, config: ListOpsConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(len(TOKENS) + 1, config.embedding_size, padding_idx=PADDING)
        self.input_dropout = nn.Dropout(config.input_dropout)
        self.encoder = build_encoder(config, config.embedding_size)
        self.output_dropout = nn.Dropout(config.output_dropout)
        self.output = nn.Linear(summary_size(config, config.embedding_size), NUM_VALUES)

    @staticmethod
    def read_text(*texts: str) -> Dataset:
        return Dataset.from_texts(texts).with_trees()

    @classmethod
    def load(cls, path: Path) -> ListOpsModel:
        return load_model(path)[0]

    def forward(self, batch: Batch, num_slots: int | None = None) -> Prediction:
        """Read a batch.

        Args:
            batch: B expressions; with trees, for a model that is given them.
            num_slots: for this call, where the encoder has slots; None for its own.
        Returns:
            Logits, and what the encoder has of attention, merges and penalty.
        """
        embedded = self.input_dropout(self.embedding(batch.tokens))
        encoded = encode(self.encoder, embedded, batch.lengths, num_slots=num_slots, trees=batch.trees)
        logits = self.output(self.output_dropout(encoded.summary))
        return Prediction(logits, encoded.attention, encoded.merges, encoded.penalty)


def load_model(path: Path, occupancy_threshold: float | None = None) -> tuple[ListOpsModel, ListOpsConfig]:
    """The trained model in a best.safetensors, in evaluation mode, and what it was trained with.

    Args:
        path: of the file; `PRETRAINED` is the one that comes with the project.
        occupancy_threshold: to use in place of the one that it was trained with.

    Raises:
        UserError: no such file, or not a ListOps checkpoint.
    """
    return load_trained(path, ListOpsConfig, ListOpsModel, occupancy_threshold=occupancy_threshold)
