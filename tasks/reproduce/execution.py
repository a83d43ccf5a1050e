"""Execute runs, on this machine or as jobs of a Slurm cluster.

A run is a list of command lines. If they are stopped for any reason, they resume when they are executed
again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import tasks
from tasks.runs.errors import EXIT_INTERRUPTED, UserError
from tasks.runs.stop_signals import TerminalClosed

CHECKOUT = Path(tasks.__file__).parents[1]
"""The directory of the package `tasks`, which commands import from any working directory."""
MAX_REQUEUES = 1_000
"""How many times a job of a cluster is requeued at its time limit; by default, submitit stops after three."""


@dataclass(frozen=True)
class Job:
    """The remaining commands of a run.

    Args:
        name: name of the run.
        commands: the arguments of `python -m`, in order.
        log: file for their output; None for the terminal.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    log: Path | None = None

    def __call__(self) -> int:
        """Execute the commands; submitit calls this on the cluster.

        Returns:
            The exit status of the first command that fails, or 0.
        """
        return _of_a_job.complete(self)

    def checkpoint(self) -> Any:
        """Called by submitit shortly before the time limit: requeue the same commands, which resume.

        The running one saves its state before. By default, Slurm does not tell it to: it signals the process
        of the job alone.
        """
        from submitit.helpers import DelayedSubmission

        _of_a_job.finish()
        return DelayedSubmission(self)


class Workers:
    """Executes jobs on this machine.

    Args:
        max_jobs: number of jobs to execute at the same time.
        deadline: time at which running commands are told to save and end, and after which no others start,
            as a value of `time.monotonic()`; None for no deadline.
    """

    def __init__(self, max_jobs: int, deadline: float | None = None) -> None:
        self.max_jobs, self.deadline = max_jobs, deadline
        self._lock = Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(self, jobs: Sequence[Job]) -> list[str]:
        """Execute jobs until they are done or the deadline is reached.

        Args:
            jobs: in the order in which to start them.
        Returns:
            The names of the jobs that failed.
        Raises:
            KeyboardInterrupt: after all running commands have saved their state and ended.
        """
        with ThreadPoolExecutor(self.max_jobs) as pool:
            try:
                futures = {job.name: pool.submit(self.complete, job) for job in jobs}
                return [name for name, future in futures.items() if _failed(future.result())]
            except KeyboardInterrupt:
                self._stop()
                raise

    def complete(self, job: Job) -> int:
        """Execute the commands of a job, one after another.

        Args:
            job: the remaining commands of a run.
        Returns:
            The exit status of the first command that fails, 130 if stopped, or 0.
        """
        if self._is_over():
            return EXIT_INTERRUPTED
        with ExitStack() as stack:
            log = None
            if job.log is not None:
                job.log.parent.mkdir(parents=True, exist_ok=True)
                log = stack.enter_context(job.log.open("ab"))
                print(f"{job.name}: started, prints to {job.log}", flush=True)
            for words in job.commands:
                status = self._command(words, log)
                if status:
                    return status
        return 0

    def _command(self, words: Sequence[str], log: Any) -> int:
        """Execute `python -m` with these arguments; return its exit status, or 130 if it was stopped."""
        path = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
        with self._lock:
            if self._is_over():
                return EXIT_INTERRUPTED
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT if log is not None else None,
                start_new_session=True,  # so that Ctrl-C reaches it only once, through `_stop`
            )
            self._running.add(process)
        try:
            return process.wait(self._seconds_left())
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            return EXIT_INTERRUPTED
        finally:
            process.poll()  # `finish` leaves it a zombie
            with self._lock:
                self._running.discard(process)

    def _stop(self) -> None:
        """Tell all commands to save and end, and start no others."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.terminate()

    def finish(self) -> None:
        """Tell running commands to save and end, and wait for them. A signal handler may call this."""
        # The interrupted code may hold the lock, and be in `process.wait`.
        for process in list(self._running):
            process.terminate()
            with suppress(ChildProcessError):  # it has been waited for
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    def _is_over(self) -> bool:
        """Whether no further command may start."""
        return self._stopped or self._seconds_left() == 0

    def _seconds_left(self) -> float | None:
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


_of_a_job = Workers(1)
"""Executes the commands of a job of a cluster, which has a process of its own."""


def submit(
    jobs: Sequence[Job],
    folder: Path,
    *,
    cluster: str = "slurm",
    deadline: float | None = None,
    poll: float = 10.0,
    **parameters: Any,
) -> list[str]:
    """Submit the jobs to a cluster, with submitit, and wait until all have ended.

    Args:
        jobs: without logs; submitit writes them.
        folder: folder for submitit's files; on a cluster, it must be on a shared file system.
        cluster: `slurm`, or `local` for processes on this machine.
        deadline: time at which jobs are canceled, as a value of `time.monotonic()`; None for no deadline.
        poll: seconds between checks of the jobs.
        parameters: parameters of `submitit.AutoExecutor.update_parameters`.
    Returns:
        The names of the jobs that failed.
    Raises:
        UserError: submitit is not installed, there is no such cluster, or it refuses a job; those that were
            submitted before it were canceled.
        KeyboardInterrupt: after the jobs were canceled; if the terminal was closed, they go on.
    """
    try:
        import submitit
        from submitit import helpers
        from submitit.core.utils import FailedJobError
    except ImportError:
        raise UserError("--executor slurm needs submitit: pip install '.[cluster]'") from None
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster, slurm_max_num_timeout=MAX_REQUEUES)
    except RuntimeError as error:
        raise UserError(f"--executor {cluster}: {error}") from None
    executor.update_parameters(**parameters)
    submitted: dict[str, Any] = {}
    ended: list[Any] = []
    try:
        for job in jobs:
            submitted[job.name] = executor.submit(job)
        print(f"submitted; the jobs print to files in {folder}", flush=True)
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        for submitted_job in helpers.as_completed(list(submitted.values()), timeout, poll):
            ended.append(submitted_job)
    except FailedJobError as error:  # the cluster refuses a job, for example for its partition
        _cancel(submitted.values())
        raise UserError(f"--executor {cluster}: {error}") from None
    except TimeoutError:
        _cancel(submitted_job for submitted_job in submitted.values() if submitted_job not in ended)
    except TerminalClosed:
        raise  # the jobs go on
    except KeyboardInterrupt:
        _cancel(submitted.values())
        raise
    return [
        name
        for name, submitted_job in submitted.items()
        if submitted_job in ended
        and (submitted_job.exception() is not None or _failed(submitted_job.result()))
    ]


def _failed(status: int) -> bool:
    """Whether an exit status is that of an error: a run that was interrupted can be resumed."""
    return status not in (0, EXIT_INTERRUPTED)


def _cancel(jobs: Any) -> None:
    for job in jobs:
        job.cancel(check=False)  # if this fails, the others are canceled nevertheless
