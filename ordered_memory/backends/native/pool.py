"""Large buffers that are used again: fresh memory costs more than computing what goes into it."""

from __future__ import annotations

import mmap
import weakref

import numpy as np
import torch
from torch import Tensor

_SMALLEST = 1 << 20
_free: dict[int, list[mmap.mmap]] = {}


def empty(size: int, dtype: torch.dtype) -> Tensor:
    """An uninitialised 1-D tensor, to be used from its start: only what is touched takes memory.

    When the last tensor that shares its storage is gone the memory is kept for the next buffer of
    about this size.

    Args:
        size: elements.
        dtype: of the tensor.
    """
    wanted = max(size * dtype.itemsize, _SMALLEST)
    capacity = 1 << (wanted - 1).bit_length()
    buffers = _free.setdefault(capacity, [])
    buffer = buffers.pop() if buffers else mmap.mmap(-1, capacity, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    # The tensor's storage holds on to this array, so that the array's end is the storage's.
    array = np.frombuffer(buffer, dtype=np.uint8)
    weakref.finalize(array, buffers.append, buffer)
    tensor = torch.from_numpy(array)[: size * dtype.itemsize].view(dtype)
    if torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory:
        tensor.fill_(torch.nan)
    return tensor


def clear() -> None:
    """Give free buffers back to the system."""
    for buffers in _free.values():
        buffers.clear()


_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0)
