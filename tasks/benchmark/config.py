"""Options of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from ordered_memory.backends import BACKENDS
from tasks.runs.command_options import ResultsConfig
from tasks.runs.errors import UserError
from tasks.runs.options import check_at_least, check_fraction

ConfigName = Literal["listops", "logic", "sst", "long"]


@dataclass
class MeasurementConfig(ResultsConfig):
    """Measurement."""

    repeats: int = 5
    """Number of timed repetitions on each batch, after an untimed one; medians are reported."""
    device: str = "cpu"
    """Device to run on: cpu, cuda, cuda:1, …"""
    seed: int = 1
    """Seed of batches, weights and dropout."""
    flush_denormal: bool = False
    """Flush denormal numbers to zero. Over 1,000 tokens, gradients can vanish to denormal numbers, which are
    slow on a CPU."""
    quick: bool = False
    """Smoke test with tiny sizes and one repetition; its times mean nothing."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "repeats")
        check_at_least(0, self, "seed")
        try:
            torch.empty(1, device=self.device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"--device {self.device!r} cannot be used here: {reason}") from None

    def set_up(self) -> None:
        """Check the options and set up this process."""
        super().set_up()
        if not torch.set_flush_denormal(self.flush_denormal) and self.flush_denormal:
            raise UserError("--flush-denormal: not supported by this processor")
        if self.quick:
            self.repeats = 1


@dataclass
class MemoryConfig(MeasurementConfig):
    """Peak memory."""

    memory: bool = True
    """Also measure the peak memory of a training step, in a separate process for each contender."""


@dataclass
class CompareConfig(MemoryConfig):
    """Time a training step and a forward pass of all backends of Ordered Memory.

    They are compared with nn.LSTM, the authors' code and the matrix products that every implementation needs.
    """

    config: tuple[ConfigName, ...] = ("listops",)
    """Sizes and batches: `listops`, `logic` and `sst` as in the paper, `long` has about 1,000 tokens."""
    released_code: Path | None = None
    """A checkout of the authors' Ordered-Memory repository, whose module is timed on the same batches."""
    checkpoint: Path | None = None
    """A ListOps run's best.safetensors, whose weights, sizes, score and cell are used instead of random
    weights."""
    score: Literal["normalized", "additive"] = "normalized"
    """Score function of the slot attention; a checkpoint has its own."""
    num_slots: int | None = None
    """Number of memory slots; by default that of the configuration or the checkpoint."""
    occupancy_threshold: float | None = None
    """Slots with an occupancy below this fraction count as empty; by default 1e-5 or that of the
    checkpoint."""
    single: tuple[int, ...] = ()
    """Measure the latency of single examples with these numbers of tokens, instead of batches."""
    batches: int = 4
    """Number of batches of each configuration, evenly spaced over the lengths of a training epoch."""
    max_length: int = 100
    """Maximum length of a `listops` expression in tokens."""

    def check(self) -> None:
        super().check()
        if not self.config:
            raise UserError("--config must name at least one configuration")
        check_at_least(1, self, "num_slots", "batches", "max_length")
        check_fraction(self, "occupancy_threshold")
        if any(length < 4 for length in self.single):
            raise UserError(f"--single must be at least 4, got {min(self.single)}")
        others = [name for name in self.config if name not in ("listops", "long")]
        if self.checkpoint is not None and others:
            raise UserError(f"--checkpoint is a ListOps model: it cannot read --config {others[0]}")


@dataclass
class ScalingConfig(MemoryConfig):
    """Measure time and memory as T, B, N or D grows, with and without activation checkpointing."""

    axes: tuple[Literal["T", "B", "N", "D"], ...] = ("T", "B", "N", "D")
    """What to vary: number of tokens (T), batch size (B), number of slots (N), slot size (D)."""
    backend: str = "auto"
    """Backend of the layer."""
    directory: Path = Path("runs/benchmark")
    """Directory for scaling.csv and one plot per axis."""
    nesting: int = 5
    """Nesting depth of the ListOps-style expressions, independent of their length."""

    def check(self) -> None:
        super().check()
        if self.backend not in ("auto", *BACKENDS):
            raise UserError(f"--backend must be one of auto, {', '.join(BACKENDS)}, got {self.backend!r}")
        if not self.axes:
            raise UserError("--axes must name at least one of T, B, N, D")
        check_at_least(1, self, "nesting")
        if self.directory.exists() and not self.directory.is_dir():
            raise UserError(f"--directory {self.directory}: is not a directory")
