"""Options of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from ordered_memory.backends import BACKENDS
from tasks.runs.errors import UserError
from tasks.runs.options import check_at_least, check_fraction

ConfigName = Literal["listops", "logic", "sst", "long"]


@dataclass
class MeasurementConfig:
    """What all verbs take."""

    repeats: int = 5
    """Times each contender runs each batch, after one run that does not count; medians are reported."""
    threads: int | None = None
    """Threads of PyTorch on the CPU; by default as many as it takes by itself."""
    device: str = "cpu"
    """Where to run: cpu, cuda, cuda:1, …"""
    seed: int = 1
    """Of the batches, the weights and dropout."""
    flush_denormal: bool = False
    """Treat denormal numbers as zero: gradients vanishing over 1,000 tokens become such, and slow a CPU."""
    quick: bool = False
    """Tiny sizes and one repeat: shows that everything runs, and says nothing about speed."""

    def check(self) -> None:
        """Raise a UserError that names the first option out of range."""
        check_at_least(1, self, "repeats", "threads")
        check_at_least(0, self, "seed")
        try:
            torch.empty(1, device=self.device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"--device {self.device!r} cannot be used here: {reason}") from None

    def apply(self) -> None:
        """Check the options and set up this process."""
        self.check()
        if not torch.set_flush_denormal(self.flush_denormal) and self.flush_denormal:
            raise UserError("--flush-denormal: this processor cannot")
        if self.threads is not None:
            torch.set_num_threads(self.threads)


@dataclass
class MemoryConfig(MeasurementConfig):
    """What the verbs that measure memory take besides."""

    memory: bool = True
    """Also measure the peak memory of a training step, each in a process of its own."""


@dataclass
class CompareConfig(MemoryConfig):
    """Time a training step and a forward pass of every backend beside nn.LSTM, the authors' code and
    the matrix products that no implementation can do without."""

    config: tuple[ConfigName, ...] = ("listops",)
    """Sizes and batches: `listops`, `logic` and `sst` as in the paper, `long` has about 1,000 tokens."""
    released_code: Path | None = None
    """A checkout of the authors' Ordered-Memory repository: time its module on the same batches."""
    checkpoint: Path | None = None
    """A tasks.listops best.safetensors: its weights, sizes, score and cell instead of random weights."""
    score: Literal["normalized", "additive"] = "normalized"
    """Score of the slot attention; a checkpoint brings its own."""
    num_slots: int | None = None
    """Memory slots instead of those of the configuration or the checkpoint."""
    occupancy_threshold: float | None = None
    """Slot occupancies below this fraction count as empty, instead of 1e-5 or the checkpoint's own."""
    batches: int = 4
    """Batches of each configuration, spread evenly over the lengths that an epoch of training has."""
    max_length: int = 100
    """The most tokens of a `listops` expression."""
    json: Path | None = None
    """Also write the results to this file: a list with one object for each configuration."""

    def check(self) -> None:
        super().check()
        if not self.config:
            raise UserError("--config must name at least one configuration")
        check_at_least(1, self, "num_slots", "batches", "max_length")
        check_fraction(self, "occupancy_threshold")
        strangers = [name for name in self.config if name not in ("listops", "long")]
        if self.checkpoint is not None and strangers:
            raise UserError(f"--checkpoint is a ListOps model: it cannot read --config {strangers[0]}")
        check_output(self.json, "--json")


@dataclass
class ScalingConfig(MemoryConfig):
    """Time and memory as T, B, N and D grow one at a time, with and without checkpoints in time."""

    axes: tuple[Literal["T", "B", "N", "D"], ...] = ("T", "B", "N", "D")
    """What grows: tokens, sequences, slots, slot size."""
    backend: str = "auto"
    """How the recurrence is computed."""
    out: Path = Path("runs/benchmark")
    """Directory for scaling.csv and a plot for each of the four."""
    nesting: int = 5
    """Depth of the brackets in the ListOps-style expressions, whatever their length."""

    def check(self) -> None:
        super().check()
        if self.backend not in ("auto", *BACKENDS):
            raise UserError(f"--backend must be one of auto, {', '.join(BACKENDS)}, got {self.backend!r}")
        if not self.axes:
            raise UserError("--axes must name at least one of T, B, N, D")
        check_at_least(1, self, "nesting")
        if self.out.exists() and not self.out.is_dir():
            raise UserError(f"--out {self.out}: is not a directory")


def check_output(path: Path | None, option: str) -> None:
    """Check that a file can be written before anything is measured.

    Args:
        path: of the file; None passes.
        option: that names the file, for the error.
    Raises:
        UserError: `path` is a directory, or its directory does not exist.
    """
    if path is not None and not path.parent.is_dir():
        raise UserError(f"{option} {path}: there is no directory {path.parent}")
    if path is not None and path.is_dir():
        raise UserError(f"{option} {path}: is a directory")
