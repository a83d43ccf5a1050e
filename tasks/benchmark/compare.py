"""The subcommand `compare`: time all contenders on the same batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch

from ordered_memory.attention import OCCUPANCY_THRESHOLD
from tasks.benchmark.config import BackendsConfig, MemoryConfig
from tasks.benchmark.contender import FLOOR, FLOOR_BF16, RELEASED, Contender
from tasks.benchmark.contenders import (
    Entry,
    Setup,
    balanced_recompute_every,
    build,
    build_batches,
    build_layer,
    entries_of,
    trained_sizes,
)
from tasks.benchmark.figures import contender_figures, reference_ratios, tables
from tasks.benchmark.floor import Counts, Floor
from tasks.benchmark.measure import describe, interleave, machine_line
from tasks.benchmark.memory import peak_mib
from tasks.benchmark.released import (
    FILE,
    REPOSITORY,
    build_released,
    comparable,
    execute,
    largest_difference,
)
from tasks.benchmark.workloads import (
    LONGEST_SINGLE,
    Batch,
    Sizes,
    Workload,
    build_single,
    build_workload,
)
from tasks.runs.command_line import Subcommand
from tasks.runs.command_options import print_after
from tasks.runs.errors import UserError
from tasks.runs.options import check_at_least, check_fraction, check_unused

ConfigName = Literal["listops", "logic", "sst", "long"]


@dataclass
class CompareConfig(MemoryConfig, BackendsConfig):
    """Time a training step and a forward pass of all backends of Ordered Memory.

    They are compared with nn.LSTM, the authors' code and the matrix products that every implementation needs.
    """

    config: tuple[ConfigName, ...] = ("listops",)
    """Sizes and batches: `listops`, `logic` and `sst` as in the paper, `long` has about 1,000 tokens."""
    released_code: Path | None = None
    """A checkout of the authors' Ordered-Memory repository, whose module is timed on the same batches."""
    checkpoint: Path | None = None
    """A ListOps run's best.safetensors, whose weights, sizes, score and cell are used instead of random
    weights."""
    score: Literal["normalized", "additive"] = "normalized"
    """Score function of the slot attention; a checkpoint has its own."""
    num_slots: int | None = None
    """Number of memory slots; by default that of the configuration or the checkpoint."""
    occupancy_threshold: float | None = None
    """Slots with an occupancy below this fraction count as empty; by default 1e-5 or that of the
    checkpoint."""
    single: tuple[int, ...] = ()
    """Measure the latency of single examples with these numbers of tokens, instead of batches."""
    batches: int = 4
    """Number of batches of each configuration, evenly spaced over the lengths of a training epoch; `long`
    always has one."""
    max_length: int = 100
    """Maximum length of a `listops` expression in tokens."""

    quick_options: ClassVar = {**MemoryConfig.quick_options, "max_length": 12}

    def check(self) -> None:
        super().check()
        if not self.config:
            raise UserError("--config must name at least one configuration")
        check_at_least(1, self, "num_slots", "batches", "max_length")
        check_fraction(self, "occupancy_threshold")
        for length in self.single:
            if not 4 <= length <= LONGEST_SINGLE:
                raise UserError(f"--single must be between 4 and {LONGEST_SINGLE}, got {length}")
        unused = {}
        if self.checkpoint is not None:
            unused["score"] = "with --checkpoint, which has its own"
        if self.single:
            unused |= dict.fromkeys(("batches", "max_length"), "with --single")
        else:
            if "listops" not in self.config:
                unused["max_length"] = "without --config listops"
            if set(self.config) == {"long"}:
                unused["batches"] = "with --config long, which is one batch"
        check_unused(self, CompareConfig, unused)
        others = [name for name in self.config if name not in ("listops", "long")]
        if self.checkpoint is not None and others:
            raise UserError(f"--checkpoint is a ListOps model: it cannot read --config {others[0]}")


def _run(config: CompareConfig) -> None:
    """Print a table for each configuration; write them all to `--json`."""
    config.set_up()
    # Report bad files before anything is measured.
    if config.released_code is not None:
        execute(config.released_code, FILE, REPOSITORY)
    if config.checkpoint is not None:
        trained_sizes(config.checkpoint)
    results = []
    for workload in _workloads(config):
        results.append(_compare(workload, config))
        with print_after(_text(results[-1]) + "\n"):
            config.write(results)


def _workloads(config: CompareConfig) -> Iterator[Workload]:
    """The configurations to measure."""
    for name in config.config:
        for length in config.single:
            yield build_single(name, length, seed=config.seed, quick=config.quick)
        if not config.single:
            yield build_workload(
                name,
                batches=config.batches,
                seed=config.seed,
                max_length=config.max_length,
                quick=config.quick,
            )


