"""The options that every task's training takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tasks.errors import UserError


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
    checkpoint_every: int = 200
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
        for name in ("epochs", "batch_size", "evaluation_batch_size", "checkpoint_every", "devices"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(self, name)}")
        self.check_positive("learning_rate", "gradient_clip")
        if not self.weight_decay >= 0:
            raise UserError(f"--weight-decay must not be negative, got {self.weight_decay}")
        if self.max_minutes is not None and not self.max_minutes > 0:
            raise UserError(f"--max-minutes must be positive, got {self.max_minutes}")
        if self.seed < 0:
            raise UserError(f"--seed must not be negative, got {self.seed}")

    def check_positive(self, *names: str) -> None:
        """Raise a UserError that names the first of these options that is not positive."""
        for name in names:
            if not getattr(self, name) > 0:
                raise UserError(f"--{name.replace('_', '-')} must be positive, got {getattr(self, name)}")

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
        self.check_positive("learning_rate_decay", "adam_epsilon")
        if self.patience < 0:
            raise UserError(f"--patience must not be negative, got {self.patience}")
