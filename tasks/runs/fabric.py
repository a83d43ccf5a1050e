"""Lightning Fabric: devices, sums over processes, and a checkpoint plug-in that writes safetensors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.io.checkpoint_io import CheckpointIO
from lightning_fabric.utilities.exceptions import MisconfigurationException
from safetensors.torch import save
from torch import Tensor

from tasks.runs.checkpoints import read_checkpoint
from tasks.runs.config import TrainingConfig
from tasks.runs.errors import UserError
from tasks.runs.files import write_atomically
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
    if config.devices > 1 and config.may_leave_parameters_unused:
        strategy = "ddp_find_unused_parameters_true"
    try:
        return Fabric(
            accelerator=accelerator,
            devices=config.devices,
            strategy=strategy,
            precision=config.precision,
            plugins=[SafetensorsIO()],
        )
    except (RuntimeError, ValueError, MisconfigurationException) as error:
        raise UserError(
            f"cannot train with --accelerator {config.accelerator} --devices {config.devices}: {error}"
        ) from None


class SafetensorsIO(CheckpointIO):
    """Lets `Fabric.save` and `Fabric.load` store a nested dictionary in one safetensors file."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write a nested dictionary to one file, atomically.

        Args:
            checkpoint: dictionaries, lists, tensors and JSON values.
            path: the file.
            storage_options: ignored.
        """
        tensors: dict[str, Tensor] = {}
        skeleton = _take_out_tensors(checkpoint, "", tensors)
        write_atomically(Path(path), save(tensors, {"json": json.dumps(skeleton)}))

    def load_checkpoint(
        self, path: str | Path, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read what `save_checkpoint` wrote.

        Args:
            path: the file.
            map_location: ignored; tensors are loaded to the CPU.
            weights_only: ignored; nothing is unpickled.
        Returns:
            The dictionary; its tuples have become lists.
        Raises:
            UserError: the file does not exist or is not the training state of a run.
        """
        tensors, skeleton = read_checkpoint(Path(path))
        if not isinstance(skeleton, dict) or skeleton.keys() != {"dict"}:
            raise UserError(f"{path}: not the training state of a run, which --resume needs")
        try:
            checkpoint: dict[str, Any] = _put_back_tensors(skeleton, tensors)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise UserError(f"{path}: not a checkpoint of this project ({error})") from None
        return checkpoint

    def remove_checkpoint(self, path: str | Path) -> None:
        """Delete a checkpoint if it exists.

        Args:
            path: the file.
        """
        Path(path).unlink(missing_ok=True)


def _take_out_tensors(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Convert `value` to JSON values; its tensors are moved to `tensors`, named by their path in `value`.

    Dictionaries become lists of pairs: the state of an optimizer has integer keys, which JSON does not allow.
    """
    if isinstance(value, Tensor):
        # A copy, because safetensors refuses tensors that share memory.
        tensors[name] = value.detach().cpu().clone().contiguous()
        return {"tensor": name}
    if isinstance(value, dict):
        pairs = [[key, _take_out_tensors(item, f"{name}/{key}", tensors)] for key, item in value.items()]
        return {"dict": pairs}
    if isinstance(value, list | tuple):
        return [_take_out_tensors(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]
    return value


def _put_back_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if "tensor" in value:
            return tensors[value["tensor"]]
        return {key: _put_back_tensors(item, tensors) for key, item in value["dict"]}
    if isinstance(value, list):
        return [_put_back_tensors(item, tensors) for item in value]
    return value


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
