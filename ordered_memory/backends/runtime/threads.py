"""Runs C functions on the threads of PyTorch's OpenMP, without the global interpreter lock."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

from ordered_memory.backends.runtime.build import Library, pytorch_library

_PROCESS = os.getpid()


def run_team(library: Library, function: str, arguments: Any, threads: int) -> None:
    """Run a function of C on a team of threads.

    The threads are those of PyTorch's own operations, which keep spinning for some milliseconds after an
    operation; separate threads would compete with them for cores. A team may be smaller than requested: it
    has one thread in a forked process, because OpenMP does not survive a fork, and where there is no OpenMP.
    So the function must divide the work by the team size that it is passed.

    Args:
        library: library whose C file includes team.h.
        function: name of a function `void work(const void *arguments, int64_t thread, int64_t threads)`. Each
            thread of the team calls it, with denormals flushed to zero and BLAS limited to one thread.
        arguments: ctypes structure (or array of structures) that is passed to every thread.
        threads: maximum size of the team.
    """
    openmp = _openmp() if threads > 1 and os.getpid() == _PROCESS else None
    team = library.struct("Team")()
    team.work = ctypes.cast(getattr(library.code, function), ctypes.c_void_p)
    team.arguments = ctypes.addressof(arguments)
    if library.set_blas_threads is not None:
        team.set_blas_threads = ctypes.cast(library.set_blas_threads, ctypes.c_void_p)
    if openmp is None:
        library.code.run_team(ctypes.byref(team))
        return
    team.thread_number = ctypes.cast(openmp.omp_get_thread_num, ctypes.c_void_p)
    team.team_size = ctypes.cast(openmp.omp_get_num_threads, ctypes.c_void_p)
    work = ctypes.cast(library.code.run_team, ctypes.c_void_p)
    openmp.GOMP_parallel(work, ctypes.byref(team), ctypes.c_uint(threads), ctypes.c_uint(0))


@cache
def _openmp() -> ctypes.CDLL | None:
    """The OpenMP runtime of this process if it has the GNU interface, as LLVM's and Intel's also do."""
    for library in (ctypes.CDLL(None), pytorch_library()):  # a preloaded OpenMP takes precedence
        if hasattr(library, "GOMP_parallel") and hasattr(library, "omp_get_num_threads"):
            return library
    return None
