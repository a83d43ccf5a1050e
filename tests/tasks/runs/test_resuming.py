"""A run that is killed, interrupted or out of disk resumes, and ends as one that was not."""

import errno
import fcntl
import itertools
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import tasks.runs.files
from tasks.classifiers.classification import ClassificationObjective
from tasks.listops.__main__ import main
from tasks.runs.checkpoints import read_checkpoint
from tasks.runs.run_directory import RunDirectory
from tasks.runs.trainer import Trainer
from tests.interrupts import interrupt_before
from tests.outcome import outcome
from tests.tasks.runs.tiny import TINY, train

ROOT = Path(__file__).parents[3]


class Killed(BaseException):
    """Stands in for SIGKILL: nothing catches it."""


def test_a_crash_at_any_write_costs_nothing(tmp_path, monkeypatch, uninterrupted):
    replace, writes, fatal = os.replace, 0, 0

    def dying_replace(source, target):
        nonlocal writes
        writes += 1
        if writes == fatal:
            raise Killed
        replace(source, target)

    monkeypatch.setattr(tasks.runs.files.os, "replace", dying_replace)
    # A new run each time, which dies before its next file takes its place, until one gets through.
    for fatal in itertools.count(1):
        directory = tmp_path / str(fatal)
        writes = 0
        try:
            train(directory)
            break
        except Killed:
            writes = fatal + 1  # alive from now on
            assert train(directory, "--resume") == 0
            assert outcome(directory) == uninterrupted
    assert fatal > 10


DIES_AT_WRITE = """
import os, signal, sys
import tasks.runs.files
from tasks.listops.__main__ import main
count, replace = 0, os.replace
def dying(source, target):
    global count
    count += 1
    if count == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
tasks.runs.files.os.replace = dying
sys.exit(main(sys.argv[2:]))
"""


def test_a_run_that_is_killed_resumes(tmp_path, uninterrupted):
    directory = tmp_path / "run"
    command = [sys.executable, "-c", DIES_AT_WRITE, "4", "train", "--run-dir", str(directory)]
    result = subprocess.run([*command, *TINY], cwd=ROOT, capture_output=True, check=False)
    assert result.returncode == -signal.SIGKILL, result.stderr.decode()
    assert train(directory, "--resume") == 0
    assert outcome(directory) == uninterrupted


