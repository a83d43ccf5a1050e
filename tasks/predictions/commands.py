"""The subcommands for files of predictions: compare and consensus."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from ordered_memory.brackets import to_brackets
from ordered_memory.consensus import consensus_trees
from tasks.formatting.tables import terminal_width
from tasks.predictions.comparison import check_same_examples, compare_runs
from tasks.predictions.reading import Run, read_runs
from tasks.predictions.report import results_text
from tasks.runs.command_line import Subcommand, run
from tasks.runs.command_options import CommandConfig, ResultsConfig, print_after
from tasks.runs.errors import UserError
from tasks.runs.files import check_writable_file, write_or_print


@dataclass(kw_only=True)
class RunsConfig(CommandConfig):
    """Runs."""

    files: Annotated[list[Path], tyro.conf.Positional]
    """Files that `evaluate --predictions` wrote, of any task. They may be compressed (.gz, .bz2, .xz)."""
    trees: tuple[str, ...] = ()
    """Which trees of each sentence to compare, where there are several: of tasks.parsing a layer and an
    algorithm such as "layer 2, unbiased", of other tasks "model" or a name in `other_trees`. If several are
    named, those of each are a run of its own, and answers are left out. By default those of the model."""

    def read(self) -> list[Run]:
        """Read the runs.

        Raises:
            UserError: there are fewer than two, or a file cannot be read or is given twice.
        """
        if not self.files:
            raise UserError("give the files of predictions")
        twice = [path for path, count in Counter(self.files).items() if count > 1]
        if twice:
            raise UserError(f"{twice[0]} is given twice")
        names = list(dict.fromkeys(self.trees))
        titles = zip(_short_names(self.files), self.files, strict=True)
        runs = [run for title, path in titles for run in read_runs(path, title, names)]
        if len(runs) < 2:
            raise UserError(f"expected predictions of two runs or more, got one: {runs[0].name}")
        return runs


@dataclass(kw_only=True)
class CompareConfig(RunsConfig, ResultsConfig):
    """Compare the predictions of runs for the same examples. Which run is better, and is the difference
    significant? Is the ensemble of all runs better? Do they find the same trees? With three runs or more: is
    the consensus of their trees better?"""


@dataclass(kw_only=True)
class ConsensusConfig(RunsConfig):
    """Print the trees that runs agree on most, one for each sentence, in brackets; tasks.parsing score reads
    them. The consensus of two runs has the trees of the first."""

    output: Path | None = None
    """Write the trees to this file; by default they are printed."""

    def check(self) -> None:
        super().check()
        check_writable_file("--output", self.output)


def _compare(config: CompareConfig) -> None:
    config.set_up()
    results = compare_runs(config.read())
    with print_after(results_text(results, terminal_width())):
        config.write(results)


def _consensus(config: ConsensusConfig) -> None:
    config.check()
    runs = config.read()
    check_same_examples(runs)
    without = [run.name for run in runs if not run.trees]
    if without:
        raise UserError(f"{without[0]} has no trees")
    trees = zip(consensus_trees([run.trees for run in runs]), runs[0].sentences, strict=True)
    write_or_print(config.output, "".join(f"{to_brackets(tree, words)}\n" for tree, words in trees))


def _short_names(paths: Sequence[Path]) -> list[str]:
    """Paths without the directory that all of them are in."""
    directory = os.path.commonpath([path.absolute().parent for path in paths])
    return [str(path.absolute().relative_to(directory)) for path in paths]


SUBCOMMANDS = {
    "compare": Subcommand(CompareConfig, _compare),
    "consensus": Subcommand(ConsensusConfig, _consensus),
}

main = partial(run, "tasks.predictions", SUBCOMMANDS)
