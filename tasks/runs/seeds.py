"""Train with several seeds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from tasks.formatting.summary import mean_and_deviation
from tasks.formatting.tables import count_text, mean_text, merge_names, number
from tasks.runs.config import TrainingConfig
from tasks.runs.errors import Diverged, Interrupted, UserError
from tasks.runs.files import is_finite_number, write_json
from tasks.runs.processes import is_main_process
from tasks.runs.run_directory import RunDirectory, tested_on_other_data
from tasks.runs.saved_config import changed_options, check_types

Config = TypeVar("Config", bound=TrainingConfig)
Values = Callable[[dict[str, Any]], Mapping[str, float]]


def train_seeds(
    train: Callable[[Config], None],
    config: Config,
    values: Values,
    *,
    digits: int = 4,
    whole: float | None = 1,
) -> None:
    """Train once for each of several seeds; print and write the mean and standard deviation.

    A run that diverges has no results: it is named beside those of the others.

    The file is next to the run directories and is named after the first one and the last seed, such as
    seed-1-to-3.json.

    Args:
        train: trains one run.
        config: the first run has the seed `seed`, the next `seed` + 1, and so on. The runs are saved in
            subdirectories of `run_dir`, if it is given. With `resume`, finished runs are skipped; those that
            were not tested on the same data as the others are tested again on the data of today. If a path
            differs from that of such a run, the training and validation data must still be the same.
        values: returns the numbers to summarize, by name, from the content of a results.json. It raises an
            AttributeError, LookupError or TypeError if this is damaged; such a run is tested again.
        digits: number of decimals to print.
        whole: what the numbers are fractions of, or None; see `number`.
    Raises:
        UserError: bad options, `run_dir` itself holds a run, or without `resume` one of the subdirectories
            does.
        Diverged: all runs have diverged.
    """
    check_types(config)
    config.check()
    configs = [_with_seed(config, seed) for seed in range(config.seed, config.seed + config.seeds)]
    runs = {run_config.seed: RunDirectory(run_config.directory) for run_config in configs}
    first_directory, last_seed = runs[config.seed].path, configs[-1].seed
    path = first_directory.with_name(f"{first_directory.name}-to-{last_seed}.json")
    is_main = is_main_process()
    if is_main and config.run_dir is not None and RunDirectory(config.run_dir).has_run():
        raise UserError(f"{config.run_dir}: already holds a run; --seeds needs another --run-dir")
    for run in runs.values() if is_main and not config.resume else ():
        run.check_free()  # before the first run is trained, and not hours later
    diverged: dict[int, Diverged] = {}
    skipped: list[Config] = []
    for run_config in configs:
        run = runs[run_config.seed]
        has_values = config.resume and _values_of(run, values) is not None
        is_finished = has_values and not changed_options(run, run_config)
        if is_main and config.resume and not has_values:
            run.remove_results()  # those that are damaged, and the summaries of them
        if not is_finished or changed_options(run, run_config, paths=True):  # then `train` compares the data
            diverged |= _train_one(train, run_config, runs)
        else:
            skipped.append(run_config)
    each_has_its_own_data = config.generates_data and config.data_seed is None
    if skipped and not each_has_its_own_data and tested_on_other_data(list(runs.values())):
        for run_config in skipped:  # a run whose test data are those of today is left as it is
            diverged |= _train_one(train, run_config, runs)
    if len(diverged) == len(runs):
        raise diverged[config.seed]
    if is_main:
        finished = {seed: run for seed, run in runs.items() if seed not in diverged}
        summary = _summarize(finished, list(diverged), values)
        print(_text(summary, digits, whole))
        write_json(path, summary)
        print(f"written: {path}")


def _train_one(
    train: Callable[[Config], None], config: Config, runs: Mapping[int, RunDirectory]
) -> dict[int, Diverged]:
    """Train one of the runs; if it diverges, return its seed and the error."""
    try:
        train(config)
    except Interrupted as error:
        resumable = any(run.best.exists() or run.last.exists() for run in runs.values())
        raise Interrupted(str(error), resumable=resumable) from None
    except Diverged as error:
        if is_main_process():
            print(f"seed {config.seed}: {error}", file=sys.stderr)
        return {config.seed: error}
    return {}


def _with_seed(config: Config, seed: int) -> Config:
    """The configuration of the run with one of several seeds."""
    seeded = replace(config, seed=seed)
    return replace(seeded, seeds=1, run_dir=seeded.given_directory)


def _values_of(run: RunDirectory, values: Values) -> dict[str, float] | None:
    """The numbers of a run to summarize; None if it has no results, or damaged ones."""
    try:
        results = run.read_results()
        row = {} if results is None else dict(values(results))
    except (AttributeError, LookupError, TypeError, UserError):
        return None
    return row if row and all(map(is_finite_number, row.values())) else None


def _summarize(runs: Mapping[int, RunDirectory], diverged: list[int], values: Values) -> dict[str, Any]:
    """Compute mean and sample standard deviation of the results of several runs, as JSON values.

    Args:
        runs: the finished runs, by seed.
        diverged: the seeds of the others.
        values: see `train_seeds`.
    Raises:
        UserError: a results.json is missing or damaged.
    """
    rows: dict[int, dict[str, float]] = {}
    for seed, run in runs.items():
        row = _values_of(run, values)
        if row is None:
            raise UserError(f"{run.results}: missing or damaged")
        rows[seed] = row
    names = merge_names(rows.values())
    by_name = {name: {seed: row[name] for seed, row in rows.items() if name in row} for name in names}
    results = next(iter(runs.values())).read_results() or {}
    return {
        "part": results.get("part"),
        "runs": {seed: run.path.name for seed, run in runs.items()},
        "diverged": diverged,
        "results": {name: _summary(by_seed) for name, by_seed in by_name.items()},
    }


def _summary(values: dict[int, float]) -> dict[str, Any]:
    mean, deviation = mean_and_deviation(list(values.values()))
    return {"mean": mean, "deviation": deviation, "n": len(values), "values": values}


def _text(summary: dict[str, Any], digits: int, whole: float | None) -> str:
    """Format what `_summarize` returned."""
    of_part = f" ({summary['part']} results of each)" if summary["part"] else ""
    lines = [f"{count_text(len(summary['runs']), 'seed')}: mean ± sample standard deviation{of_part}"]
    if summary["diverged"]:
        lines.append(f"diverged, and not included: {', '.join(map(str, summary['diverged']))}")
    for name, row in summary["results"].items():
        value_texts = " ".join(number(value, digits, whole) for value in row["values"].values())
        only = "" if row["n"] == len(summary["runs"]) else f", n {row['n']}"
        mean = mean_text(row["mean"], row["deviation"], digits, whole)
        lines.append(f"{name:>40}  {mean}  ({value_texts}{only})")
    return "\n".join(lines)
