"""A pool of large buffers: touching fresh memory takes a tenth of an Ordered Memory training step.

The buffers serve as scratch memory and as storage for the reverse pass; a user never gets one as a result.
`clear()` returns the unused ones to the system.
"""

from __future__ import annotations

import mmap
import weakref

import numpy as np
import torch
from torch import Tensor

LIMIT = 4 << 30
"""Maximum total size of unused buffers, in bytes of address space; only touched pages take memory."""

# Without a lock, which might be held when the process forks: every operation on the list is atomic.
_free: list[mmap.mmap] = []


def empty(size: int) -> Tensor:
    """An uninitialised 1-D tensor of bytes, to be filled from its start: only what is touched takes memory.

    When the last tensor that shares its storage is freed, the buffer returns to the pool. The pool never
    holds more buffers than were in use at one time.

    Args:
        size: bytes.
    """
    buffer = _take(max(size, 1))
    # The tensor's storage keeps this array alive, so both end together.
    array = np.frombuffer(buffer, dtype=np.uint8)
    weakref.finalize(array, _give_back, buffer).atexit = False
    tensor = torch.from_numpy(array)[:size]
    # As torch.empty does.
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    if fill and torch.are_deterministic_algorithms_enabled():
        tensor.fill_(255)
    return tensor


def clear() -> None:
    """Return the unused buffers to the system."""
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
