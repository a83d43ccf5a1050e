"""Several processes: a run that is stopped or killed and resumed equals an uninterrupted one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.listops.__main__ import main
from tasks.runs.experiment import _silence
from tests import commands
from tests.outcome import outcome

ROOT = Path(__file__).parents[3]
OPTIONS = [
    *commands.TINY["listops"].split(),
    *("--epochs", "2", "--save-every", "2", "--average-decay", "0.9"),
    *("--curriculum-epochs", "1", "--curriculum-length", "8"),
    # Each process draws dropout of its own.
    *("--cell-dropout", "0", "--attention-dropout", "0", "--input-dropout", "0", "--output-dropout", "0"),
]
TWO = ["--batch-size", "16", "--devices", "2", "--strategy", "ddp", "--accelerator", "cpu"]

# `python -m tasks.listops` that draws little, and sends itself a signal after a step if it is told to.
SCRIPT = """
import os, sys
from tasks.listops.__main__ import main
from tasks.reporting import examples
from tasks.runs.trainer import Trainer
step, number, rank = (int(os.environ.get(name, "-1")) for name in ("STOP_AT", "STOP_BY", "STOP_RANK"))
train_batch = Trainer.train_batch
def stopping(self, batch):
    found = train_batch(self, batch)
    if self.progress.step + 1 == step and self.fabric.global_rank == rank:
        os.kill(os.getpid(), number)
    return found
Trainer.train_batch = stopping
examples.NUM_EXAMPLES = 1
sys.exit(main())
"""


def train(directory, *options, **environment):
    script = directory.with_suffix(".py")
    script.write_text(SCRIPT)
    return run([str(script)], directory, *options, **environment)


def run(program, directory, *options, **environment):
    return subprocess.run(
        [sys.executable, *program, "train", "--run-dir", str(directory), *OPTIONS, *TWO, *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "whole"
    result = run(["-m", "tasks.listops"], directory, "--heads", "3")
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("warning: --heads 3 has no effect") == 1
    return outcome(directory)


def test_two_processes_equal_one_with_the_doubled_batch(tmp_path, uninterrupted):
    directory = tmp_path / "one"
    assert main(["train", "--run-dir", str(directory), *OPTIONS, "--batch-size", "32"]) == 0
    for one, two in zip(outcome(directory)[0], uninterrupted[0], strict=True):
        assert two == pytest.approx(one, rel=1e-4)


@pytest.mark.slow
def test_an_error_that_all_processes_find_is_told_once(tmp_path):
    result = train(tmp_path / "run", "--learning-rate", "1e30")
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("the loss is not finite") == 1


@pytest.mark.parametrize(
    ("number", "rank", "status"),
    [
        (signal.SIGTERM, 0, 130),
        pytest.param(signal.SIGINT, 1, 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, 0, -signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_a_stopped_run_of_two_processes_goes_on_as_if_it_had_not(
    tmp_path, uninterrupted, number, rank, status
):
    stop = {"STOP_AT": "3", "STOP_BY": str(int(number)), "STOP_RANK": str(rank)}
    result = train(tmp_path / "run", **stop)
    assert result.returncode == status, result.stderr
    if status == 130:
        assert "last.safetensors has step 3" in result.stderr
        assert result.stderr.count("to resume: python -m tasks.listops train") == 1
        assert "Traceback" not in result.stderr
    assert not (tmp_path / "run" / "results.json").exists()
    result = train(tmp_path / "run", "--resume")
    assert result.returncode == 0, result.stderr
    assert "resuming from step" in result.stdout
    assert outcome(tmp_path / "run") == uninterrupted


@pytest.mark.slow
def test_stopping_the_first_of_two_seeds_leaves_no_process_behind(tmp_path):
    stop = {"STOP_AT": "3", "STOP_BY": str(int(signal.SIGTERM)), "STOP_RANK": "0"}
    result = train(tmp_path / "runs", "--seeds", "2", **stop)  # returns when all processes have ended
    assert result.returncode == 130, result.stderr
    assert result.stderr.count("to resume: python -m tasks.listops train") == 1
    assert not (tmp_path / "runs" / "seed-2").exists()


def test_a_process_that_says_nothing_takes_any_text(capsys):
    with _silence():
        print("\udcff →", file=sys.stderr)
        print("\udcff →")
    assert capsys.readouterr() == ("", "")
