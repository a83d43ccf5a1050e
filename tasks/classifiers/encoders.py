"""Encoders of sequences that tasks share: their options, Ordered Memory and an LSTM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from onlstm import ONLSTM
from ordered_memory import OrderedMemory
from tasks.runs.config import AdamConfig
from tasks.runs.errors import UserError
from tasks.runs.options import check_at_least, check_fraction


@dataclass
class EncoderConfig(AdamConfig):
    """The model: sizes, dropout, and how it is computed."""

    embedding_size: int = 128
    """Embedding size."""
    slot_size: int = 128
    """Slot size (hidden size for other encoders)."""
    num_slots: int = 21
    """Number of memory slots in training."""
    test_num_slots: int | None = None
    """Number of memory slots in the final test, where nesting is deeper; None for as many as in training."""
    score: Literal["normalized", "additive"] = "normalized"
    """Score function of the slot attention."""
    cell: Literal["gated", "tree-rnn"] = "gated"
    """Cell that composes two slots."""
    cell_dropout: float = 0.1
    """Dropout before each linear map of the cell, or in the layers of a transformer."""
    attention_dropout: float = 0.3
    """Dropout before each linear map of the attention score."""
    input_dropout: float = 0.1
    """Dropout on embedded tokens."""
    output_dropout: float = 0.2
    """Dropout before each linear map of the classifier."""
    occupancy_threshold: float = 1e-5
    """A slot whose occupancy is below this fraction counts as empty; larger is faster and less exact."""
    recompute_every: int | None = None
    """Keep the state only once in this many tokens and recompute the rest in the backward pass, which saves
    memory and costs time; None to keep everything."""
    backend: str = "auto"
    """Backend of the recurrence, as in `ordered_memory.backends`; `auto` is the fastest that can run."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "embedding_size", "slot_size", "num_slots", "test_num_slots")
        check_at_least(1, self, "recompute_every")
        check_fraction(
            self,
            "occupancy_threshold",
            "cell_dropout",
            "attention_dropout",
            "input_dropout",
            "output_dropout",
        )


DEMO: dict[str, Any] = {
    "preset": "demo",
    "epochs": 1_000,  # the minutes end it
    "embedding_size": 64,
    "slot_size": 64,
    "learning_rate": 2e-3,
    "patience": 1,
    "adam_betas": (0.9, 0.999),
    "cell_dropout": 0.0,
    "attention_dropout": 0.0,
    "input_dropout": 0.0,
    "output_dropout": 0.0,
}
"""Options of a demonstration: a small model without dropout."""


def build_ordered_memory(config: EncoderConfig) -> OrderedMemory:
    """The layer as configured, with `batch_first`.

    Args:
        config: sizes, dropout and backend.
    Raises:
        UserError: an option that the layer refuses.
    """
    try:
        return OrderedMemory(
            config.embedding_size,
            config.slot_size,
            config.num_slots,
            cell_dropout=config.cell_dropout,
            attention_dropout=config.attention_dropout,
            score=config.score,
            cell=config.cell,
            batch_first=True,
            occupancy_threshold=config.occupancy_threshold,
            recompute_every=config.recompute_every,
            backend=config.backend,
        )
    except ValueError as error:
        raise UserError(str(error)) from None


def last_hidden(lstm: nn.LSTM | ONLSTM, embedded: Tensor, lengths: Tensor) -> Tensor:
    """What an LSTM with the batch first has in its last layer after each sequence's own last token.

    Args:
        lstm: of one direction, or an ON-LSTM.
        embedded: (B, T, E), padded on the right.
        lengths: (B,) int64.
    Returns:
        (B, units).
    """
    packed = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=False)
    _, (hidden, _) = lstm(packed)
    last: Tensor = hidden[-1]
    return last
