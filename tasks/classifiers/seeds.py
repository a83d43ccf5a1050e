"""Train a classifier with several seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from tasks.classifiers.encoders import EncoderConfig
from tasks.reporting.summary import mean_and_deviation
from tasks.reporting.tables import number
from tasks.runs.errors import UserError
from tasks.runs.options import check_at_least
from tasks.runs.run_directory import RunDirectory, changed_options, read_json


@dataclass
class ClassifierConfig(EncoderConfig):
    """Several seeds."""

    seeds: int = 1
    """Number of runs, with the seeds --seed, --seed + 1, …; their mean and standard deviation are printed."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "seeds")


Config = TypeVar("Config", bound=ClassifierConfig)


def train_seeds(train: Callable[[Config], None], config: Config) -> None:
    """Train once for each seed; for several seeds, print the mean and standard deviation of the results.

    Args:
        train: trains one run.
        config: the first run has the seed `seed`, the next `seed` + 1, and so on. Several runs are saved in
            subdirectories of `run_dir`, if it is given. With `resume`, finished runs are skipped.
    """
    if config.seeds == 1:
        train(config)
        return
    config.check()
    runs = []
    for seed in range(config.seed, config.seed + config.seeds):
        place = None if config.run_dir is None else config.run_dir / f"seed-{seed}"
        one = replace(config, seed=seed, seeds=1, run_dir=place)
        run = RunDirectory(one.directory)
        if not (config.resume and run.read_results() and not changed_options(run, one)):
            train(one)
        runs.append(one.directory)
    try:
        print(_seeds_text(runs))
    except (LookupError, TypeError) as error:
        raise UserError(
            f"the results.json of one of {', '.join(map(str, runs))} is damaged: {error}"
        ) from None


def _seeds_text(runs: Sequence[Path]) -> str:
    """Format the mean and sample standard deviation of the results of several runs."""
    results = [read_json(RunDirectory(run).results) for run in runs]
    lines = [f"{len(results)} seeds: mean ± sample standard deviation ({results[0]['part']} results of each)"]

    def line(name: str, values: Sequence[float]) -> str:
        mean, deviation = mean_and_deviation(values)
        each = " ".join(f"{value:.4f}" for value in values)
        return f"{name:>40}  {mean:.4f} ± {number(deviation, 4)}  ({each})"

    lines.append(line("accuracy", [result["accuracy"] for result in results]))
    for title in results[0]["accuracy_by"]:
        groups = [result["accuracy_by"].get(title, {}) for result in results]
        for name in dict.fromkeys(name for group in groups for name in group):
            of_each = [group.get(name) for group in groups]
            lines.append(line(f"{title} {name}", [found[0] for found in of_each if found is not None]))
    for convention in results[0]["span_f1"]:
        values = [result["span_f1"][convention]["model"] for result in results]
        lines.append(line(f"F1, {convention.split(',')[0]}", values))
    if results[0].get("valid_trees"):
        lines.append(line("valid trees", [result["valid_trees"]["model"] for result in results]))
    return "\n".join(lines)
