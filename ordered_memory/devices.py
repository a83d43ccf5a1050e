"""Copies between devices."""

from __future__ import annotations

import torch
from torch import Tensor

_BLOCKING = ("cpu", "mps")
"""On a CPU, and on Apple's GPUs, a copy that does not block may be read before it is complete."""


def copy_to(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Copy a tensor to a device, without waiting for what the device still has to do.

    `tensor.to(device)` from the CPU to a GPU waits for all operations that were launched before.

    Args:
        tensor: tensor on any device.
        device: where it is needed.
    Returns:
        The tensor on this device; itself if it is there already.
    """
    return tensor.to(device, non_blocking=torch.device(device).type not in _BLOCKING)
