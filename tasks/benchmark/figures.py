"""Compute sums over batches, rates and ratios from measured times, and format them as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.benchmark.contender import FLOOR, FLOOR_BF16, LSTM, RELEASED
from tasks.benchmark.measure import Times
from tasks.formatting.tables import number, terminal_width, text_table

Contenders = Mapping[str, Mapping[str, Any]]

KINDS = {"train": "training step", "infer": "evaluation"}


def contender_figures(
    times: Mapping[str, Times], unit: str, count: int, details: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """Compute the figures of each contender.

    Args:
        times: milliseconds of each batch, by name of the contender.
        unit: the unit of rates: "tokens", "pairs".
        count: number of units in all batches.
        details: further values of each contender, by name.
    Returns:
        JSON values by name: for each of `KINDS` `_ms`, `_ms_per_batch` and `_{unit}_per_s`, then the details.
    """
    figures: dict[str, dict[str, Any]] = {}
    for name, contender_times in times.items():
        values = figures[name] = dict((details or {}).get(name, {}))
        for kind, batches in contender_times._asdict().items():
            values[f"{kind}_ms"] = sum(batches)
            values[f"{kind}_ms_per_batch"] = batches
            values[f"{kind}_{unit}_per_s"] = count / sum(batches) * 1000
    return figures


def reference_ratios(contenders: Contenders, ours: str | None) -> dict[str, Any]:
    """Compute the ratios of one of our backends to the floor, `nn.LSTM` and the authors' code, as JSON.

    Args:
        contenders: figures from `contender_figures`.
        ours: the name of that backend, the first that ran; None if none did.
    """
    return {
        "backend": ours,
        **{f"{kind}_speedup_vs_released": _ratio(contenders, kind, RELEASED, ours) for kind in KINDS},
        **{f"{kind}_vs_floor": _ratio(contenders, kind, ours, FLOOR) for kind in KINDS},
        **{f"{kind}_vs_lstm": _ratio(contenders, kind, ours, LSTM) for kind in KINDS},
    }


def _ratio(contenders: Contenders, kind: str, above: str | None, below: str | None) -> float | None:
    """The time of one contender divided by that of another; None if one of the two did not run."""
    if above is None or below is None or above not in contenders or below not in contenders:
        return None
    return float(contenders[above][f"{kind}_ms"] / contenders[below][f"{kind}_ms"])


def tables(contenders: Contenders, unit: str, lstm: str = LSTM) -> str:
    """Format a table for training and one for evaluation.

    Args:
        contenders: figures from `contender_figures`.
        unit: the same as for `contender_figures`.
        lstm: the contender in the denominator of "× LSTM".
    Returns:
        Several lines, no longer than those of the terminal. "speedup" is the authors' time divided by the
        row's; empty columns are left out.
    """
    return "\n".join(_table(contenders, kind, title, unit, lstm) for kind, title in KINDS.items())


def _table(contenders: Contenders, kind: str, title: str, unit: str, lstm: str) -> str:
    contenders = {name: figures for name, figures in contenders.items() if f"{kind}_ms" in figures}
    columns: dict[str, list[str]] = {
        "ms": [number(figures[f"{kind}_ms"]) for figures in contenders.values()],
        f"{unit}/s": [number(figures[f"{kind}_{unit}_per_s"], 0) for figures in contenders.values()],
        "× floor": [number(_ratio(contenders, kind, name, FLOOR), 2) for name in contenders],
        "× bf16 floor": [number(_ratio(contenders, kind, name, FLOOR_BF16), 2) for name in contenders],
        "× LSTM": [number(_ratio(contenders, kind, name, lstm), 2) for name in contenders],
        "speedup": [number(_ratio(contenders, kind, RELEASED, name), 2) for name in contenders],
    }
    if kind == "train":
        columns["peak MiB"] = [number(figures.get("peak_mib"), 0) for figures in contenders.values()]
        columns["epoch s"] = [number(figures.get("epoch_s"), 1) for figures in contenders.values()]
        columns["parameters"] = [number(figures.get("parameters"), 0) for figures in contenders.values()]
    filled = {header: cells for header, cells in columns.items() if set(cells) != {number(None)}}
    rows = list(zip(contenders, *filled.values(), strict=True))
    return text_table([title, *filled], rows, terminal_width())
