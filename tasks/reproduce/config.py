"""Options of the command, and what they mean for the runs of a table."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tasks.reproduce.layout import Evaluation, Table, Training, trainings_of
from tasks.reproduce.runs import Run
from tasks.runs.errors import UserError
from tasks.runs.options import check_at_least, check_positive, flag

DEMO_MINUTES = 4.0
"""Minutes of training that one seed of a demonstration has for all its runs together."""
DEMO_OPTIONS: dict[str, tuple[str, ...]] = {
    "listops": ("--expressions", "20000"),
    "logic": ("--generated", "10000"),
    "sst": ("--generated", "2000"),
    "language_model": ("--sentences", "10000"),
}
DEMO_EVALUATIONS: dict[str, tuple[str, ...]] = {
    "listops": ("--size", "100"),
    "syntax_eval": ("--count", "50"),
}
"""Options of a demonstration, by task."""


@dataclass
class DataConfig:
    """The data. A demonstration draws its own."""

    listops_data: Path | None = None
    """Directory with train_d20s.tsv and test_d20s.tsv; None to draw expressions."""
    logic_data: Path | None = None
    """Directory with train0 … test12; None to fetch the official files."""
    sst_data: Path | None = None
    """Directory with train.txt, dev.txt and test.txt; None to fetch the official treebank."""
    vectors: tuple[str, ...] = ()
    """Files of word vectors, as `tasks.sst --vectors` takes them; none for its default."""
    text_data: Path | None = None
    """Directory with train.txt, valid.txt and test.txt, for language models."""
    treebank: Path | None = None
    """True trees, as `tasks.parsing --treebank` takes them."""
    pairs: Path | None = None
    """Minimal pairs, as `tasks.syntax_eval --pairs` takes them."""


@dataclass
class ExecutorConfig:
    """Where the runs are computed."""

    jobs: int = 1
    """Runs at a time on this machine."""
    threads: int | None = None
    """CPU threads of each run; by default, with several --jobs, an equal share of the cores."""
    executor: Literal["here", "slurm"] = "here"
    """`slurm` gives each run a job on a Slurm cluster, through submitit: pip install '.[cluster]'."""
    partition: str | None = None
    """Slurm partition."""
    time: float = 24.0
    """Hours that a Slurm job may take; one that needs more is queued again and goes on."""
    gpus: int = 0
    """GPUs of each Slurm job."""


@dataclass
class ReproduceConfig(DataConfig, ExecutorConfig):
    """A table."""

    seeds: int = 1
    """Runs of each configuration, with seeds from 1 on."""
    only: tuple[str, ...] = ()
    """Only the rows of these models."""
    preset: Literal["paper", "small", "demo"] = "paper"
    """Of every run: `paper` is the papers' configuration, `small` a smaller one that sentiment and language
    models have, `demo` a small table on drawn data in less than ten minutes."""
    budget: float | None = None
    """Hours after which runs are stopped, to be continued by the same command, and the table is written."""
    dry_run: bool = False
    """Only list the runs, how far each is, and about how long it will take."""
    directory: Path = Path("runs", "reproduce")
    """Holds the runs, which tables share, and the tables."""

    def check(self, table: Table) -> None:
        """Raise a UserError that names the first option out of range.

        Args:
            table: the one asked for.
        """
        check_at_least(1, self, "seeds", "jobs", "threads")
        check_at_least(0, self, "gpus")
        check_positive(self, "budget", "time")
        if self.preset not in table.presets:
            raise UserError(f"--preset must be one of {', '.join(table.presets)}, got {self.preset}")
        models = dict.fromkeys(row.model for row in table.rows if row.cells)
        for name in self.only:
            if name not in models:
                raise UserError(f"--only must name models of {', '.join(models)}, got {name}")

    @property
    def demo(self) -> bool:
        """Whether this is the demonstration."""
        return self.preset == "demo"

    @property
    def threads_of_a_run(self) -> int | None:
        """Threads of each run; None leaves it to PyTorch."""
        if self.threads is not None or self.jobs == 1 or self.executor != "here":
            return self.threads
        return max(1, (os.cpu_count() or 1) // self.jobs)


def runs_of(table: Table, config: ReproduceConfig) -> list[Run]:
    """The runs that a call needs, all of the first seed first.

    Args:
        table: the one asked for.
        config: the options.
    Raises:
        UserError: a bad option, data are missing, or a directory holds another run.
    """
    config.check(table)
    needed = trainings_of(*table.select(demo=config.demo, only=config.only))
    minutes = DEMO_MINUTES / len(trainings_of(*table.select(demo=config.demo)))
    runs = [
        Run(
            training,
            seed,
            config.directory,
            config.preset,
            _training_options(training, config, minutes),
            tuple((one, _with_data(one, config)) for one in evaluations),
        )
        for seed in range(1, config.seeds + 1)
        for training, evaluations in needed.items()
    ]
    for run in runs:
        run.check()
    return runs


def _training_options(training: Training, config: ReproduceConfig, minutes: float) -> tuple[str, ...]:
    """Where the data of a run are, or how many to draw and how long to train."""
    if config.demo:
        return (*DEMO_OPTIONS[training.task], "--max-minutes", f"{minutes:.2f}")
    match training.task:
        case "listops":
            return _option("--data-dir", config.listops_data)
        case "logic":
            return _option("--data-dir", config.logic_data)
        case "sst":
            vectors = ("--vectors", *config.vectors) if config.vectors else ()
            return (*_option("--data-dir", config.sst_data), *vectors)
        case _:
            return _option("--data-dir", _required(config, "text_data"))


def _with_data(evaluation: Evaluation, config: ReproduceConfig) -> Evaluation:
    """An evaluation with what it reads, or how much to draw."""
    task, options = evaluation
    if config.demo:
        return Evaluation(task, (*options, *DEMO_EVALUATIONS.get(task, ())))
    names = {"parsing": "treebank", "syntax_eval": "pairs"}
    if task not in names:
        return evaluation
    path = _required(config, names[task])
    return Evaluation(task, (*options, *_option(flag(names[task]), path)))


def _required(config: ReproduceConfig, name: str) -> Path:
    path: Path | None = getattr(config, name)
    if path is None:
        raise UserError(f"{flag(name)} must be given for this table, unless --preset is demo")
    return path


def _option(name: str, path: Path | None) -> tuple[str, ...]:
    return () if path is None else (name, str(path))
