"""Encoders of sequences that tasks share: their options, Ordered Memory and an LSTM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from onlstm import ONLSTM
from ordered_memory import OrderedMemory
from tasks.runs.config import AdamConfig
from tasks.runs.errors import UserError
from tasks.runs.options import check_at_least, check_fraction


@dataclass
class EncoderConfig(AdamConfig):
    """Sizes and dropout. The defaults are those of the paper's ListOps model."""

    embedding_size: int = 128
    """Features of an embedded token."""
    slot_size: int = 128
    """Features of a memory slot; of whatever another encoder has in its place."""
    num_slots: int = 21
    """Memory slots in training."""
    test_num_slots: int | None = None
    """Memory slots in the final test: deeper nesting needs more. By default as many as in training."""
    score: Literal["normalized", "additive"] = "normalized"
    """Score of the slot attention."""
    cell: Literal["gated", "tree-rnn"] = "gated"
    """What composes two slots."""
    cell_dropout: float = 0.1
    """Inside the cell, before each linear map; inside a transformer's layers."""
    attention_dropout: float = 0.3
    """Inside the slot attention's score, before each linear map."""
    input_dropout: float = 0.1
    """On embedded tokens."""
    output_dropout: float = 0.2
    """On what the encoder makes of a sequence, before each linear map."""
    occupancy_threshold: float = 1e-5
    """Slot occupancies below this fraction count as empty: a larger one is faster and less exact."""
    recompute_every: int | None = None
    """Keep only the state after every so many tokens for the reverse pass: less memory, more time."""
    backend: str = "auto"
    """How the recurrence is computed: a name from ordered_memory.backends, or the fastest that can run."""

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


def build_ordered_memory(config: EncoderConfig) -> OrderedMemory:
    """The layer as configured, its input and output with the batch first.

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
