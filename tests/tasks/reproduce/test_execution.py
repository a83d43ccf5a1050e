"""Jobs execute all their commands, stop when they must, and run with submitit."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import ClassVar

import pytest
from submitit.core.utils import FailedJobError

from tasks.reproduce.__main__ import main
from tasks.reproduce.execution import MAX_REQUEUES, Job, Workers, submit
from tasks.runs.errors import EXIT_INTERRUPTED, UserError
from tasks.runs.stop_signals import TerminalClosed

ROOT = Path(__file__).parents[3]
WAITS = """
import os, pathlib, select, signal, sys
def save(number, frame):
    pathlib.Path(sys.argv[1]).write_text("saved")
    sys.exit(130)
signal.signal(signal.SIGTERM, save)
os.kill(os.getppid(), signal.SIGINT)  # as Ctrl-C in the terminal of the command
while True:
    select.select([], [], [], 0.1)  # pause() would wait on after a signal that came just before it
"""


def formatting(directory, name):
    """A command that takes no time: json.tool writes `name` from itself."""
    (directory / f"{name}.json").write_text("[1]")
    return ("json.tool", str(directory / f"{name}.json"), str(directory / name))


def test_several_jobs_at_a_time_are_all_done_and_failures_are_named(tmp_path):
    bad = ("json.tool", str(tmp_path / "nothing"))
    jobs = [
        Job(
            f"job {i}",
            (formatting(tmp_path, f"{i}-1"), *([bad] if i == 2 else []), formatting(tmp_path, f"{i}-2")),
            tmp_path / "logs" / f"{i}.txt",
        )
        for i in range(4)
    ]
    assert Workers(3).run(jobs) == ["job 2"]
    for i in range(4):
        assert (tmp_path / f"{i}-1").exists()
        assert (tmp_path / f"{i}-2").exists() == (i != 2)  # nothing follows what failed
    assert "nothing" in (tmp_path / "logs" / "2.txt").read_text()


def test_a_command_finds_the_tasks_from_anywhere_and_is_out_of_reach_of_ctrl_c(tmp_path, monkeypatch):
    (tmp_path / "tells.py").write_text(
        "import os, sys; print(os.environ['PYTHONPATH'], os.getsid(0) == os.getpid(), sys.stdin.read())"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert Job("tells", (("tells",),), tmp_path / "log.txt")() == 0
    assert (tmp_path / "log.txt").read_text() == f"{ROOT}{os.pathsep}{tmp_path} True \n"


def test_after_the_deadline_nothing_starts_and_nothing_has_failed(tmp_path, capsys):
    workers = Workers(1, deadline=time.monotonic())
    job = Job("late", (formatting(tmp_path, "late"),))
    assert workers.complete(job) == EXIT_INTERRUPTED
    assert workers.run([job]) == []
    assert not (tmp_path / "late").exists()
    assert workers.run([Job("later", job.commands, tmp_path / "run" / "log.txt")]) == []
    assert not (tmp_path / "run").exists()
    assert not capsys.readouterr().out  # it does not say that the run has started


def test_the_deadline_ends_a_command(tmp_path):
    (tmp_path / "endless.py").write_text("import select\nwhile True:\n    select.select([], [], [], 0.1)\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        job = Job("endless", (("endless",), formatting(tmp_path, "after")))
        assert Workers(1, deadline=time.monotonic() + 0.05).complete(job) == EXIT_INTERRUPTED
    assert not (tmp_path / "after").exists()


def test_an_interruption_reaches_every_command_once_and_waits_for_it(tmp_path, monkeypatch):
    (tmp_path / "waits.py").write_text(WAITS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    jobs = [
        Job("waits", (("waits", str(tmp_path / "state")),)),
        Job("next", (formatting(tmp_path, "next"),)),
    ]
    with pytest.raises(KeyboardInterrupt):
        Workers(1).run(jobs)
    assert (tmp_path / "state").read_text() == "saved"
    assert not (tmp_path / "next").exists()


def test_an_interruption_before_the_last_command_is_handed_out_reaches_the_first(tmp_path, monkeypatch):
    class Pool(ThreadPoolExecutor):
        def submit(self, function, job):
            if job.name == "next":
                Event().wait(60)  # the interruption comes meanwhile
            return super().submit(function, job)

    monkeypatch.setattr("tasks.reproduce.execution.ThreadPoolExecutor", Pool)
    test_an_interruption_reaches_every_command_once_and_waits_for_it(tmp_path, monkeypatch)


def test_jobs_of_submitit_do_the_same(tmp_path):
    jobs = [
        Job("good", (formatting(tmp_path, "good"),)),
        Job("bad", (("json.tool", str(tmp_path / "nothing")), formatting(tmp_path, "after"))),
    ]
    found = submit(jobs, tmp_path / "jobs", cluster="local", poll=0.05, timeout_min=1)
    assert found == ["bad"]
    assert (tmp_path / "good").exists()
    assert not (tmp_path / "after").exists()


class Cluster:
    """In place of submitit's executor: jobs end at once, and it remembers what it was asked for."""

    refused: ClassVar = {}

    def __init__(self, **options):
        self.asked, self.canceled = options, []
        Cluster.last = self

    def update_parameters(self, **parameters):
        self.asked |= parameters

    def submit(self, job):
        if job.name in self.refused:
            raise self.refused[job.name]
        return SubmittedJob(job.name, self)


