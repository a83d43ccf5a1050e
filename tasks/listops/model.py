"""An encoder that reads an expression, and a linear map from its summary to the ten values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from ordered_memory import OrderedMemory
from tasks.checkpoints import load_weights, read_metadata
from tasks.errors import UserError
from tasks.listops.config import ListOpsConfig
from tasks.listops.expressions import PADDING, TOKENS
from tasks.run_directory import config_from_dict

NUM_VALUES = 10

PRETRAINED = Path(__file__).with_name("pretrained.safetensors")
"""A trained model that comes with the project: `model, config = load_model(PRETRAINED)`."""


class Prediction(NamedTuple):
    """What the model says of a batch.

    Args:
        logits: (B, 10).
        attention: p of every token, (B, T, N); None for a model without slots.
    """

    logits: Tensor
    attention: Tensor | None


class ListOpsModel(nn.Module):
    """Embedding → dropout → encoder → dropout → linear.

    Args:
        config: sizes, dropout and which encoder.
    Raises:
        UserError: an option that the encoder refuses.
    """

    def __init__(self, config: ListOpsConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(TOKENS) + 1, config.embedding_size, padding_idx=PADDING)
        self.input_dropout = nn.Dropout(config.input_dropout)
        self.encoder = _build_encoder(config)
        self.output_dropout = nn.Dropout(config.output_dropout)
        self.output = nn.Linear(config.slot_size, NUM_VALUES)

    def forward(self, tokens: Tensor, lengths: Tensor, num_slots: int | None = None) -> Prediction:
        """Read a batch.

        Args:
            tokens: ids, (B, T) int64.
            lengths: (B,) int64.
            num_slots: for this call, where the encoder has slots; None for its own.
        Returns:
            Logits and attention.
        """
        embedded = self.input_dropout(self.embedding(tokens))
        if isinstance(self.encoder, OrderedMemory):
            out = self.encoder(embedded, lengths=lengths, num_slots=num_slots)
            summary, attention = out.state.candidate[:, -1], out.attention
        else:
            packed = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=False)
            _, (hidden, _) = self.encoder(packed)
            summary, attention = hidden[-1], None
        return Prediction(self.output(self.output_dropout(summary)), attention)


def load_model(path: Path, occupancy_threshold: float | None = None) -> tuple[ListOpsModel, ListOpsConfig]:
    """The trained model in a best.safetensors, in evaluation mode, and what it was trained with.

    Args:
        path: of the file; `PRETRAINED` is the one that comes with the project.
        occupancy_threshold: to use in place of the one that it was trained with.

    Raises:
        UserError: no such file, or not a ListOps checkpoint.
    """
    config = config_from_dict(ListOpsConfig, read_metadata(path), path)
    if occupancy_threshold is not None:
        config = replace(config, occupancy_threshold=occupancy_threshold)
    model = ListOpsModel(config)
    load_weights(path, model)
    return model.eval(), config


def _build_encoder(config: ListOpsConfig) -> nn.Module:
    if config.model == "lstm":
        return nn.LSTM(config.embedding_size, config.slot_size, batch_first=True)
    try:
        return OrderedMemory(
            config.embedding_size,
            config.slot_size,
            config.num_slots,
            cell_dropout=config.cell_dropout,
            attention_dropout=config.attention_dropout,
            attention=config.attention,
            cell=config.cell,
            batch_first=True,
            occupancy_threshold=config.occupancy_threshold,
            checkpoint_every=config.recompute_every,
            backend=config.backend,
        )
    except ValueError as error:
        raise UserError(str(error)) from None
