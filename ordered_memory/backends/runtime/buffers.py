"""Large buffers that are used again: fresh memory takes a tenth of an Ordered Memory training step to touch.

What a user gets never lies in one of these: they are for scratch, and for what waits for the reverse pass.
`clear()` gives back to the system what is not in use.
"""

from __future__ import annotations

import mmap
import weakref

import numpy as np
import torch
from torch import Tensor

LIMIT = 4 << 30
"""Bytes of address space that may wait for the next call, of which only what was touched takes memory."""

# No lock, which a process forked at the wrong moment would find taken: what is done to the list is atomic.
_free: list[mmap.mmap] = []


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
    weakref.finalize(array, _give_back, buffer).atexit = False
    tensor = torch.from_numpy(array)[: size * dtype.itemsize].view(dtype)
    # As torch.empty does.
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    if fill and torch.are_deterministic_algorithms_enabled():
        tensor.fill_(torch.nan if dtype.is_floating_point else -1)
    return tensor


def clear() -> None:
    """Give the buffers that wait back to the system."""
    _free.clear()


def _give_back(buffer: mmap.mmap) -> None:
    if len(buffer) + sum(map(len, tuple(_free))) <= LIMIT:
        _free.append(buffer)


def _take(size: int) -> mmap.mmap:
    """The smallest buffer that fits, or a new one in place of the smallest that does not."""
    waiting = sorted(_free, key=len)
    for buffer in (*(one for one in waiting if len(one) >= size), *waiting[:1]):
        try:
            _free.remove(buffer)
        except ValueError:  # another thread was faster
            continue
        if len(buffer) >= size:
            return buffer
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    return mmap.mmap(-1, 1 << (size - 1).bit_length(), flags)
