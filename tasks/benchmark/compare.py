"""The verb `compare`: all contenders on the batches of each configuration, in one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ordered_memory.attention import OCCUPANCY_THRESHOLD
from tasks.benchmark.batches import Batch
from tasks.benchmark.config import CompareConfig
from tasks.benchmark.contenders import (
    FLOOR,
    LSTM,
    RELEASED,
    Contender,
    Entry,
    Setup,
    balanced_checkpoints,
    build,
    build_batches,
    build_layer,
    entries_of,
    trained_sizes,
)
from tasks.benchmark.floor import Counts, Floor
from tasks.benchmark.machine import describe
from tasks.benchmark.measure import Times, interleave
from tasks.benchmark.memory import peak_mib
from tasks.benchmark.released import build_released, comparable, largest_difference, load_module
from tasks.benchmark.table import comparison_text
from tasks.benchmark.workloads import Sizes, Workload, build_workload
from tasks.runs.run_directory import write_json


def run_compare(config: CompareConfig) -> None:
    """Print a table for each configuration; write them all to `--json`.

    Raises:
        UserError: bad options, checkpoint or checkout.
    """
    config.apply()
    # Complain before anything has taken its time.
    if config.released_code is not None:
        load_module(config.released_code)
    if config.checkpoint is not None:
        trained_sizes(config.checkpoint)
    results = []
    for name in config.config:
        workload = build_workload(
            name,
            batches=config.batches,
            seed=config.seed,
            max_length=config.max_length,
            quick=config.quick,
        )
        results.append(compare(workload, config))
        print(comparison_text(results[-1]), end="\n\n", flush=True)
        if config.json is not None:
            write_json(config.json, results)


def compare(workload: Workload, config: CompareConfig) -> dict[str, Any]:
    """Measure one configuration.

    Args:
        workload: its sizes and batches.
        config: what to measure, and how.
    Returns:
        The object of `--json`: sizes, batches, machine, times and peaks of each contender, ratios.
    Raises:
        UserError: bad checkpoint or checkout.
    """
    workload = workload._replace(sizes=_sizes(workload.sizes, config))
    setup = Setup(
        workload.sizes,
        config.seed,
        config.device,
        config.released_code,
        config.checkpoint,
        workload.left_padded,
    )
    longest = workload.batches[-1]
    every = balanced_checkpoints(len(longest.tokens)) if workload.checkpoints else None
    batches = build_batches(setup, workload.batches)
    difference = _released_difference(setup, batches[-1])
    entries, contenders, skipped = _build_all(setup, entries_of(config.released_code, every), batches)
    repeats = 1 if config.quick else config.repeats
    times = interleave(contenders, len(batches), repeats=repeats, device=config.device)
    peaks = {
        entry.name: peak_mib(setup, entry, longest, torch.get_num_threads())
        for entry in entries
        if config.memory and entry.name != FLOOR
    }
    floor = contenders[FLOOR]
    assert isinstance(floor, Floor)
    return {
        "config": workload.name,
        **describe(config.device),
        "seed": config.seed,
        "repeats": repeats,
        "flush_denormal": config.flush_denormal,
        "checkpoint": None if config.checkpoint is None else str(config.checkpoint),
        "sizes": workload.sizes._asdict(),
        "batches": [_describe_batch(workload, floor, index) for index in range(len(batches))],
        "active_fraction_train": _fraction(floor.train_counts),
        "active_fraction_infer": _fraction(floor.infer_counts),
        "released_difference": difference,
        "skipped": skipped,
        **summarize(entries, times, peaks, sum(int(batch.lengths.sum()) for batch in workload.batches)),
    }


def summarize(
    entries: Sequence[Entry], times: dict[str, Times], peaks: dict[str, float | None], tokens: int
) -> dict[str, Any]:
    """Sums over batches, and their ratios.

    Args:
        entries: the contenders that ran, the fastest backend first.
        times: of each by name.
        peaks: MiB by name.
        tokens: in all batches.
    Returns:
        JSON values: `contenders`, the `backend` that the ratios are of, and the ratios; a ratio to
        something that did not run is None.
    """
    contenders: dict[str, dict[str, Any]] = {
        entry.name: {
            "recompute_every": entry.recompute_every,
            "train_ms": sum(times[entry.name].train),
            "infer_ms": sum(times[entry.name].infer),
            "train_ms_per_batch": times[entry.name].train,
            "infer_ms_per_batch": times[entry.name].infer,
            "train_tokens_per_s": tokens / sum(times[entry.name].train) * 1000,
            "infer_tokens_per_s": tokens / sum(times[entry.name].infer) * 1000,
            "peak_mib": peaks.get(entry.name),
        }
        for entry in entries
    }
    ours = next(entry.name for entry in entries if entry.backend is not None)

    def ratio(kind: str, above: str, below: str) -> float | None:
        if above not in contenders or below not in contenders:
            return None
        return float(contenders[above][f"{kind}_ms"] / contenders[below][f"{kind}_ms"])

    return {
        "backend": ours,
        "train_speedup_vs_released": ratio("train", RELEASED, ours),
        "infer_speedup_vs_released": ratio("infer", RELEASED, ours),
        "train_vs_floor": ratio("train", ours, FLOOR),
        "infer_vs_floor": ratio("infer", ours, FLOOR),
        "train_vs_lstm": ratio("train", ours, LSTM),
        "infer_vs_lstm": ratio("infer", ours, LSTM),
        "contenders": contenders,
    }


def _sizes(sizes: Sizes, config: CompareConfig) -> Sizes:
    """Of the checkpoint, or of the configuration with the score asked for."""
    if config.checkpoint is not None:
        sizes = trained_sizes(config.checkpoint)
    else:
        sizes = sizes._replace(score=config.score)
    if config.num_slots is not None:
        sizes = sizes._replace(num_slots=config.num_slots)
    if config.occupancy_threshold is not None:
        sizes = sizes._replace(occupancy_threshold=config.occupancy_threshold)
    return sizes


def _build_all(
    setup: Setup, entries: Sequence[Entry], batches: Sequence[Batch]
) -> tuple[list[Entry], dict[str, Contender], dict[str, str]]:
    """Those that can run here, and why the other backends cannot."""
    contenders: dict[str, Contender] = {}
    skipped: dict[str, str] = {}
    for entry in entries:
        try:
            contenders[entry.name] = build(setup, entry, batches)
        except RuntimeError as error:
            if entry.backend is None:
                raise
            skipped[entry.name] = str(error)
    return [entry for entry in entries if entry.name in contenders], contenders, skipped


def _released_difference(setup: Setup, batch: Batch) -> float | None:
    """How far the authors' outputs are from ours, where they have our weights."""
    if setup.released_code is None or not comparable(setup.sizes):
        return None
    if setup.sizes.occupancy_threshold != OCCUPANCY_THRESHOLD:
        return None  # theirs cannot be set
    layer = build_layer(setup, "reference")
    return largest_difference(build_released(setup.released_code, setup.sizes, layer), layer, batch)


def _describe_batch(workload: Workload, floor: Floor, index: int) -> dict[str, Any]:
    batch = workload.batches[index]
    return {
        "T": len(batch.tokens),
        "B": len(batch.lengths),
        "tokens": int(batch.lengths.sum()),
        "train_counts": floor.train_counts[index]._asdict(),
        "infer_counts": floor.infer_counts[index]._asdict(),
    }


def _fraction(counts: Sequence[Counts]) -> float:
    """Of (token, slot) pairs, those that are active."""
    return sum(batch.active for batch in counts) / sum(batch.pairs for batch in counts)
