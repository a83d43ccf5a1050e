"""The subcommands: one for each table, and one that lists the tables."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from functools import partial
from typing import Any

from tasks.formatting.tables import count_text, duration_text, text_table
from tasks.parsing.treebank import read_treebank
from tasks.reproduce import onlstm_tables, ordered_memory_tables
from tasks.reproduce.config import ReproduceConfig, runs_of, warn_of_unused_data
from tasks.reproduce.estimate import Estimator
from tasks.reproduce.execution import Job, Workers, submit
from tasks.reproduce.output import text, write
from tasks.reproduce.results import collect
from tasks.reproduce.runs import Kind, Run
from tasks.reproduce.table import TableSpec
from tasks.runs.command_line import Subcommand
from tasks.runs.command_line import run as run_command_line
from tasks.runs.errors import Interrupted, UserError
from tasks.runs.files import check_writable_directory
from tasks.runs.threads import count_cores
from tasks.syntax_eval.pairs import read_pairs

TABLES: dict[str, TableSpec] = {**ordered_memory_tables.TABLES, **onlstm_tables.TABLES}
"""All tables, by their names on the command line."""


@dataclass
class ListConfig:
    """List the tables."""


def _list(config: ListConfig) -> None:
    for name, table in TABLES.items():
        print(f"{name:<18}  {table.title}")


def run_table(name: str, config: ReproduceConfig) -> None:
    """Train and evaluate what a table lacks, and write the table; with `dry_run`, only list its runs.

    Args:
        name: name of the table.
        config: the options.
    Raises:
        UserError: a bad option, missing data, or a run has failed (the table is written nevertheless).
        Interrupted: stopped by Ctrl-C or SIGTERM; all runs have saved a checkpoint.
    """
    table = TABLES[name]
    runs = runs_of(table, config)
    warn_of_unused_data(runs, config)
    if config.dry_run:
        print(_plan(runs, config))
        return
    check_writable_directory("--directory", config.directory)
    _check_evaluation_data(runs, config)
    try:
        failed = _carry_out(runs, config)
    except KeyboardInterrupt:
        raise Interrupted("stopped; run the same command again to continue", resumable=False) from None
    results = collect(name, table, config, runs)
    print(f"\n{text(results)}\n")
    print("\n".join(f"written: {path}" for path in write(results, config.directory)))
    # A run that has diverged counts as a result, not as a failure.
    failed = [run.name for run in runs if run.name in failed and run.state().kind != Kind.DIVERGED]
    if failed:
        raise UserError(f"{len(failed)} of {len(runs)} runs failed: {', '.join(failed)}")


def _check_evaluation_data(runs: Sequence[Run], config: ReproduceConfig) -> None:
    """Read treebank and minimal pairs before the training of hours that they are for.

    Raises:
        UserError: one of them is missing or cannot be used.
    """
    left = {
        evaluation.task for run in runs for evaluation in run.evaluations if not run.is_evaluated(evaluation)
    }
    if config.preset == "demo":  # they are generated
        return
    if "parsing" in left and config.treebank is not None:
        read_treebank(config.treebank)
    if "syntax_eval" in left and config.pairs is not None:
        read_pairs(config.pairs)


def _carry_out(runs: Sequence[Run], config: ReproduceConfig) -> list[str]:
    """Execute the remaining commands of all runs; return the names of the runs that failed."""
    deadline = None if config.budget is None else time.monotonic() + 3600 * config.budget
    is_local, threads = config.executor == "local", config.threads_of_a_run
    jobs = []
    for run in runs:
        commands = tuple(run.commands(threads))
        # With several jobs, each run prints to its own log.
        log = None if not is_local or config.jobs == 1 else run.files.path / "log.txt"
        if commands:
            jobs.append(Job(run.name, commands, log))
    if not jobs:
        return []
    print(f"{len(jobs)} of {len(runs)} runs are not done", flush=True)
    if is_local:
        return Workers(config.jobs, deadline).run(jobs)
    parameters: dict[str, Any] = {
        "timeout_min": max(1, round(60 * config.time)),
        "gpus_per_node": config.gpus,
        "cpus_per_task": config.threads or 1,
        "slurm_partition": config.partition,
    }
    # For an option that is not given, submitit or the cluster has a default.
    given_parameters = {name: value for name, value in parameters.items() if value}
    return submit(jobs, config.directory / "jobs", deadline=deadline, **given_parameters)


def _plan(runs: Sequence[Run], config: ReproduceConfig) -> str:
    """Format a table of the runs with their states and estimated remaining times."""
    estimator = Estimator(config.threads_of_a_run)
    seconds_left = [estimator.seconds_left(run) for run in runs]
    rows = [
        [run.name, run.state().text, "unknown" if seconds is None else duration_text(seconds)]
        for run, seconds in zip(runs, seconds_left, strict=True)
    ]
    known_seconds = [seconds for seconds in seconds_left if seconds is not None]
    if config.executor == "slurm":
        where = " in all, timed on this machine's CPU"
    else:
        where = ", one after another" if config.jobs == 1 else f", {config.jobs} at a time"
    total = count_text(len(runs), "run")
    if known_seconds:
        total += f", about {duration_text(_time_of_all(known_seconds, config.jobs))} of training left{where}"
    if len(known_seconds) < len(runs):
        can_time = (config.threads or 1) <= count_cores()
        reason = "their data cannot be read" if can_time else "this machine has fewer cores than --threads"
        total += f"; {len(runs) - len(known_seconds)} not estimated, since {reason}"
    return f"{text_table(['run', 'state', 'training left'], rows)}\n\n{total}"


def _time_of_all(seconds: Sequence[float], jobs: int) -> float:
    """The time that all runs take on `jobs` workers, each of which starts the next run when it is free."""
    busy_until = [0.0] * jobs
    for duration in seconds:
        heapq.heapreplace(busy_until, busy_until[0] + duration)
    return max(busy_until)


SUBCOMMANDS = {
    "list": Subcommand(ListConfig, _list),
    **{
        name: Subcommand(
            make_dataclass("TableConfig", [], bases=(ReproduceConfig,), namespace={"__doc__": table.title}),
            partial(run_table, name),
        )
        for name, table in TABLES.items()
    },
}

main = partial(run_command_line, "tasks.reproduce", SUBCOMMANDS)
