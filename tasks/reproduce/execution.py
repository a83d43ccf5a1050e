"""Where runs are computed: on this machine, some at a time, or each as a job of a Slurm cluster.

A run is a list of command lines. Whatever stops them, they go on from there when they are asked for again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import tasks
from tasks.runs.errors import UserError

CHECKOUT = Path(tasks.__file__).parents[1]
EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class Work:
    """What is left of a run.

    Args:
        name: of the run.
        commands: what follows `python -m`, in order.
        log: a file for what they print; None for the terminal.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    log: Path | None = None

    def __call__(self) -> int:
        """Carry out the commands as a job of a cluster.

        Returns:
            The exit status of the first that fails, or 0.
        """
        return Workers(1).complete(self)

    def checkpoint(self) -> Any:
        """What submitit queues when the time of the job is over: the same, which goes on."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


class Workers:
    """Carries out some works at a time on this machine.

    Args:
        jobs: how many.
        deadline: of `time.monotonic`; None for none.
    """

    def __init__(self, jobs: int, deadline: float | None = None) -> None:
        self.jobs, self.deadline = jobs, deadline
        self._lock = Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(self, works: Sequence[Work]) -> list[str]:
        """Carry out all, until they are done or the deadline is over.

        Args:
            works: in order.
        Returns:
            Names of those that failed.
        Raises:
            KeyboardInterrupt: after every command that ran has saved its state and ended.
        """
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                found = {work.name: pool.submit(self.complete, work) for work in works}
                return [name for name, one in found.items() if one.result() not in (0, EXIT_INTERRUPTED)]
            except KeyboardInterrupt:
                self._stop()
                raise

    def complete(self, work: Work) -> int:
        """Carry out the commands of a work, one after another.

        Args:
            work: any.
        Returns:
            The exit status of the first that fails, or 0; 130 for what is stopped.
        """
        with ExitStack() as stack:
            log = None
            if work.log is not None:
                work.log.parent.mkdir(parents=True, exist_ok=True)
                log = stack.enter_context(work.log.open("ab"))
                print(f"{work.name}: started, prints to {work.log}", flush=True)
            for words in work.commands:
                status = self._command(words, log)
                if status:
                    return status
        return 0

    def _command(self, words: Sequence[str], log: Any) -> int:
        path = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
        with self._lock:
            if self._stopped or self._seconds_left() == 0:
                return EXIT_INTERRUPTED
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT if log is not None else None,
                start_new_session=True,  # Ctrl-C is ours to pass on, once
            )
            self._running.add(process)
        try:
            return process.wait(self._seconds_left())
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            return EXIT_INTERRUPTED
        finally:
            with self._lock:
                self._running.discard(process)

    def _stop(self) -> None:
        """Ask every command to save and end, and start no more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.terminate()

    def _seconds_left(self) -> float | None:
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


def submit(
    works: Sequence[Work],
    folder: Path,
    *,
    cluster: str = "slurm",
    deadline: float | None = None,
    poll: float = 10.0,
    **parameters: Any,
) -> list[str]:
    """Carry out each work as a job of a cluster, through submitit, and wait for all.

    Args:
        works: without logs, which submitit keeps.
        folder: for its files; on a cluster, on a file system that all nodes see.
        cluster: `slurm`, or `local` for processes of this machine.
        deadline: of `time.monotonic`, when jobs are cancelled; None for none.
        poll: seconds between looks at the jobs.
        parameters: of `submitit.AutoExecutor.update_parameters`.
    Returns:
        Names of those that failed.
    Raises:
        UserError: submitit is not installed, or there is no such cluster.
        KeyboardInterrupt: after the jobs were cancelled.
    """
    try:
        import submitit
        from submitit import helpers
    except ImportError:
        raise UserError("--executor slurm needs submitit: pip install '.[cluster]'") from None
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
    except RuntimeError as error:
        raise UserError(f"--executor {cluster}: {error}") from None
    executor.update_parameters(**parameters)
    jobs = {work.name: executor.submit(work) for work in works}
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    try:
        for _ in helpers.as_completed(list(jobs.values()), left, poll):
            pass
    except TimeoutError:
        _cancel(jobs.values())
        return []
    except KeyboardInterrupt:
        _cancel(jobs.values())
        raise
    return [name for name, job in jobs.items() if job.exception() is not None or job.result()]


def _cancel(jobs: Any) -> None:
    for job in jobs:
        job.cancel()
