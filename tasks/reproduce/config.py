"""Options of the command, and the runs of a table that follow from them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from tasks.reproduce.runs import LONGEST_NAME, Run
from tasks.reproduce.table import TableSpec, trainings_of
from tasks.runs.config import Precision
from tasks.runs.errors import UserError
from tasks.runs.options import (
    check_at_least,
    check_positive,
    check_unused,
    flag,
    option_words,
    warn_of_unused,
)
from tasks.runs.threads import check_threads, count_cores

DEMO_MINUTES = 4.0
"""Minutes of training of the `demo` preset, for all runs of one seed together."""
DEMO_OPTIONS: dict[str, tuple[str, ...]] = {
    "listops": ("--expressions", "20000"),
    "logic": ("--generated", "10000"),
    "sst": ("--generated", "2000"),
    "language_model": ("--sentences", "10000"),
}
"""Options of training that the `demo` preset adds, by task: they generate little data."""
TAKEN = {
    "--data-dir",
    "--help",
    "--max-minutes",
    "--precision",
    "--preset",
    "--resume",
    "--run-dir",
    "--seed",
    "--seeds",
    "--threads",
}
"""Options of training that cannot be among `--train-options`."""
TRAINING_DATA: dict[str, dict[str, str]] = {
    "listops": {"listops_data": "data_dir"},
    "logic": {"logic_data": "data_dir"},
    "sst": {"sst_data": "data_dir", "vectors": "vectors"},
    "language_model": {"text_data": "data_dir"},
}
"""The fields of `DataConfig` that training uses, and the names of the task's own fields, by task."""
EVALUATION_DATA: dict[str, dict[str, str]] = {
    "parsing": {"treebank": "treebank"},
    "syntax_eval": {"pairs": "pairs"},
}
"""The same for evaluations."""
REQUIRED_DATA = {"text_data", "treebank", "pairs"}
"""Fields of `DataConfig` without which tasks that use them have no data."""
DEMO_EVALUATIONS: dict[str, tuple[str, ...]] = {
    "listops": ("--size", "100"),
    "syntax_eval": ("--count", "50"),
}
"""Options of evaluations that the `demo` preset adds, by task: they make the tests small."""


@dataclass
class DataConfig:
    """Data; each table uses the options of its own tasks. The `demo` preset generates its data."""

    listops_data: Path | None = None
    """Directory with train_d20s.tsv and test_d20s.tsv; None to generate expressions."""
    logic_data: Path | None = None
    """Directory with train0 … test12; None to download the official files."""
    sst_data: Path | None = None
    """Directory with train.txt, dev.txt and test.txt; None to download the official treebank."""
    vectors: tuple[str, ...] = ()
    """Files of word vectors, as for `tasks.sst --vectors`; by default, the default of that option."""
    text_data: Path | None = None
    """Directory with train.txt, valid.txt and test.txt, for language models."""
    treebank: Path | None = None
    """True trees, as for `tasks.parsing --treebank`."""
    pairs: Path | None = None
    """Minimal pairs, as for `tasks.syntax_eval --pairs`."""


@dataclass
class ExecutorConfig:
    """Execution."""

    jobs: int = 1
    """Number of runs to train at the same time on this machine."""
    threads: int | None = None
    """CPU threads per run; by default, with several --jobs, the cores are divided equally. With --executor
    slurm, also the CPUs of a job, by default 1."""
    precision: Precision = "32-true"
    """Floating-point precision of training, as in Lightning Fabric. Runs that are already trained are not
    trained again. A note below the table names the runs that were not trained in 32-true."""
    executor: Literal["local", "slurm"] = "local"
    """`local` runs on this machine; `slurm` submits one Slurm job per run with submitit (pip install
    '.[cluster]')."""
    partition: str | None = None
    """Slurm partition."""
    time: float = 24.0
    """Time limit of a Slurm job in hours; a job that needs more is requeued and resumes."""
    gpus: int = 0
    """Number of GPUs per Slurm job."""


