"""Work in C on several threads, without the lock of the interpreter."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from ordered_memory.backends.runtime.build import Library

Share = TypeVar("Share")
Result = TypeVar("Result")


def run_in_threads(
    library: Library, work: Callable[[Share], Result], shares: Sequence[Share]
) -> list[Result]:
    """The work of each share, the first of them in this thread, with a BLAS of one thread each.

    Args:
        library: whose BLAS is kept to one thread in each.
        work: calls into the library.
        shares: one for each thread.
    Returns:
        The results in order.
    """

    def alone(share: Share) -> Result:
        before = library.set_blas_threads(1)
        try:
            return work(share)
        finally:
            library.set_blas_threads(before)

    threads = _threads(os.getpid(), max(1, len(shares)))
    others = [threads.submit(alone, share) for share in shares[1:]]
    first = [alone(share) for share in shares[:1]]
    return first + [other.result() for other in others]


def run_in_team(library: Library, function: str, arguments: ctypes.Structure, scratch: list[Tensor]) -> bool:
    """Work whose threads wait for one another, on the threads that PyTorch's own operations have.

    Those go on spinning for some milliseconds after an operation: other threads would have to share their
    cores, and each wait for the slower one.

    Args:
        library: its file includes team.h.
        function: its name there; takes a pointer to the arguments, the number of the thread, its scratch.
        arguments: for all threads.
        scratch: of each thread; says how many there are.
    Returns:
        Whether it was done; not where there is no such OpenMP or it gives fewer threads.
    """
    openmp = _openmp()
    if openmp is None:
        return False
    pointers = (ctypes.c_void_p * len(scratch))(*(tensor.data_ptr() for tensor in scratch))
    team = _Team(
        ctypes.cast(getattr(library.code, function), ctypes.c_void_p),
        ctypes.addressof(arguments),
        ctypes.addressof(pointers),
        len(scratch),
        0,
        ctypes.cast(openmp.omp_get_thread_num, ctypes.c_void_p),
        ctypes.cast(openmp.omp_get_num_threads, ctypes.c_void_p),
    )
    work = ctypes.cast(library.code.run_team, ctypes.c_void_p)
    openmp.GOMP_parallel(work, ctypes.byref(team), ctypes.c_uint(len(scratch)), ctypes.c_uint(0))
    return bool(team.started)


class _Team(ctypes.Structure):
    """`Team` in team.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("work", "arguments", "scratch")),
        *((name, ctypes.c_int64) for name in ("threads", "started")),
        *((name, ctypes.c_void_p) for name in ("number", "size")),
    )


@cache
def _openmp() -> ctypes.CDLL | None:
    """The OpenMP that PyTorch brings, where it is GNU's."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        try:
            library = ctypes.CDLL(str(path))
            library.GOMP_parallel.restype = None
            return library
        except (OSError, AttributeError):
            continue
    return None


@cache
def _threads(process: int, count: int) -> ThreadPoolExecutor:
    """So many threads, which may wait for one another; of this process: a fork has none of its parent's."""
    return ThreadPoolExecutor(count, thread_name_prefix="ordered-memory")
