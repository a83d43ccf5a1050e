"""How many threads PyTorch uses on a CPU, and a warning where other programs leave too few cores for them."""

from __future__ import annotations

import os
import sys

import torch

from tasks.runs.errors import UserError
from tasks.runs.options import check_at_least


def use_threads(options: object, processes: int = 1) -> None:
    """Set the number of threads, and warn once on standard error if there are more than free cores.

    Threads that share a core wait for one another by spinning: two programs with two threads each on two
    cores run many times slower than with one thread each.

    Args:
        options: a dataclass with a field `threads`; None leaves PyTorch's number.
        processes: how many there are, with as many threads each.
    Raises:
        UserError: more threads than the machine has cores.
    """
    check_at_least(1, options, "threads")
    threads: int | None = getattr(options, "threads")  # noqa: B009 - any dataclass that has the field
    cores = _cores()
    if threads is not None:
        if threads > cores:
            raise UserError(f"--threads must be at most {cores}, the cores of this machine, got {threads}")
        torch.set_num_threads(threads)
    threads = torch.get_num_threads()
    load = _load_average()
    free = max(1, round(cores - load))
    if threads > 1 and processes * threads > free:
        print(
            f"warning: {processes * threads} threads for about {free} free of {cores} cores (load average "
            f"{load:.1f}); threads that wait for a core slow each other down, --threads "
            f"{max(1, free // processes)} may be faster",
            file=sys.stderr,
        )


def _cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _load_average() -> float:
    """Processes that wanted to run in the last minute, on average; 0 where the system does not say."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return 0.0
