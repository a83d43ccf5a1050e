"""Set the number of CPU threads, and warn if other programs leave too few free cores for them."""

from __future__ import annotations

import os
import sys
from functools import cache

import torch

from tasks.runs.errors import UserError


def use_threads(threads: int | None, processes: int = 1) -> None:
    """Set the number of threads, and warn on standard error if there are fewer free cores.

    Threads that share a core wait for one another by spinning: on two cores, two programs with two threads
    each run many times slower than with one thread each.

    Args:
        threads: number of threads; None keeps PyTorch's, which Lightning Fabric divides among several
            processes.
        processes: number of processes with that many threads each.
    Raises:
        UserError: see `check_threads`.
    """
    check_threads(threads)
    cores = count_cores()
    is_divided = threads is None and processes > 1 and "OMP_NUM_THREADS" not in os.environ
    if threads is not None:
        torch.set_num_threads(threads)
    threads = max(1, cores // processes) if is_divided else torch.get_num_threads()
    load = _load_average()
    free_cores = max(1, round(cores - load))
    if threads > 1 and processes * threads > free_cores:
        print(
            f"warning: {processes * threads} threads, but only about {free_cores} of {cores} cores are free "
            f"(load average {load:.1f}); threads that wait for a core slow each other down, so that "
            f"--threads {max(1, free_cores // processes)} may be faster",
            file=sys.stderr,
        )


def check_threads(threads: int | None) -> None:
    """Raise a UserError if the number of threads is below 1 or above that of the cores.

    Args:
        threads: number of threads; None is accepted.
    """
    if threads is not None and threads < 1:
        raise UserError(f"--threads must be at least 1, got {threads}")
    if threads is not None and threads > count_cores():
        raise UserError(f"--threads must be at most {count_cores()}, the number of cores, got {threads}")


def count_cores() -> int:
    """The number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _load_average() -> float:
    """The system's load average over the minute before the first call; 0 where it is not available.

    Later, it would count this process, too: the run of a second seed would be warned of that of the first.
    """
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return 0.0
