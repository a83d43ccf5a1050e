"""The subcommand for files of predictions: compare."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from tasks.formatting.tables import terminal_width
from tasks.predictions.comparison import compare_runs
from tasks.predictions.reading import read_runs
from tasks.predictions.report import results_text
from tasks.runs.command_line import Subcommand, run
from tasks.runs.command_options import ResultsConfig, print_after
from tasks.runs.errors import UserError


@dataclass(kw_only=True)
class CompareConfig(ResultsConfig):
    """Compare the predictions of runs for the same examples. Which run is better, and is the difference
    significant? Is the ensemble of all runs better? Do they find the same trees? With three runs or more: is
    the consensus of their trees better?"""

    files: Annotated[list[Path], tyro.conf.Positional]
    """Files that `evaluate --predictions` wrote, of any task. They may be compressed (.gz, .bz2, .xz)."""
    trees: tuple[str, ...] = ()
    """Which trees of each sentence to compare, where there are several: of tasks.parsing a layer and an
    algorithm such as "layer 2, unbiased", of other tasks "model" or a name in `other_trees`. If several are
    named, they are compared with each other, and answers are not. By default those of the model."""


def _compare(config: CompareConfig) -> None:
    config.set_up()
    if not config.files:
        raise UserError("give the files of predictions to compare")
    twice = [path for path, count in Counter(config.files).items() if count > 1]
    if twice:
        raise UserError(f"{twice[0]} is given twice")
    names = list(dict.fromkeys(config.trees))
    titles = zip(_short_names(config.files), config.files, strict=True)
    runs = [run for title, path in titles for run in read_runs(path, title, names)]
    if len(runs) < 2:
        raise UserError(f"expected predictions of two runs or more, got one: {runs[0].name}")
    results = compare_runs(runs)
    with print_after(results_text(results, terminal_width())):
        config.write(results)


def _short_names(paths: Sequence[Path]) -> list[str]:
    """Paths without the directory that all of them are in."""
    directory = os.path.commonpath([path.absolute().parent for path in paths])
    return [str(path.absolute().relative_to(directory)) for path in paths]


SUBCOMMANDS = {"compare": Subcommand(CompareConfig, _compare)}

main = partial(run, "tasks.predictions", SUBCOMMANDS)
