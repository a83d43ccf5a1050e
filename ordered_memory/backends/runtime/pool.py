"""Large buffers that are used again: touching fresh memory takes longer than computing what goes there."""

from __future__ import annotations

import mmap
import threading
import weakref

import numpy as np
import torch
from torch import Tensor

_free: list[mmap.mmap] = []
_taking = threading.Lock()


def empty(size: int, dtype: torch.dtype) -> Tensor:
    """An uninitialised 1-D tensor, to be filled from its start: only what is touched takes memory.

    When the last tensor that shares its storage is gone, the memory waits for the next call. There are
    never more buffers than were in use at one time.

    Args:
        size: elements.
        dtype: of the tensor.
    """
    buffer = _take(max(size * dtype.itemsize, 1))
    # The tensor's storage holds on to this array, so that the end of one is the end of the other.
    array = np.frombuffer(buffer, dtype=np.uint8)
    weakref.finalize(array, _free.append, buffer).atexit = False
    tensor = torch.from_numpy(array)[: size * dtype.itemsize].view(dtype)
    # As torch.empty does.
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    if fill and torch.are_deterministic_algorithms_enabled():
        tensor.fill_(torch.nan if dtype.is_floating_point else -1)
    return tensor


def clear() -> None:
    """Give the buffers that wait back to the system."""
    with _taking:
        _free.clear()


def _take(size: int) -> mmap.mmap:
    with _taking:
        fitting = [buffer for buffer in _free if len(buffer) >= size]
        if fitting:
            best = min(fitting, key=len)
            _free.remove(best)
            return best
        if _free:  # a larger one takes its place
            _free.remove(min(_free, key=len))
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    return mmap.mmap(-1, 1 << (size - 1).bit_length(), flags)
