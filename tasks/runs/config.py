"""The options that every task's training takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tasks.runs.options import check_at_least, check_positive


@dataclass
class TrainingConfig:
    """Options of the loop."""

    run_dir: Path | None = None
    """Directory of the run; the default names task, preset, model and seed."""
    resume: bool = False
    """Continue the run in its directory, to the same numbers as if it had never stopped, or start one."""
    seed: int = 1
    """Of the data, their order, the initial weights and dropout."""
    epochs: int = 50
    """Passes over the training data."""
    max_minutes: float | None = None
    """Stop after so many minutes of training, in the middle of an epoch if need be."""
    batch_size: int = 128
    """Examples in a batch, for each process."""
    evaluation_batch_size: int = 256
    """Examples in a batch when evaluating; fewer where they are long."""
    learning_rate: float = 1e-3
    """Of the optimizer."""
    weight_decay: float = 1.2e-6
    """L2 penalty, added to the gradient."""
    gradient_clip: float = 1.0
    """Largest norm of the gradient."""
    save_every: int = 200
    """Steps between checkpoints within an epoch; there is one at the end of each epoch in any case."""
    accelerator: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train."""
    devices: int = 1
    """Processes, each with a device of its own."""
    strategy: Literal["auto", "ddp"] = "auto"
    """How several processes work together."""
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "64-true"] = "32-true"
    """Numbers: Lightning Fabric's names."""

    def check(self) -> None:
        """Raise a UserError that names the first option out of range."""
        check_at_least(
            1, self, "epochs", "batch_size", "evaluation_batch_size", "save_every", "devices"
        )
        check_positive(self, "learning_rate", "gradient_clip", "max_minutes")
        check_at_least(0, self, "weight_decay", "seed")

    @property
    def directory(self) -> Path:
        """Where the run goes: the same place for the same experiment."""
        raise NotImplementedError


@dataclass
class AdamConfig(TrainingConfig):
    """Adam with a learning rate that falls on a plateau. The defaults are those of the Ordered Memory paper's
    code."""

    adam_betas: tuple[float, float] = (0.0, 0.999)
    """Decay rates of Adam's two averages."""
    adam_epsilon: float = 1e-9
    """Adam's ε."""
    patience: int = 2
    """Epochs without a better validation accuracy before the learning rate falls."""
    learning_rate_decay: float = 0.5
    """What the learning rate is then multiplied by."""

    def check(self) -> None:
        super().check()
        check_positive(self, "learning_rate_decay", "adam_epsilon")
        check_at_least(0, self, "patience")