def _compare(workload: Workload, config: CompareConfig) -> dict[str, Any]:
    """Measure one configuration: sizes, batches, machine, times and peaks of each contender, ratios."""
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
    recompute_every = balanced_recompute_every(len(longest.tokens)) if workload.recompute else None
    batches = build_batches(setup, workload.batches)
    difference = _released_difference(setup, batches[-1])
    entries = [
        entry
        for entry in entries_of(config.device, config.released_code, recompute_every)
        if entry.backend is None or not config.backends or entry.backend in config.backends
    ]
    entries, contenders, skipped = _build_all(setup, entries, batches)
    times = interleave(contenders, len(batches), repeats=config.repeats, device=config.device)
    threads = torch.get_num_threads()
    details = {
        entry.name: {
            "recompute_every": entry.recompute_every,
            "peak_mib": peak_mib(setup, entry, longest, threads)
            if config.memory and entry.name not in (FLOOR, FLOOR_BF16)
            else None,
        }
        for entry in entries
    }
    tokens = sum(int(batch.lengths.sum()) for batch in workload.batches)
    figures = contender_figures(times, "tokens", tokens, details)
    floor = contenders[FLOOR]
    assert isinstance(floor, Floor)
    return {
        "config": workload.name,
        **describe(config),
        "checkpoint": None if config.checkpoint is None else str(config.checkpoint),
        "sizes": workload.sizes._asdict(),
        "batches": [_describe_batch(workload, floor, index) for index in range(len(batches))],
        "active_fraction_train": _active_fraction(floor.train_counts),
        "active_fraction_infer": _active_fraction(floor.infer_counts),
        "released_difference": difference,
        "skipped": skipped,
        **reference_ratios(
            figures, next((entry.name for entry in entries if entry.backend is not None), None)
        ),
        "contenders": figures,
    }


def _sizes(sizes: Sizes, config: CompareConfig) -> Sizes:
    """The sizes of the checkpoint or the configuration, with the options applied."""
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
    """Build the contenders that can run here; for the others, say why they cannot."""
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
    """Compare the authors' outputs with ours, if their module can load our weights."""
    if setup.released_code is None or not comparable(setup.sizes):
        return None
    if setup.sizes.occupancy_threshold != OCCUPANCY_THRESHOLD:
        return None  # theirs is fixed
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


def _active_fraction(counts: Sequence[Counts]) -> float:
    """The fraction of (token, slot) pairs that are active."""
    return sum(batch.active for batch in counts) / sum(batch.pairs for batch in counts)


def _text(result: dict[str, Any]) -> str:
    """The result of `_compare` as plain text."""
    return "\n".join([*_heading(result), tables(result["contenders"], "tokens"), *_notes(result)])


def _heading(result: dict[str, Any]) -> list[str]:
    sizes, batches = result["sizes"], result["batches"]
    lengths = ", ".join(str(batch["T"]) for batch in batches)
    weights = "random weights" if result["checkpoint"] is None else f"weights of {result['checkpoint']}"
    return [
        f"{result['config']}: D={sizes['slot_size']} N={sizes['num_slots']} B={batches[0]['B']} T={lengths}; "
        f"{sum(batch['tokens'] for batch in batches):,} tokens; score {sizes['score']}, "
        f"occupancy threshold {sizes['occupancy_threshold']:g}, {weights}",
        machine_line(result, "summed over the batches"),
        f"active pairs: training {result['active_fraction_train']:.1%}, "
        f"evaluation {result['active_fraction_infer']:.1%}",
    ]


def _notes(result: dict[str, Any]) -> list[str]:
    notes = ["peak: beyond weights and inputs, on the longest batch"]
    notes += [f"not run: {name}: {reason}" for name, reason in result["skipped"].items()]
    if RELEASED in result["contenders"]:
        notes.append("speedup: over the authors' module")
        if result["released_difference"] is not None:
            notes.append(
                "released: same weights; on sequences of one length its outputs differ by at most "
                f"{result['released_difference']:.1e} in float64 (1e-9 is allowed)"
            )
        elif comparable(Sizes(**result["sizes"])):
            notes.append(
                "released: same weights; its outputs are not compared, as its occupancy threshold is fixed "
                f"({OCCUPANCY_THRESHOLD:g})"
            )
        else:
            notes.append(
                "released: run with its own score and cell and random weights on the same shapes, because it "
                f"has no {result['sizes']['score']} score with a {result['sizes']['cell']} cell"
            )
    return notes


COMPARE = Subcommand(CompareConfig, _run)
