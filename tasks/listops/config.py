"""Options of the ListOps task, and the presets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tasks.errors import UserError
from tasks.training_config import TrainingConfig


@dataclass
class ListOpsConfig(TrainingConfig):
    """Train a model to evaluate ListOps expressions. Defaults are the paper's."""

    preset: Literal["demo", "paper"] = "paper"
    """Where the defaults come from: `demo` learns on a laptop CPU in minutes, `paper` is the paper's."""
    model: Literal["ordered-memory", "lstm"] = "ordered-memory"
    """What reads the expression; an LSTM has slot_size units."""
    data_dir: Path | None = None
    """Directory with the official train_d20s.tsv and test_d20s.tsv; by default data are generated."""
    expressions: int = 100_000
    """How many different expressions to generate, a tenth of them for testing."""
    validation_size: int = 5_000
    """How many of the others to hold out for validation."""
    max_train_length: int = 100
    """Training and validation keep expressions of at most so many tokens; testing keeps all."""
    embedding_size: int = 128
    """Features of an embedded token."""
    slot_size: int = 128
    """Features of a memory slot, units of the LSTM."""
    num_slots: int = 21
    """Memory slots."""
    test_num_slots: int | None = None
    """Memory slots in the final test: deeper nesting needs more. By default as many as in training."""
    attention: Literal["normalized", "additive"] = "normalized"
    """Score of the slot attention."""
    cell: Literal["gated", "tree-rnn"] = "gated"
    """What composes two slots."""
    cell_dropout: float = 0.1
    """Inside the cell, before each linear map."""
    attention_dropout: float = 0.3
    """Inside the attention's score, before each linear map."""
    input_dropout: float = 0.1
    """On embedded tokens."""
    output_dropout: float = 0.2
    """On the summary of an expression."""
    occupancy_threshold: float = 1e-5
    """Slot occupancies below this fraction count as empty: a larger one is faster and less exact."""
    recompute_every: int | None = None
    """Keep only the state after every so many tokens for the reverse pass: less memory, more time."""
    backend: str = "auto"
    """How the recurrence is computed: a name from ordered_memory.backends, or the fastest that can run."""

    def check(self) -> None:
        super().check()
        for name in ("expressions", "validation_size", "max_train_length", "embedding_size"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(self, name)}")
        if self.test_num_slots is not None and self.test_num_slots < 1:
            raise UserError(f"--test-num-slots must be at least 1, got {self.test_num_slots}")
        for name in ("input_dropout", "output_dropout"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"--{name.replace('_', '-')} must lie in [0, 1], got {getattr(self, name)}")

    @property
    def directory(self) -> Path:
        """Where the run goes: the same place for the same experiment."""
        return self.run_dir or Path("runs", "listops", f"{self.preset}-{self.model}-{self.seed}")


PRESETS: dict[str, ListOpsConfig] = {
    "paper": ListOpsConfig(),
    "demo": ListOpsConfig(
        preset="demo",
        epochs=1_000,  # the minutes end it
        max_minutes=5,
        expressions=100_000,
        validation_size=1_000,
        max_train_length=20,
        embedding_size=64,
        slot_size=64,
        num_slots=6,
        test_num_slots=21,
        batch_size=64,
        learning_rate=2e-3,
        patience=1,
        adam_betas=(0.9, 0.999),
        cell_dropout=0.0,
        attention_dropout=0.0,
        input_dropout=0.0,
        output_dropout=0.0,
    ),
}
