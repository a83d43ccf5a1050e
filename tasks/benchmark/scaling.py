"""The verb `scaling`: time and memory of our layer as T, B, N and D grow one at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from tasks.benchmark.config import ScalingConfig
from tasks.benchmark.contenders import (
    Entry,
    Setup,
    balanced_checkpoints,
    build,
    build_batches,
)
from tasks.benchmark.machine import describe, machine_line
from tasks.benchmark.measure import interleave
from tasks.benchmark.memory import peak_mib
from tasks.benchmark.workloads import Sizes, nested_expression, pad
from tasks.listops.expressions import TOKENS
from tasks.reporting.drawing import figure_png
from tasks.reporting.tables import number, table
from tasks.runs.errors import UserError
from tasks.runs.files import write_atomically

Row = dict[str, Any]

BASE = {"T": 100, "B": 8, "N": 21, "D": 128}
SWEEPS: dict[str, tuple[int, ...]] = {
    "T": (25, 50, 100, 200, 500, 1000),
    "B": (1, 4, 8, 16, 32, 64, 128),
    "N": (2, 5, 10, 21, 42),
    "D": (32, 64, 128, 256),
}
QUICK_BASE = {"T": 12, "B": 2, "N": 3, "D": 8}
QUICK_SWEEPS: dict[str, tuple[int, ...]] = {"T": (6, 12), "B": (1, 2), "N": (2, 3), "D": (4, 8)}

NAMES = {"T": "tokens", "B": "sequences", "N": "slots", "D": "slot size"}
COLUMNS = (
    *("sweep", "T", "B", "N", "D", "contender", "recompute_every", "train_ms", "infer_ms"),
    *("train_us_per_token", "infer_us_per_token", "peak_mib"),
)


def run_scaling(config: ScalingConfig) -> None:
    """Print the table of each sweep; write scaling.csv and the plots to `--out`.

    Args:
        config: the options.
    Raises:
        UserError: bad options, or a backend that cannot run here.
    """
    config.apply()
    config.out.mkdir(parents=True, exist_ok=True)
    machine = describe(config.device)
    flushed = ["denormals flushed"] if config.flush_denormal else []
    print(machine_line(machine, config.repeats, f"brackets nest {config.nesting} deep", *flushed))
    base, sweeps = (QUICK_BASE, QUICK_SWEEPS) if config.quick else (BASE, SWEEPS)
    rows: list[Row] = []
    for axis in config.axes:
        swept = [row for value in sweeps[axis] for row in _measure(config, axis, {**base, axis: value})]
        print(f"\n{axis} ({NAMES[axis]})\n{_table(axis, swept)}", flush=True)
        rows += swept
        write_atomically(config.out / "scaling.csv", _csv(rows))
        write_atomically(config.out / f"scaling_{axis}.png", figure_png(_figure(axis, swept)))
    print(f"\n{config.out / 'scaling.csv'}, and plots beside it")


def _measure(config: ScalingConfig, axis: str, sizes: dict[str, int]) -> list[Row]:
    """One point of a sweep, with and without checkpoints in time."""
    T, B, N, D = (sizes[name] for name in "TBND")
    rng = np.random.default_rng(config.seed)
    batch = pad([nested_expression(rng, T, config.nesting) for _ in range(B)])
    setup = Setup(Sizes(D, N, 0.1, 0.3, D, len(TOKENS)), config.seed, config.device)
    batches = build_batches(setup, [batch])
    entries = [
        Entry(config.backend, config.backend),
        Entry(f"{config.backend}, checkpoints", config.backend, balanced_checkpoints(T)),
    ]
    try:
        contenders = {entry.name: build(setup, entry, batches) for entry in entries}
    except RuntimeError as error:
        raise UserError(f"--backend: {error}") from None
    repeats = 1 if config.quick else config.repeats
    times = interleave(contenders, 1, repeats=repeats, device=config.device)
    rows = []
    for entry in entries:
        train_ms, infer_ms = times[entry.name].train[0], times[entry.name].infer[0]
        peak = peak_mib(setup, entry, batch, torch.get_num_threads()) if config.memory else None
        figures = (train_ms, infer_ms, train_ms * 1000 / (T * B), infer_ms * 1000 / (T * B), peak)
        rows.append(
            dict(zip(COLUMNS, (axis, T, B, N, D, entry.name, entry.recompute_every, *figures), strict=True))
        )
    return rows


def _table(axis: str, rows: Sequence[Row]) -> str:
    header = ["", axis, "train ms", "eval ms", "train µs/token", "eval µs/token", "peak MiB"]
    return table(
        header,
        [
            [
                row["contender"],
                str(row[axis]),
                number(row["train_ms"]),
                number(row["infer_ms"]),
                number(row["train_us_per_token"], 2),
                number(row["infer_us_per_token"], 2),
                number(row["peak_mib"]),
            ]
            for row in rows
        ],
    )


def _csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _figure(axis: str, rows: Sequence[Row]) -> Figure:
    """Time per token, and peak memory where it was measured."""
    measured = [row for row in rows if row["peak_mib"] is not None]
    panels: list[tuple[str, tuple[str, ...]]] = [("time per token (µs)", ("train", "infer"))]
    if measured:
        panels.append(("peak memory (MiB)", ("peak",)))
    figure = Figure(figsize=(4.6 * len(panels), 3.2), layout="constrained")
    values = sorted({row[axis] for row in rows})
    names = list(dict.fromkeys(row["contender"] for row in rows))
    for place, (label, kinds) in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), place)
        for name in names:
            for kind in kinds:
                column = "peak_mib" if kind == "peak" else f"{kind}_us_per_token"
                points = [
                    (row[axis], row[column])
                    for row in rows
                    if row["contender"] == name and row[column] is not None
                ]
                what = {"train": ": training", "infer": ": evaluation", "peak": ""}[kind]
                axes.plot(
                    *zip(*points, strict=True), marker="o", markersize=3, linewidth=1.5, label=name + what
                )
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(values))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.set_xlabel(f"{axis} ({NAMES[axis]})")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=7)
    return figure
