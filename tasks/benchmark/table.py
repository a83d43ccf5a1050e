"""The result of a comparison as text."""

from __future__ import annotations

from typing import Any

from tasks.reporting.tables import number, table


def comparison_text(result: dict[str, Any]) -> str:
    """The result of `compare` for a configuration, to be read.

    Args:
        result: as in the JSON file.
    Returns:
        Several lines.
    """
    tables = [_table_of(result, "train", "training step"), _table_of(result, "infer", "evaluation")]
    return "\n".join([*_heading(result), *tables, *_notes(result)])


def _table_of(result: dict[str, Any], kind: str, title: str) -> str:
    contenders = result["contenders"]

    def ratio(above: str, below: str) -> str:
        if above not in contenders or below not in contenders:
            return number(None)
        return number(contenders[above][f"{kind}_ms"] / contenders[below][f"{kind}_ms"], 2)

    rows = [
        [
            name,
            number(values[f"{kind}_ms"]),
            number(values[f"{kind}_tokens_per_s"], 0),
            ratio(name, "floor"),
            ratio(name, "nn.LSTM"),
            ratio("released", name),
            *([number(values["peak_mib"], 0)] if kind == "train" else []),
        ]
        for name, values in contenders.items()
    ]
    header = [title, "ms", "tokens/s", "× floor", "× LSTM", "speedup", "peak MiB"]
    return table(header[: len(rows[0])], rows)


def _heading(result: dict[str, Any]) -> list[str]:
    sizes, batches = result["sizes"], result["batches"]
    lengths = ", ".join(str(batch["T"]) for batch in batches)
    weights = "random weights" if result["checkpoint"] is None else f"weights of {result['checkpoint']}"
    return [
        f"{result['config']}: D={sizes['slot_size']} N={sizes['num_slots']} B={batches[0]['B']} T={lengths}; "
        f"{sum(batch['tokens'] for batch in batches):,} tokens; score {sizes['score']}, "
        f"occupancy threshold {sizes['occupancy_threshold']:g}, {weights}",
        f"{result['device_name']}, {result['threads']} threads, torch {result['torch']}, "
        f"commit {result['commit'] or 'unknown'}; medians of {result['repeats']}, summed over the batches"
        f"{'; denormals flushed' if result['flush_denormal'] else ''}",
        f"active pairs: training {result['active_fraction_train']:.1%}, "
        f"evaluation {result['active_fraction_infer']:.1%}",
    ]


def _notes(result: dict[str, Any]) -> list[str]:
    notes = ["speedup: over the authors' module; peak: beyond weights and inputs, on the longest batch"]
    notes += [f"not run: {name}: {reason}" for name, reason in result["skipped"].items()]
    if "released" in result["contenders"]:
        if result["released_difference"] is not None:
            notes.append(
                "released: same weights; on sequences of one length its outputs differ by at most "
                f"{result['released_difference']:.1e} in float64 (1e-9 is allowed)"
            )
        else:
            notes.append(
                "released: ran with its own score and cell and random weights on the same shapes, because it "
                f"has no {result['sizes']['score']} score with a {result['sizes']['cell']} cell"
            )
    return notes
