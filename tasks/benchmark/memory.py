"""Measure the peak memory of a training step in a separate process."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import resource
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch

from tasks.benchmark.contenders import Entry, Setup, build, build_batches
from tasks.benchmark.workloads import PaddedTokens

MIB = 2**20


def peak_mib(setup: Setup, entry: Entry, batch: PaddedTokens, threads: int) -> float | None:
    """Measure the peak memory of one training step of a contender.

    Args:
        setup: what the contender is built from.
        entry: which contender.
        batch: its input.
        threads: number of CPU threads.
    Returns:
        MiB in addition to weights, inputs and what a tiny step has allocated; None if the process ran out of
        memory or was killed.
    """
    context = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            with _block_ctrl_c():
                measured = pool.submit(_measure, setup, entry, batch, threads)
            return measured.result()
        except (BrokenProcessPool, torch.OutOfMemoryError):
            return None
        except KeyboardInterrupt:
            for process in set(multiprocessing.active_children()).difference(others):
                process.kill()
            raise


@contextlib.contextmanager
def _block_ctrl_c() -> Iterator[None]:
    """Block Ctrl-C in the processes that start within: a terminal sends it to all, and only this one answers.

    If it comes within, it is answered at the end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _measure(setup: Setup, entry: Entry, batch: PaddedTokens, threads: int) -> float:
    torch.set_num_threads(threads)
    tiny = PaddedTokens(batch.tokens[:2], batch.lengths.clip(max=2))
    contender = build(setup, entry, build_batches(setup, [tiny, batch]))
    contender.training_step(0)()
    step = contender.training_step(1)
    gc.collect()
    if torch.device(setup.device).type == "cuda":
        torch.cuda.synchronize(setup.device)
        torch.cuda.reset_peak_memory_stats(setup.device)
        baseline = torch.cuda.memory_allocated(setup.device)
        step()
        torch.cuda.synchronize(setup.device)
        return (torch.cuda.max_memory_allocated(setup.device) - baseline) / MIB
    baseline = _reset_peak()
    step()
    return (_peak() - baseline) / MIB


def _reset_peak() -> int:
    """Reset the peak, where the system allows it, and return it in bytes."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return _peak()


def _peak() -> int:
    """The peak resident set size so far, in bytes.

    On Linux it is read from /proc, since a child inherits its parent's peak in getrusage.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