def test_weights_of_an_epoch_that_the_checkpoint_lacks_are_not_the_best(tmp_path, monkeypatch):
    assert train(tmp_path / "one", "--epochs", "1") == 0
    first = read_checkpoint(tmp_path / "one" / "best.safetensors")[0]
    scores = iter((1.0, 2.0, 0.5))  # of the first epoch, of the second one, and of its repetition
    monkeypatch.setattr(ClassificationObjective, "selection_score", lambda self, validation: next(scores))
    save, directory = Trainer._save, tmp_path / "run"

    def dying_save(self):
        if self.progress.best_epoch == 2:
            raise Killed
        save(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_save", dying_save)
        with pytest.raises(Killed):
            train(directory)
    assert train(directory, "--resume") == 0
    best = read_checkpoint(directory / "best.safetensors")[0]
    assert all(torch.equal(best[name], tensor) for name, tensor in first.items())
    assert not list(directory.glob(".best-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_cleanly_and_resumes(tmp_path, monkeypatch, uninterrupted, number):
    begun = interrupt_before(monkeypatch, ClassificationObjective, {3}, number)
    assert train(tmp_path / "run") == 130
    assert not (tmp_path / "run" / "results.json").exists()
    assert train(tmp_path / "run", "--resume") == 0
    assert len(begun) == 3 + (uninterrupted[0][-1]["step"] - 3)
    assert outcome(tmp_path / "run") == uninterrupted


def test_closing_the_terminal_saves_the_run(tmp_path):
    master, slave = pty.openpty()
    words = [sys.executable, "-m", "tasks.listops", "train", "--run-dir", str(tmp_path / "run"), *TINY]
    process = subprocess.Popen(
        [*words, "--epochs", "1000"],
        cwd=ROOT,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    printed = b""
    try:
        while b"epoch 2" not in printed:
            assert select.select([master], [], [], 300)[0], printed
            chunk = os.read(master, 1000)
            assert chunk, printed
            printed += chunk
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        os.close(master)
    assert process.wait(timeout=300) == 130
    epochs = len(RunDirectory(tmp_path / "run").read_metrics()) + 1
    assert train(tmp_path / "run", "--resume", "--epochs", str(epochs)) == 0


def test_a_full_disk_keeps_the_last_checkpoint_and_says_so(tmp_path, monkeypatch, capsys, uninterrupted):
    write, budget = Path.write_bytes, 7

    def full(self, data):
        nonlocal budget
        budget -= 1
        if budget < 0:
            raise OSError(errno.ENOSPC, "No space left on device", str(self))
        return write(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        assert train(tmp_path / "run") == 2
    message = capsys.readouterr().err
    assert "No space left on device" in message
    assert message.count("\n") == 1
    assert not list((tmp_path / "run").glob("*.part"))
    assert train(tmp_path / "run", "--resume") == 0
    assert outcome(tmp_path / "run") == uninterrupted


def test_a_run_with_radam_resumes(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(whole, "--optimizer", "radam") == 0
    assert train(parts, "--optimizer", "radam", "--epochs", "1") == 0
    assert train(parts, "--optimizer", "radam", "--resume") == 0
    assert outcome(parts) == outcome(whole)


def test_an_interrupt_before_training_says_what_is_there(tmp_path, monkeypatch, capsys):
    assert train(tmp_path / "seed-1", "--epochs", "1") == 0

    def interrupt(self, config):
        raise KeyboardInterrupt

    monkeypatch.setattr("tasks.classifiers.task.ClassifierTask.prepare", interrupt)
    assert train(tmp_path / "seed-1", "--resume") == 130
    error = capsys.readouterr().err
    assert f"{tmp_path / 'seed-1' / 'last.safetensors'} is as it was" in error
    assert "to resume:" in error
    assert train(tmp_path / "new") == 130
    error = capsys.readouterr().err
    assert "nothing was saved" in error
    assert "to resume:" not in error
    assert train(tmp_path, "--seeds", "2", "--epochs", "1", "--resume") == 130  # while seed 2 loads its data
    error = capsys.readouterr().err
    assert "nothing was saved" in error
    assert "to resume:" in error


def test_seeds_resume_with_the_saved_options(tmp_path, uninterrupted):
    assert train(tmp_path, "--seeds", "2", "--epochs", "1") == 0
    assert main(["train", "--run-dir", str(tmp_path), "--seeds", "2", "--epochs", "2", "--resume"]) == 0
    assert outcome(tmp_path / "seed-1") == uninterrupted


def test_in_the_middle_of_an_epoch_batches_stay_as_they_are(tmp_path, monkeypatch, capsys):
    shard = ClassificationObjective.shard

    def interrupting(self, *batch):
        os.kill(os.getpid(), signal.SIGTERM)
        return shard(self, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(ClassificationObjective, "shard", interrupting)
        assert train(tmp_path / "run") == 130
    assert train(tmp_path / "run", "--resume", "--batch-size", "16") == 2
    assert "--batch-size 16: must stay 32 until the end of the epoch" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "config.json").read_text())["batch_size"] == 32


def test_time_is_up_in_the_middle_of_an_epoch(tmp_path):
    assert train(tmp_path / "run", "--max-minutes", "1e-9") == 0
    rows, results, _ = outcome(tmp_path / "run")
    assert [row["step"] for row in rows] == [1]
    assert results["examples"] == 30


def test_a_higher_time_limit_goes_on_in_the_middle_of_the_epoch(tmp_path, monkeypatch, capsys, uninterrupted):
    clock = itertools.count(step=60)  # each step takes a minute
    monkeypatch.setattr("tasks.runs.trainer.time", SimpleNamespace(monotonic=clock.__next__))
    first, second = uninterrupted[0]
    limit = first["step"] + 2
    assert train(tmp_path / "run", "--max-minutes", str(limit)) == 0
    assert f"finished: {limit} minutes" in capsys.readouterr().out
    assert train(tmp_path / "run", "--resume", "--max-minutes", "1000") == 0
    assert f"resuming from step {limit} in epoch 2\n" in (told := capsys.readouterr().out)
    assert f"epoch 2  {60 * (second['step'] - first['step'])}.0 s" in told
    whole, part, rest = outcome(tmp_path / "run")[0]
    assert whole == first
    assert (part["epoch"], part["step"]) == (2, limit)
    assert 0 < part["fraction"] < rest["fraction"] == 1
    assert part["validation_loss"] != rest["validation_loss"]
    assert rest | {"best": None} == second | {"best": None}  # the part may have been better


def test_weights_of_a_part_of_an_epoch_are_not_replaced_by_those_that_the_checkpoint_lacks(
    tmp_path, monkeypatch, uninterrupted
):
    scores = iter((1.0, 2.0))  # of a part of the epoch, and of the whole
    monkeypatch.setattr(ClassificationObjective, "selection_score", lambda self, validation: next(scores))
    directory = tmp_path / "run"
    assert train(directory, "--epochs", "1", "--max-minutes", "1e-9") == 0
    part = outcome(directory)[2]

    def dying_save(self):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_save", dying_save)
        with pytest.raises(Killed):
            train(directory, "--epochs", "1", "--resume", "--max-minutes", "100", "--save-every", "100")
    assert list(directory.glob(".best-*"))
    assert train(directory, "--epochs", "1", "--resume", "--max-minutes", "1e-9") == 0
    assert outcome(directory)[2] == part


def test_the_limit_that_ended_a_run_is_named(tmp_path, capsys):
    assert train(tmp_path / "run", "--max-minutes", "1e-9") == 0
    assert train(tmp_path / "run", "--resume", "--max-minutes", "1e-9", "--epochs", "9") == 2
    assert "is already finished, with 2; --max-minutes ended it: give a higher one" in capsys.readouterr().err


def test_the_same_seed_gives_the_same_run_and_another_another(tmp_path, uninterrupted):
    assert train(tmp_path / "same") == 0
    assert outcome(tmp_path / "same") == uninterrupted
    assert train(tmp_path / "other", "--seed", "2") == 0
    assert outcome(tmp_path / "other")[0] != uninterrupted[0]
