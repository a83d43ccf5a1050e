"""Lightning Fabric: devices, and what is summed or collected over processes."""

from __future__ import annotations

import os

import torch
from lightning_fabric import Fabric
from lightning_fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor

from tasks.runs.config import TrainingConfig
from tasks.runs.errors import UserError
from tasks.runs.machine import default_device

MAX_PROCESSES = max(8, os.cpu_count() or 1)
"""Maximum number of processes on one machine."""


def build_fabric(config: TrainingConfig) -> Fabric:
    """Configure Lightning Fabric; `launch` starts the processes.

    Args:
        config: accelerator, devices, strategy and precision.
    Raises:
        UserError: this machine does not have these devices, or they do not have this precision.
    """
    if config.devices > MAX_PROCESSES:
        raise UserError(f"--devices must be at most {MAX_PROCESSES} on this machine, got {config.devices}")
    accelerator = config.accelerator
    if accelerator == "auto":  # Fabric would choose MPS, which has neither float64 nor a tested backend
        accelerator = default_device()
    if config.precision == "16-mixed" and accelerator == "cpu":
        raise UserError("--precision 16-mixed needs a GPU; on a CPU use bf16-mixed")
    strategy: str = config.strategy
    if (config.devices > 1 or strategy == "ddp") and config.may_leave_parameters_unused:
        strategy = "ddp_find_unused_parameters_true"
    try:
        return Fabric(
            accelerator=accelerator,
            devices=config.devices,
            strategy=strategy,
            precision=config.precision,
        )
    except (RuntimeError, ValueError, MisconfigurationException) as error:
        raise UserError(
            f"cannot train with --accelerator {config.accelerator} --devices {config.devices}: {error}"
        ) from None


def all_reduce(fabric: Fabric, values: Tensor) -> Tensor:
    """Sum values over all processes, in place.

    Args:
        fabric: the processes.
        values: the values of this process; changed in place.
    """
    if fabric.world_size > 1:
        torch.distributed.all_reduce(values)
    return values


def gather(fabric: Fabric, value: Tensor) -> Tensor:
    """Collect the values of all processes.

    Args:
        fabric: the processes.
        value: the value of this process, of the same shape in all.
    Returns:
        (world_size, …).
    """
    value = value.to(fabric.device)
    if fabric.world_size == 1:
        return value.unsqueeze(0)
    gathered = [torch.empty_like(value) for _ in range(fabric.world_size)]
    torch.distributed.all_gather(gathered, value)
    return torch.stack(gathered)
