"""The options that every task's training takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tasks.runs.options import check_at_least, check_below_one, check_positive, check_text

COMPUTATION = frozenset(
    [
        *("run_dir", "resume", "seeds", "save_every", "log_every", "threads", "accelerator", "devices"),
        *("strategy", "precision", "backend", "recompute_every", "evaluation_batch_size"),
    ]
)
"""Options that say where and how a run is computed; the others set it apart."""


@dataclass
class RunConfig:
    """Where a run goes, and what it computes with."""

    run_dir: Path | None = None
    """Directory of the run; the default names task, preset, model and seed."""
    resume: bool = False
    """Continue the run in this directory with the results of an uninterrupted one, or start a new one."""
    seed: int = 1
    """Seed of the data, their order, the initial weights and dropout."""
    save_every: int = 200
    """Steps between checkpoints within an epoch; every epoch ends with a checkpoint."""
    log_every: int = 50
    """Steps between points of TensorBoard's curves within an epoch."""
    threads: int | None = None
    """CPU threads of each process; by default PyTorch chooses (OMP_NUM_THREADS, or one per core). Use 1 where
    other programs keep the cores busy: threads that wait for a core slow each other down."""
    accelerator: Literal["auto", "cpu", "cuda"] = "auto"
    """Kind of device to train on."""
    devices: int = 1
    """Number of processes, each with its own device."""
    strategy: Literal["auto", "ddp"] = "auto"
    """How several processes work together: a strategy of Lightning Fabric."""
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "64-true"] = "32-true"
    """Floating-point precision, as Lightning Fabric names it."""

    def check(self) -> None:
        """Raise a UserError that names the first option out of range."""
        check_at_least(1, self, "save_every", "log_every", "threads", "devices")
        check_at_least(0, self, "seed")
        check_text(str(self.run_dir), "--run-dir")  # TensorBoard writes to no other names

    @property
    def directory(self) -> Path:
        """Where the run goes: the same place for the same experiment."""
        raise NotImplementedError


@dataclass
class TrainingConfig(RunConfig):
    """The training loop."""

    epochs: int = 50
    """Passes over the training data."""
    max_minutes: float | None = None
    """Stop after this many minutes of training, in the middle of an epoch if necessary."""
    batch_size: int = 128
    """Examples per batch and process."""
    evaluation_batch_size: int = 256
    """Examples per batch in evaluation; fewer where they are long."""
    learning_rate: float = 1e-3
    """Initial learning rate."""
    weight_decay: float = 1.2e-6
    """L2 penalty, added to the gradient."""
    gradient_clip: float = 1.0
    """Largest norm of the gradient; a larger one is scaled down to it."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "epochs", "batch_size", "evaluation_batch_size")
        check_positive(self, "learning_rate", "gradient_clip", "max_minutes")
        check_at_least(0, self, "weight_decay")


@dataclass
class AdamConfig(TrainingConfig):
    """Adam, with a learning rate that falls when validation accuracy no longer rises."""

    adam_betas: tuple[float, float] = (0.0, 0.999)
    """Decay rates of Adam's averages of the gradient and of its square, both in [0, 1)."""
    adam_epsilon: float = 1e-9
    """Added to the denominator of Adam's step."""
    patience: int = 2
    """Epochs without a better validation accuracy after which the learning rate falls."""
    learning_rate_decay: float = 0.5
    """Factor by which the learning rate falls."""
    average_decay: float = 0.0
    """Decay of an exponential moving average of the weights, which is then what is validated and saved as the
    best; 0 for the weights themselves."""

    def check(self) -> None:
        super().check()
        check_positive(self, "learning_rate_decay", "adam_epsilon")
        check_below_one(self, "learning_rate_decay", "adam_betas", "average_decay")
        check_at_least(0, self, "patience")
