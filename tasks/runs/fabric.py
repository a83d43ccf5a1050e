"""Lightning Fabric: devices, and what is summed or collected over processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.strategies.parallel import ParallelStrategy
from lightning_fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor

from tasks.runs.config import TrainingConfig
from tasks.runs.errors import UserError
from tasks.runs.machine import default_device

MAX_PROCESSES = max(8, os.cpu_count() or 1)
"""Maximum number of processes on one machine."""
LONGEST_WAIT = timedelta(days=7)
"""How long the other processes wait for the main one, which tests the model alone."""


def build_fabric(config: TrainingConfig) -> Fabric:
    """Configure Lightning Fabric; `launch` starts the processes.

    Args:
        config: accelerator, devices, strategy and precision.
    Raises:
        UserError: this machine does not have these devices, they do not have this precision, or Slurm or
            torchrun has started another number of processes.
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
    # In a Slurm job of one task Fabric would start no other process, and train on one device.
    is_one_task = os.environ.get("SLURM_NTASKS") == "1" and not TorchElasticEnvironment.detect()
    try:
        fabric = Fabric(
            accelerator=accelerator,
            devices=config.devices,
            strategy=strategy,
            precision=config.precision,
            plugins=[LightningEnvironment()] if is_one_task else None,
        )
        if isinstance(fabric.strategy, ParallelStrategy) and fabric.strategy.cluster_environment is not None:
            fabric.strategy.cluster_environment.validate_settings(config.devices, num_nodes=1)
        return fabric
    except (RuntimeError, ValueError, MisconfigurationException) as error:
        raise UserError(
            f"cannot train with --accelerator {config.accelerator} --devices {config.devices}: {error}"
        ) from None


@contextmanager
def others_wait(fabric: Fabric) -> Iterator[None]:
    """A context in which the main process works alone, and at whose end the others wait for it.

    `Fabric.barrier` would give up after half an hour. gloo also notices if the main process is lost.

    Args:
        fabric: the processes.
    """
    if fabric.world_size == 1:
        yield
        return
    group = torch.distributed.new_group(timeout=LONGEST_WAIT, backend="gloo")
    yield
    torch.distributed.barrier(group)


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