@dataclass
class ReproduceConfig(DataConfig, ExecutorConfig):
    """Reproduce a table."""

    seeds: int = 1
    """Number of runs for each configuration, with the seeds 1, 2, …"""
    only: tuple[str, ...] = ()
    """Only the rows of these models."""
    columns: tuple[str, ...] = ()
    """Only these columns, and only the runs that they need."""
    preset: Literal["paper", "curriculum", "small", "demo"] = "paper"
    """Preset of all runs: `paper` has the configurations of the papers; `curriculum` (ListOps and logic) adds
    to them short examples first, averaged weights and --restore-best; `small` (sentiment and language models)
    has smaller ones; `demo` makes a small table on generated data in less than ten minutes."""
    train_options: tuple[str, ...] = ()
    """Options of training for all runs, without the two dashes: `curriculum-epochs=5 restore-best`, or
    `adam-betas="0.9 0.999"` for several values. Such runs, and the table, have files of their own."""
    budget: float | None = None
    """Stop the runs after this many hours and write the table; the same command continues them."""
    max_minutes: float | None = None
    """Maximum minutes of training per run. Give a higher number later to continue the runs that the limit
    stopped. By default there is no limit (`demo` has its own), and runs that an earlier limit stopped are not
    continued."""
    dry_run: bool = False
    """Only list the runs, their states and their remaining times, estimated from a few training steps of each
    configuration."""
    directory: Path = Path("runs", "reproduce")
    """Directory for the tables and their runs. A run that several tables need is trained only once."""

    def check(self, table: TableSpec) -> None:
        """Raise a UserError if an option is invalid or has no effect; the message names the option.

        Args:
            table: the table to reproduce.
        """
        check_at_least(1, self, "seeds", "jobs", "threads")
        if self.executor == "local":
            check_threads(self.threads)
            unused = dict.fromkeys(("partition", "time", "gpus"), "without --executor slurm")
        else:
            unused = {"jobs": "with --executor slurm"}
        check_unused(self, ReproduceConfig, unused)
        if self.directory.exists() and not self.directory.is_dir():
            raise UserError(f"--directory {self.directory}: is not a directory")
        check_at_least(0, self, "gpus")
        check_positive(self, "budget", "time", "max_minutes")
        if self.preset not in table.presets:
            raise UserError(f"--preset must be one of {', '.join(table.presets)}, got {self.preset}")
        models = dict.fromkeys(row.model for row in table.rows if row.cells)
        for name in self.only:
            if name not in models:
                raise UserError(f"--only must name models of {', '.join(models)}, got {name}")
        columns = table.columns_of(self.preset)
        for name in self.columns:
            if name not in columns:
                raise UserError(f"--columns must name columns of {', '.join(columns)}, got {name}")

    @property
    def threads_of_a_run(self) -> int | None:
        """CPU threads of each run; None for PyTorch's default."""
        if self.threads is not None or self.jobs == 1 or self.executor != "local":
            return self.threads
        return max(1, count_cores() // self.jobs)


def runs_of(table: TableSpec, config: ReproduceConfig) -> list[Run]:
    """List the runs that a table needs: all of the first seed, then all of the next one.

    Args:
        table: the table to reproduce.
        config: the options.
    Raises:
        UserError: a bad option, missing data, or the directory of a run holds one with other options.
    """
    config.check(table)
    needed = trainings_of(*table.select(config.preset, models=config.only, columns=config.columns))
    if not needed:
        names = " ".join(config.columns)
        raise UserError(f"--columns {names}: the models of --only have no results in these columns")
    train_options = parse_options(config.train_options)
    limit = config.max_minutes
    if limit is None and config.preset == "demo":
        limit = round(DEMO_MINUTES / len(trainings_of(*table.select("demo"))), 2)
    common_options: tuple[str, ...] = ("--precision", config.precision)
    if limit is not None:
        common_options += ("--max-minutes", str(limit))
    runs = [
        Run(
            training,
            seed,
            config.directory,
            config.preset,
            (*_task_options(training.task, DEMO_OPTIONS, TRAINING_DATA, config), *common_options),
            {
                spec: (*spec.options, *_task_options(spec.task, DEMO_EVALUATIONS, EVALUATION_DATA, config))
                for spec in evaluations
            },
            extends=config.max_minutes is not None,
            train_options=train_options,
        )
        for seed in range(1, config.seeds + 1)
        for training, evaluations in needed.items()
    ]
    for run in runs:
        _check_train_options(run)
        run.check()
    return runs


def warn_of_unused_data(runs: Sequence[Run], config: ReproduceConfig) -> None:
    """Warn on standard error if an option for data is given that no run uses.

    Args:
        runs: the runs that the options need.
        config: the options.
    """
    if config.preset == "demo":
        used, reason = set(), "with --preset demo"
    else:
        used = {field for run in runs for field in TRAINING_DATA[run.training.task]}
        evaluations = {evaluation for run in runs for evaluation in run.evaluations}
        used |= {field for task, _ in evaluations for field in EVALUATION_DATA.get(task, {})}
        reason = "in the runs of this table"
    unused = {field.name: reason for field in fields(DataConfig) if field.name not in used}
    warn_of_unused(config, ReproduceConfig, unused)


def parse_options(options: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line for the values of `--train-options`.

    Args:
        options: NAME or NAME=VALUE each; a VALUE is split at white space, as in a shell.
    Raises:
        UserError: one of them is not of this form.
    Example:
        >>> parse_options(["restore-best", "adam-betas=0.9 0.999"])
        ('--restore-best', '--adam-betas', '0.9', '0.999')
    """
    words: list[str] = []
    for text in options:
        name, _, value = text.partition("=")
        try:
            values = shlex.split(value)
        except ValueError as error:
            raise UserError(f"--train-options {text!r}: {error}") from None
        if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
            raise UserError(f"--train-options must be of the form NAME or NAME=VALUE, got {text!r}")
        words += [flag(name), *values]
    return tuple(words)


def _check_train_options(run: Run) -> None:
    """Raise a UserError if `--train-options` has what is set elsewhere, or is too long for a name."""
    taken = {word for word in (*run.training.options, *run.options) if word.startswith("--")} | TAKEN
    for word in run.train_options:
        option, _, _ = word.partition("=")
        if option.replace("--no-", "--") in taken:
            name = option.removeprefix("--")
            raise UserError(
                f"--train-options must not contain {name}, which the table or another option sets"
            )
    if len(run.files.path.name.encode()) > LONGEST_NAME:
        raise UserError(f"--train-options are too long for the name of a directory: {run.files.path.name}")


def _task_options(
    task: str,
    demo: Mapping[str, tuple[str, ...]],
    data: Mapping[str, Mapping[str, str]],
    config: ReproduceConfig,
) -> tuple[str, ...]:
    """What is added to the options of the table: those of the `demo` preset, or those for the data."""
    if config.preset == "demo":
        return demo.get(task, ())
    words: list[str] = []
    for field, name in data.get(task, {}).items():
        value = getattr(config, field)
        if value is None and field in REQUIRED_DATA:
            raise UserError(f"{flag(field)} must be given for this table, unless --preset is demo")
        if value:
            words += option_words(name, value)
    return tuple(words)
