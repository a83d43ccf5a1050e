"""A pool of large buffers: page faults in new memory take a tenth of a training step.

The buffers serve as scratch memory and as storage for the backward pass; they are never returned to the user.
`clear()` returns unused buffers to the system.
"""

from __future__ import annotations

import mmap
import weakref

import numpy as np
import torch
from torch import Tensor

LIMIT = 4 << 30
"""Maximum total size of unused buffers, in bytes of address space. Only written pages take memory."""

MIN_SIZE = 1 << 20
"""Size in bytes below which the pool is not used, because malloc itself reuses small blocks."""

# There is no lock, because one might be held when the process forks. Every operation on the list is atomic.
_free: list[mmap.mmap] = []


def empty(size: int) -> Tensor:
    """An uninitialized 1-D tensor of bytes. Only pages that are written take memory.

    A large buffer returns to the pool when the last tensor that shares its storage is freed. The pool never
    holds more buffers than were in use at one time.

    Args:
        size: number of bytes.
    Raises:
        RuntimeError: out of memory, or of address space, which `ulimit -v` limits.
    """
    if size < MIN_SIZE:
        return torch.empty(size, dtype=torch.uint8, device="cpu")
    buffer = _take(size)
    # The tensor's storage keeps this array alive, so both are freed together.
    array = np.frombuffer(buffer, dtype=np.uint8)
    weakref.finalize(array, _give_back, buffer).atexit = False
    tensor = torch.from_numpy(array)[:size]
    # As torch.empty does in deterministic mode.
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
    """Take the smallest buffer that fits. If there is none, remove the smallest one and make a new one."""
    unused = sorted(_free, key=len)
    fitting = [buffer for buffer in unused if len(buffer) >= size]
    for buffer in (*fitting, *unused[:1]):
        try:
            _free.remove(buffer)
        except ValueError:  # another thread has taken it
            continue
        if len(buffer) >= size:
            return buffer
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    rounded = 1 << (size - 1).bit_length()
    try:
        return mmap.mmap(-1, rounded, flags)
    except (OSError, OverflowError) as error:
        raise RuntimeError(
            f"out of memory: you tried to allocate {rounded} bytes of address space for backend='native'. "
            "Read fewer or shorter sequences at a time, or use backend='sequence'; with OrderedMemory also "
            "recompute_every or fewer slots"
        ) from error
