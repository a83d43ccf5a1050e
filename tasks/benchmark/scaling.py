"""The subcommand `scaling`: time and memory of our layer as T, B, N or D grows."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from ordered_memory.backends import BACKENDS
from tasks.benchmark.config import MemoryConfig
from tasks.benchmark.contenders import (
    Entry,
    Setup,
    balanced_recompute_every,
    build,
    build_batches,
)
from tasks.benchmark.measure import describe, interleave, machine_line
from tasks.benchmark.memory import peak_mib
from tasks.benchmark.workloads import Sizes, nested_expression, pad
from tasks.formatting.tables import number, terminal_width, text_table
from tasks.listops.expressions import TOKENS
from tasks.reporting.drawing import figure_png
from tasks.runs.command_line import Subcommand
from tasks.runs.command_options import print_after
from tasks.runs.errors import UserError
from tasks.runs.files import check_writable_directory, write_atomically
from tasks.runs.options import check_at_least

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


@dataclass
class ScalingConfig(MemoryConfig):
    """Measure time and memory as T, B, N or D grows, with and without activation checkpointing."""

    axes: tuple[Literal["T", "B", "N", "D"], ...] = ("T", "B", "N", "D")
    """What to vary: number of tokens (T), batch size (B), number of slots (N), slot size (D)."""
    backend: str = "auto"
    """Backend of the layer."""
    directory: Path = Path("runs/benchmark")
    """Directory for scaling.csv and one plot per axis; with --quick, its subdirectory `quick`."""
    nesting: int = 5
    """Nesting depth of the ListOps-style expressions, independent of their length."""

    def check(self) -> None:
        super().check()
        if self.backend not in ("auto", *BACKENDS):
            raise UserError(f"--backend must be one of auto, {', '.join(BACKENDS)}, got {self.backend!r}")
        if not self.axes:
            raise UserError("--axes must name at least one of T, B, N, D")
        check_at_least(1, self, "nesting")
        check_writable_directory("--directory", self.output)

    @property
    def output(self) -> Path:
        """The directory of the files."""
        return self.directory / "quick" if self.quick else self.directory


def _run(config: ScalingConfig) -> None:
    """Print the table of each sweep; write scaling.csv and the plots to `--directory`."""
    config.set_up()
    directory = config.output
    directory.mkdir(parents=True, exist_ok=True)
    machine = describe(config)
    print(machine_line(machine, f"brackets nest {config.nesting} deep"))
    base, sweeps = (QUICK_BASE, QUICK_SWEEPS) if config.quick else (BASE, SWEEPS)
    rows: list[Row] = []
    for axis in config.axes:
        swept: list[Row] = []
        try:
            for value in sweeps[axis]:
                swept += _measure(config, axis, {**base, axis: value})
        finally:  # after Ctrl-C or an error, what was measured before it is shown and saved
            if swept:
                rows += swept
                with print_after(f"\n{axis} ({NAMES[axis]})\n{_table(axis, swept)}"):
                    write_atomically(directory / "scaling.csv", _csv(rows))
                    write_atomically(directory / f"scaling_{axis}.png", figure_png(_figure(axis, swept)))
                    config.write({**machine, "nesting": config.nesting, "rows": rows})
    print(f"\n{directory / 'scaling.csv'}, and plots in the same directory")


def _measure(config: ScalingConfig, axis: str, sizes: dict[str, int]) -> list[Row]:
    """Measure one point of a sweep, with and without activation checkpointing."""
    T, B, N, D = (sizes[name] for name in "TBND")
    rng = np.random.default_rng(config.seed)
    batch = pad([nested_expression(rng, T, config.nesting) for _ in range(B)])
    setup = Setup(Sizes(D, N, 0.1, 0.3, D, len(TOKENS)), config.seed, config.device)
    batches = build_batches(setup, [batch])
    entries = [
        Entry(config.backend, config.backend),
        Entry(f"{config.backend}, checkpoints", config.backend, balanced_recompute_every(T)),
    ]
    try:
        contenders = {entry.name: build(setup, entry, batches) for entry in entries}
    except RuntimeError as error:
        raise UserError(f"--backend: {error}") from None
    times = interleave(contenders, 1, repeats=config.repeats, device=config.device)
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
    columns = {
        "train ms": ("train_ms", 1),
        "eval ms": ("infer_ms", 1),
        "train µs/token": ("train_us_per_token", 2),
        "eval µs/token": ("infer_us_per_token", 2),
        "peak MiB": ("peak_mib", 1),
    }
    cells = [
        [row["contender"], str(row[axis]), *(number(row[name], digits) for name, digits in columns.values())]
        for row in rows
    ]
    return text_table(["", axis, *columns], cells, terminal_width())


def _csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _figure(axis: str, rows: Sequence[Row]) -> Figure:
    """Plot time per token and, if it was measured, peak memory."""
    columns = {
        "training step (µs per token)": "train_us_per_token",
        "evaluation (µs per token)": "infer_us_per_token",
        "peak memory (MiB)": "peak_mib",
    }
    panels = {label: column for label, column in columns.items() if rows[0][column] is not None}
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(panels), 3.2), layout="constrained")
    values = sorted({row[axis] for row in rows})
    for axes, (label, column) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        for name in dict.fromkeys(row["contender"] for row in rows):
            heights = [row[column] for row in rows if row["contender"] == name]
            axes.plot(values, heights, marker="o", markersize=3, linewidth=1.5, label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks(values, map(str, values))
        axes.minorticks_off()
        axes.set(xlabel=f"{axis} ({NAMES[axis]})", ylabel=label)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=7)
    return figure


SCALING = Subcommand(ScalingConfig, _run)
