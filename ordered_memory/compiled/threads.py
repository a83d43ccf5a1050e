"""Work in C on several threads: without the lock of the interpreter, and with a BLAS of one thread each."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from ordered_memory.compiled.build import Library

Share = TypeVar("Share")
Result = TypeVar("Result")


def run_in_threads(
    library: Library, work: Callable[[Share], Result], shares: Sequence[Share]
) -> list[Result]:
    """The work of each share, the first of them in this thread.

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

    others = [_threads(os.getpid()).submit(alone, share) for share in shares[1:]]
    first = [alone(share) for share in shares[:1]]
    return first + [other.result() for other in others]


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Threads of this process: a fork has none of its parent's."""
    return ThreadPoolExecutor(thread_name_prefix="ordered-memory")
