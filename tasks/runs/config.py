"""Training options that all tasks share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tasks.runs.options import check_at_least, check_below_one, check_positive, check_text

SEED_DIRECTORY = "seed-"
"""With --seeds and --run-dir, the name of the directory of a run, without the seed."""
COMPUTE_OPTIONS = frozenset(
    [
        *("run_dir", "resume", "seeds", "save_every", "log_every", "threads", "accelerator", "devices"),
        *("strategy", "precision", "backend", "recompute_every", "evaluation_batch_size"),
    ]
)
"""Options in which two runs of one experiment may differ: where a run is saved, how it is logged, and which
hardware it uses. (--devices multiplies the batch size, and a language model is validated in as many columns
as --evaluation-batch-size.)"""
LIMITS = frozenset(["epochs", "max_minutes"])
"""Options that say when a run ends."""

Precision = Literal["32-true", "bf16-mixed", "16-mixed", "64-true"]
"""Floating-point precision of a training run."""


@dataclass
class RunConfig:
    """Run directory, logging and hardware."""

    run_dir: Path | None = None
    """Directory of the run. The default name contains task, preset, model and seed."""
    resume: bool = False
    """Resume the run in the run directory, with the same results as an uninterrupted run. If the directory
    holds no run, start one."""
    seed: int = 1
    """Random seed for data, data order, initial weights and dropout."""
    save_every: int = 200
    """Number of training steps between checkpoints; one is also saved after every epoch."""
    log_every: int = 50
    """Number of training steps between TensorBoard entries; one is also written after every epoch."""
    threads: int | None = None
    """CPU threads per process; by default PyTorch chooses (OMP_NUM_THREADS, or one per core, and several
    processes share the cores). Use 1 if other programs keep the cores busy: threads that wait for a core slow
    each other down."""
    accelerator: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on; `auto` is a CUDA GPU if there is one, and else the CPU."""
    devices: int = 1
    """Number of devices, with one process each."""
    strategy: Literal["auto", "ddp"] = "auto"
    """Distributed strategy of Lightning Fabric."""
    precision: Precision = "32-true"
    """Floating-point precision of training and validation, as in Lightning Fabric. The final test and the
    other subcommands compute in float32."""

    def check(self) -> None:
        """Raise a UserError if an option is out of range; the message names the option."""
        check_at_least(1, self, "save_every", "log_every", "threads", "devices")
        check_at_least(0, self, "seed")
        check_text(str(self.run_dir), "--run-dir")  # TensorBoard needs a name in UTF-8

    @property
    def directory(self) -> Path:
        """The run directory; by default the same for the same task, preset, model and seed."""
        raise NotImplementedError


@dataclass
class SeedsConfig(RunConfig):
    """Several seeds."""

    seeds: int = 1
    """Number of runs, with the seeds --seed, --seed + 1, …; their mean and standard deviation are printed and
    written to a JSON file beside the run directories."""
    data_seed: int | None = None
    """Random seed of the data: of generated examples, or of the choice of those to hold out for validation.
    Set it to train several seeds on the same data; None for the seed of the run."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "seeds")
        check_at_least(0, self, "data_seed")

    @property
    def unused(self) -> dict[str, str]:
        """The options, by name, that have no effect with the others, and why: "with --model lstm"."""
        return {} if self.draws_data else {"data_seed": "because no seed decides which data this run has"}

    @property
    def draws_data(self) -> bool:
        """Whether a seed decides which examples the run has."""
        return False

    @property
    def generates_data(self) -> bool:
        """Whether the examples are generated, and none are read from files."""
        return self.draws_data and getattr(self, "data_dir", None) is None

    @property
    def data_options(self) -> tuple[str, ...]:
        """The options, besides the seed, that decide which examples are training data."""
        return ()

    @property
    def seed_of_data(self) -> int:
        """The seed of the data that are drawn."""
        return self.seed if self.data_seed is None else self.data_seed

    @property
    def given_directory(self) -> Path | None:
        """The directory of the run with `seed`, if `run_dir` is given: for several seeds a subdirectory."""
        if self.run_dir is None or self.seeds == 1:
            return self.run_dir
        return self.run_dir / f"{SEED_DIRECTORY}{self.seed}"


@dataclass
class TrainingConfig(SeedsConfig):
    """Training loop."""

    initial_weights: Path | None = None
    """Start from the weights of this trained model instead of random ones: a run's best.safetensors, a
    directory that `export` wrote, or the name of a model on the Hugging Face Hub. The architecture must be
    the same: give its options, such as --model, again. Dropout, data and optimizer may differ."""
    epochs: int = 50
    """Passes over the training data."""
    max_minutes: float | None = None
    """Stop after this many minutes of training, even in the middle of an epoch. With --resume and a higher
    limit, training goes on where it stopped."""
    batch_size: int = 128
    """Training batch size per process."""
    evaluation_batch_size: int = 256
    """Largest batch size in evaluation; batches of long sequences are smaller."""
    learning_rate: float = 1e-3
    """Initial learning rate."""
    weight_decay: float = 1.2e-6
    """Weight decay (L2 penalty)."""
    gradient_clip: float = 1.0
    """Maximum gradient norm; larger gradients are scaled down to it."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "epochs", "batch_size", "evaluation_batch_size")
        check_positive(self, "learning_rate", "gradient_clip", "max_minutes")
        check_at_least(0, self, "weight_decay")

    @property
    def architecture(self) -> dict[str, Any]:
        """The options, by name, that determine which trained weights fit and what the model computes."""
        return {}

    @property
    def short_epochs(self) -> int:
        """The number of epochs at the beginning that have less training data than the others."""
        return 0

    @property
    def may_leave_parameters_unused(self) -> bool:
        """Whether some parameters may have no gradient in some batches."""
        return False


@dataclass
class AdamConfig(TrainingConfig):
    """Adam or RAdam, with a learning rate that is reduced when validation accuracy stops improving."""

    optimizer: Literal["adam", "radam"] = "adam"
    """`radam` (Rectified Adam) takes small steps at first, which is like a warm-up of the learning rate, for
    models that would otherwise not recover from their first steps."""
    adam_betas: tuple[float, float] = (0.0, 0.999)
    """Adam's β1 and β2: decay rates of the running averages of the gradient and of its square."""
    adam_epsilon: float = 1e-9
    """Adam's ε, added to the denominator."""
    patience: int = 2
    """Number of allowed epochs without better validation accuracy before the learning rate is reduced. A
    lower loss alone does not count."""
    learning_rate_decay: float = 0.5
    """Factor by which the learning rate is multiplied when it is reduced."""
    restore_best: bool = False
    """When the learning rate is reduced, go on from the weights of the best epoch."""
    average_decay: float = 0.0
    """Decay of an exponential moving average (EMA) of the weights. If it is not 0, the averaged weights are
    evaluated and saved."""

    def check(self) -> None:
        super().check()
        check_positive(self, "learning_rate_decay", "adam_epsilon")
        check_below_one(self, "learning_rate_decay", "adam_betas", "average_decay")
        check_at_least(0, self, "patience")