class SubmittedJob:
    def __init__(self, name, cluster):
        self.name, self.cluster = name, cluster

    def exception(self):
        return OSError("its node is gone") if self.name == "lost" else None

    def result(self):
        assert self.exception() is None
        return {"bad": 1, "interrupted": EXIT_INTERRUPTED}.get(self.name, 0)

    def cancel(self, check=True):
        assert not check  # that one cannot be canceled keeps no other from it
        self.cluster.canceled.append(self.name)


@pytest.fixture
def waits(monkeypatch):
    """How submitit's wait for the jobs ends: before a job named "long", with the error in this list."""
    errors = []

    def as_completed(jobs, timeout, poll):
        Cluster.last.asked |= {"timeout": timeout, "poll": poll}
        for job in jobs:
            if errors and job.name == "long":
                raise errors[0]
            yield job

    monkeypatch.setattr("submitit.AutoExecutor", Cluster)
    monkeypatch.setattr("submitit.helpers.as_completed", as_completed)
    monkeypatch.setattr("time.monotonic", lambda: 1_000.0)
    return errors


def test_a_job_that_a_cluster_has_lost_has_failed(tmp_path, waits, capsys):
    jobs = [Job(name, ()) for name in ("good", "lost", "bad", "interrupted")]
    assert submit(jobs, tmp_path, deadline=1_060.0, timeout_min=7) == ["lost", "bad"]
    assert capsys.readouterr().out == f"submitted; the jobs print to files in {tmp_path}\n"
    expected = {"folder": tmp_path, "cluster": "slurm", "slurm_max_num_timeout": MAX_REQUEUES}
    assert Cluster.last.asked == expected | {"timeout_min": 7, "timeout": 60.0, "poll": 10.0}
    assert not Cluster.last.canceled


def test_jobs_of_a_cluster_are_canceled_at_the_deadline(tmp_path, waits):
    waits.append(TimeoutError())
    assert submit([Job("long", ()), Job("bad", ())], tmp_path, deadline=900.0) == []
    assert Cluster.last.asked["timeout"] == 0
    assert Cluster.last.canceled == ["long", "bad"]


def test_jobs_that_failed_before_the_deadline_have_failed(tmp_path, waits):
    waits.append(TimeoutError())
    jobs = [Job(name, ()) for name in ("good", "bad", "lost", "long", "later")]
    assert submit(jobs, tmp_path, deadline=1_060.0) == ["bad", "lost"]
    assert Cluster.last.canceled == ["long", "later"]


@pytest.mark.parametrize(("error", "canceled"), [(KeyboardInterrupt, ["long"]), (TerminalClosed, [])])
def test_jobs_of_a_cluster_go_on_after_the_terminal_is_closed_and_not_after_ctrl_c(
    tmp_path, waits, error, canceled
):
    waits.append(error())
    with pytest.raises(error):
        submit([Job("long", ())], tmp_path)
    assert Cluster.last.asked["timeout"] is None
    assert Cluster.last.canceled == canceled


def test_jobs_that_were_submitted_before_one_that_is_refused_are_canceled(tmp_path, waits, monkeypatch):
    jobs = [Job(name, ()) for name in ("first", "second", "third")]
    monkeypatch.setattr(Cluster, "refused", {"third": FailedJobError("invalid partition: nope\n")})
    with pytest.raises(UserError, match="--executor slurm: invalid partition: nope"):
        submit(jobs, tmp_path)
    assert Cluster.last.canceled == ["first", "second"]
    monkeypatch.setattr(Cluster, "refused", {"second": KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        submit(jobs, tmp_path)
    assert Cluster.last.canceled == ["first"]


def test_without_submitit_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UserError, match=r"--executor slurm needs submitit: pip install '\.\[cluster\]'"):
        submit([], tmp_path)


def test_a_job_does_not_wait_for_the_import_of_pytorch():
    code = "import sys, tasks.reproduce.execution; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_a_job_that_was_interrupted_has_not_failed(tmp_path, monkeypatch):
    (tmp_path / "interrupted.py").write_text(f"raise SystemExit({EXIT_INTERRUPTED})\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    jobs = [Job("interrupted", (("interrupted",),))]
    assert jobs[0]() == EXIT_INTERRUPTED
    assert Workers(1).run(jobs) == []
    assert submit(jobs, tmp_path / "jobs", cluster="local", poll=0.05, timeout_min=1) == []


def test_a_job_whose_time_is_over_is_queued_again_as_it_is():
    job = Job("long", (("json.tool",),))
    assert job.checkpoint().function == job


def test_a_job_whose_time_is_over_saves_before_it_is_queued_again(tmp_path, monkeypatch):
    (tmp_path / "waits.py").write_text(WAITS.replace("signal.SIGINT", "signal.SIGUSR2"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    job = Job("long", (("waits", str(tmp_path / "state")),))

    def time_is_over(number, frame):  # as submitit does
        job.checkpoint()
        assert (tmp_path / "state").read_text() == "saved"
        sys.exit(-1)

    previous = signal.signal(signal.SIGUSR2, time_is_over)
    try:
        with pytest.raises(SystemExit):
            job()
    finally:
        signal.signal(signal.SIGUSR2, previous)


def test_without_slurm_a_line_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ["om-table-3a", "--preset", "demo", "--executor", "slurm", "--directory", str(tmp_path)]
    assert main(words) == 2
    assert "srun" in capsys.readouterr().err
    assert os.listdir(tmp_path) in ([], ["jobs"])
