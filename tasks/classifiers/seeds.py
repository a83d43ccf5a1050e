"""Train a classifier with several seeds."""

from __future__ import annotations

import re
import reprlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ordered_memory.span_f1 import fraction_text
from tasks.classifiers.config import ClassifierConfig
from tasks.reporting.summary import mean_and_deviation
from tasks.reporting.tables import count_text, mean_text
from tasks.runs.errors import Diverged, Interrupted, UserError
from tasks.runs.files import is_finite_number, read_json, write_json
from tasks.runs.processes import is_launcher
from tasks.runs.run_directory import RunDirectory
from tasks.runs.saved_config import changed_options, check_types

Config = TypeVar("Config", bound=ClassifierConfig)


def train_seeds(train: Callable[[Config], None], config: Config) -> None:
    """Train once for each of several seeds; print and write the mean and standard deviation.

    A run that diverges has no results: it is named beside those of the others.

    The file is next to the run directories and is named after the first one and the last seed, such as
    seed-1-to-3.json.

    Args:
        train: trains one run.
        config: the first run has the seed `seed`, the next `seed` + 1, and so on. The runs are saved in
            subdirectories of `run_dir`, if it is given. With `resume`, finished runs are skipped. If a path
            is not the same as in such a run, its training and validation data must be.
    Raises:
        UserError: bad options, or without `resume` one of the directories already holds a run.
        Diverged: all runs have diverged.
    """
    check_types(config)
    config.check()
    configs = [_with_seed(config, seed) for seed in range(config.seed, config.seed + config.seeds)]
    runs = {run_config.seed: RunDirectory(run_config.directory) for run_config in configs}
    first_directory, last_seed = runs[config.seed].path, configs[-1].seed
    summary = first_directory.with_name(f"{first_directory.name}-to-{last_seed}.json")
    is_main = is_launcher()
    if is_main and not config.resume:
        parent = [RunDirectory(config.run_dir)] if config.run_dir is not None else []
        for run in (*parent, *runs.values()):
            run.check_free()  # before the first run is trained, and not hours later
    diverged: dict[int, Diverged] = {}
    for run_config in configs:
        run = runs[run_config.seed]
        is_finished = config.resume and run.read_results() and not changed_options(run, run_config)
        if not is_finished:
            for outdated in list(_summaries_with(run_config.seed, first_directory, config.seed)):
                outdated.unlink(missing_ok=True)  # its results will change
        if not is_finished or changed_options(run, run_config, paths=True):  # then `train` compares the data
            try:
                train(run_config)
            except Interrupted as error:
                resumable = any(run.best.exists() or run.last.exists() for run in runs.values())
                raise Interrupted(str(error), resumable=resumable) from None
            except Diverged as error:
                diverged[run_config.seed] = error
                if is_main:
                    print(f"seed {run_config.seed}: {error}", file=sys.stderr)
    if len(diverged) == len(runs):
        raise diverged[config.seed]
    if is_main:
        finished = {seed: run.path for seed, run in runs.items() if seed not in diverged}
        values = _summarize(finished, list(diverged))
        print(_text(values))
        write_json(summary, values)
        print(f"written: {summary}")


def _summaries_with(seed: int, first: Path, first_seed: int) -> Iterator[Path]:
    """The summary files that include the run with this seed.

    Args:
        seed: seed of the run.
        first: directory of another run, whose name ends in its seed.
        first_seed: the seed of that other run.
    """
    name = re.escape(first.name.removesuffix(str(first_seed)))
    for path in first.parent.glob("*-to-*.json"):
        match = re.fullmatch(rf"{name}(\d+)-to-(\d+)\.json", path.name)
        if match and int(match[1]) <= seed <= int(match[2]):
            yield path


def _with_seed(config: Config, seed: int) -> Config:
    """The configuration of the run with one of several seeds."""
    seeded = replace(config, seed=seed)
    return replace(seeded, seeds=1, run_dir=seeded.given_directory)


def _summarize(runs: Mapping[int, Path], diverged: list[int]) -> dict[str, Any]:
    """Compute mean and sample standard deviation of the results of several runs, as JSON values.

    Args:
        runs: the directories of the finished runs, by seed.
        diverged: the seeds of the others.
    Raises:
        UserError: a results.json is missing or damaged.
    """
    results_by_seed = {seed: read_json(RunDirectory(path).results) for seed, path in runs.items()}
    try:
        rows = {seed: _rows(results) for seed, results in results_by_seed.items()}
        names = dict.fromkeys(name for row in rows.values() for name in row)
        values = {name: {seed: row[name] for seed, row in rows.items() if name in row} for name in names}
        return {
            "part": next(iter(results_by_seed.values()))["part"],
            "runs": {seed: path.name for seed, path in runs.items()},
            "diverged": diverged,
            "results": {name: _summary(by_seed) for name, by_seed in values.items()},
        }
    except (AttributeError, LookupError, TypeError) as error:
        raise UserError(
            f"the results.json of one of {', '.join(map(str, runs.values()))} is damaged: {error}"
        ) from None


def _rows(results: dict[str, Any]) -> dict[str, float]:
    """The values of one run, by the names that they have in the summary."""
    rows = {"accuracy": results["accuracy"]}
    for title, groups in results["accuracy_by"].items():
        rows |= {f"{title} {name}": entry[0] for name, entry in groups.items()}
    for convention, scores in results["span_f1"].items():
        rows[f"F1, {convention.split(',')[0]}"] = scores["model"]
    if results.get("valid_trees"):
        rows["valid trees"] = results["valid_trees"]["model"]
    for name, value in rows.items():
        if not is_finite_number(value):
            raise TypeError(f"{name} must be a number, got {reprlib.repr(value)}")
    return rows


def _summary(values: dict[int, float]) -> dict[str, Any]:
    mean, deviation = mean_and_deviation(list(values.values()))
    return {"mean": mean, "deviation": deviation, "n": len(values), "values": values}


def _text(summary: dict[str, Any]) -> str:
    """Format what `_summarize` returned."""
    lines = [
        f"{count_text(len(summary['runs']), 'seed')}: mean ± sample standard deviation "
        f"({summary['part']} results of each)"
    ]
    if summary["diverged"]:
        lines.append(f"diverged, and not included: {', '.join(map(str, summary['diverged']))}")
    for name, row in summary["results"].items():
        value_texts = " ".join(fraction_text(value) for value in row["values"].values())
        only = "" if row["n"] == len(summary["runs"]) else f", n {row['n']}"
        lines.append(
            f"{name:>40}  {mean_text(row['mean'], row['deviation'], 4, whole=1)}  ({value_texts}{only})"
        )
    return "\n".join(lines)
