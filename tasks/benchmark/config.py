"""Options that the subcommands of the benchmark share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from tasks.runs.command_options import ResultsConfig
from tasks.runs.errors import UserError
from tasks.runs.options import check_at_least, check_unused


@dataclass
class MeasurementConfig(ResultsConfig):
    """Measurement."""

    repeats: int = 5
    """Number of timed repetitions on each batch, after an untimed one; medians are reported."""
    device: str = "cpu"
    """Device to run on: cpu, cuda, cuda:1, …"""
    seed: int = 1
    """Seed of batches, weights and dropout."""
    tf32: bool = False
    """On a GPU, let float32 matrix products have TensorFloat-32 operands, as nn.LSTM has there anyway."""
    flush_denormal: bool = False
    """Flush denormal numbers to zero. Over 1,000 tokens, gradients can vanish to denormal numbers, which are
    slow on a CPU."""
    quick: bool = False
    """Smoke test with tiny sizes and one repetition; its times mean nothing."""

    quick_options: ClassVar[dict[str, Any]] = {"repeats": 1}
    """Values that other options have with `quick`."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "repeats")
        if self.quick:
            others = [name for name, value in self.quick_options.items() if getattr(self, name) != value]
            check_unused(self, type(self), dict.fromkeys(others, "with --quick"))
        check_at_least(0, self, "seed")
        try:
            torch.zeros(1, device=self.device).item()
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"--device {self.device!r} cannot be used here: {reason}") from None
        if torch.device(self.device).type == "cpu":
            check_unused(self, MeasurementConfig, {"tf32": "on a CPU"})

    def set_up(self) -> None:
        """Check the options and set up this process."""
        super().set_up()
        if not torch.set_flush_denormal(self.flush_denormal) and self.flush_denormal:
            raise UserError("--flush-denormal: not supported by this processor")
        torch.set_float32_matmul_precision("high" if self.tf32 else "highest")
        if self.quick:
            vars(self).update(self.quick_options)


@dataclass
class BackendsConfig(MeasurementConfig):
    """Backends."""

    backends: tuple[Literal["native", "triton", "sequence", "reference"], ...] = ()
    """Backends to time; by default all. On a GPU `sequence` and `reference` take most of the time."""


@dataclass
class MemoryConfig(MeasurementConfig):
    """Peak memory."""

    memory: bool = True
    """Also measure the peak memory of a training step, in a separate process for each implementation."""
