"""Additional peak memory of a training step, measured in a process of its own."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import resource
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch

from tasks.benchmark.contenders import Entry, Setup, build, build_batches
from tasks.benchmark.workloads import TokenBatch

MIB = 2**20


def peak_mib(setup: Setup, entry: Entry, batch: TokenBatch, threads: int) -> float | None:
    """Measure one training step of one contender.

    Args:
        setup: what the contender is built from.
        entry: which contender.
        batch: its input.
        threads: of PyTorch on the CPU.
    Returns:
        MiB in addition to weights, inputs and what a tiny step leaves behind; None if the process died, as
        when it runs out of memory.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(_measure, setup, entry, batch, threads).result()
        except (BrokenProcessPool, torch.OutOfMemoryError):
            return None


def _measure(setup: Setup, entry: Entry, batch: TokenBatch, threads: int) -> float:
    torch.set_num_threads(threads)
    tiny = TokenBatch(batch.tokens[:2], batch.lengths.clip(max=2))
    contender = build(setup, entry, build_batches(setup, [tiny, batch]))
    contender.training_step(0)()
    step = contender.training_step(1)
    gc.collect()
    if torch.device(setup.device).type == "cuda":
        torch.cuda.synchronize(setup.device)
        torch.cuda.reset_peak_memory_stats(setup.device)
        before = torch.cuda.memory_allocated(setup.device)
        step()
        torch.cuda.synchronize(setup.device)
        return (torch.cuda.max_memory_allocated(setup.device) - before) / MIB
    before = _start_of_peak()
    step()
    return (_peak() - before) / MIB


def _start_of_peak() -> int:
    """Resident bytes; also resets the peak to them where the system allows it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    """The largest resident set so far, in bytes.

    Linux hands a parent's peak in getrusage down to its children, so it is read from the memory map's own.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
