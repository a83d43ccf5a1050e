"""The training loop through tasks.listops: interrupted however it may be, a run ends in the same numbers."""

import errno
import fcntl
import itertools
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from filelock import FileLock
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision
from safetensors.torch import load_file

import tasks.runs.files
from tasks.classifiers.classification import ClassificationObjective
from tasks.listops.__main__ import main
from tasks.listops.config import PRESETS, ListOpsConfig
from tasks.listops.data import Dataset as ListOpsData
from tasks.listops.data import write_tsv
from tasks.listops.generator import generate
from tasks.listops.model import ListOpsModel
from tasks.listops.task import LISTOPS
from tasks.runs.checkpoints import read_checkpoint, read_state
from tasks.runs.command_line import parse_run
from tasks.runs.errors import UserError
from tasks.runs.experiment import run_experiment
from tasks.runs.fabric import build_fabric, others_wait
from tasks.runs.interfaces import Scores
from tasks.runs.run_directory import RunDirectory
from tasks.runs.trainer import Trainer
from tests import commands
from tests.outcome import outcome

TINY = [
    *commands.TINY["listops"].split(),
    *("--batch-size", "32", "--epochs", "2", "--save-every", "2", "--average-decay", "0.9"),
    *("--curriculum-epochs", "1", "--curriculum-length", "8"),
]
ROOT = Path(__file__).parents[3]


def train(directory, *options):
    return main(["train", "--run-dir", str(directory), *TINY, *options])


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "whole"
    assert train(directory) == 0
    return outcome(directory)


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
    shard = ClassificationObjective.shard
    calls = 0

    def interrupting(self, *batch):
        nonlocal calls
        calls += 1
        if calls == 3:
            os.kill(os.getpid(), number)
        return shard(self, *batch)

    monkeypatch.setattr(ClassificationObjective, "shard", interrupting)
    assert train(tmp_path / "run") == 130
    assert not (tmp_path / "run" / "results.json").exists()
    assert train(tmp_path / "run", "--resume") == 0
    assert calls == 3 + (uninterrupted[0][-1]["step"] - 3)
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


def test_a_finished_run_is_not_trained_or_tested_again(tmp_path, monkeypatch):
    assert train(tmp_path / "run") == 0
    before = outcome(tmp_path / "run")
    monkeypatch.setattr(ClassificationObjective, "shard", None)
    monkeypatch.setattr("tasks.classifiers.task.evaluate", None)
    assert main(["train", "--run-dir", str(tmp_path / "run"), "--resume"]) == 0
    assert outcome(tmp_path / "run") == before


def test_more_epochs_continue_a_finished_run(tmp_path, uninterrupted):
    assert train(tmp_path / "run", "--epochs", "1") == 0
    assert train(tmp_path / "run", "--resume", "--epochs", "2") == 0
    assert outcome(tmp_path / "run") == uninterrupted


def test_evaluate_has_the_results_of_the_final_test_after_options_have_changed(tmp_path, monkeypatch):
    assert train(tmp_path / "run", "--epochs", "1") == 0
    monkeypatch.setattr(
        ClassificationObjective, "selection_score", lambda self, validation: 0.0
    )  # epoch 1 stays best
    assert train(tmp_path / "run", "--resume", "--test-num-slots", "2") == 0
    best = tmp_path / "run" / "best.safetensors"
    assert main(["evaluate", "--checkpoint", str(best), "--json", str(tmp_path / "again.json")]) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    del results["data"]  # an evaluation does not know all data of the run
    assert json.loads((tmp_path / "again.json").read_text()) == results
    assert ListOpsModel.from_pretrained(best).config.test_num_slots == 2


def test_other_words_of_the_same_lengths_are_other_data(tmp_path, monkeypatch, capsys):
    assert train(tmp_path / "run", "--epochs", "1") == 0
    batch = ListOpsData.batch

    def swapped(self, indices):
        found = batch(self, indices)
        return found._replace(tokens=torch.where(found.tokens == 3, 4, found.tokens))

    with monkeypatch.context() as patch:
        patch.setattr(ListOpsData, "batch", swapped)
        assert train(tmp_path / "run", "--resume") == 2
    assert "this run was started with other training or validation data" in capsys.readouterr().err


@pytest.mark.parametrize("index", [0, 5, 9])
def test_every_example_belongs_to_the_data(index, monkeypatch):
    monkeypatch.setattr("tasks.classifiers.classification.DIGEST_BATCH_SIZE", 4)
    texts = [f"[MAX {i} 9 ]" for i in range(10)]
    others = [*texts[:index], "[MIN 9 9 ]", *texts[index + 1 :]]
    validation = ListOpsData.from_texts(["1"])
    same, again, other = (
        ClassificationObjective(ListOpsConfig(), ListOpsData.from_texts(data), validation).fingerprint()
        for data in (texts, texts, others)
    )
    assert same == again != other


def test_a_run_may_have_been_started_before_checkpoints_said_more(
    tmp_path, monkeypatch, capsys, uninterrupted
):
    metadata = ListOpsModel.metadata
    with monkeypatch.context() as patch:
        patch.setattr(
            ListOpsModel,
            "metadata",
            lambda self: {k: v for k, v in metadata(self).items() if k != "class_names"},
        )
        assert train(tmp_path / "run", "--epochs", "1") == 0
    assert train(tmp_path / "other", "--epochs", "1") == 0
    with monkeypatch.context() as patch:
        patch.setattr(
            ListOpsModel, "metadata", lambda self: metadata(self) | {"class_names": list("abcdefghij")}
        )
        assert train(tmp_path / "other", "--resume") == 2
    assert "this run was started with another class_names" in capsys.readouterr().err
    assert train(tmp_path / "run", "--resume") == 0
    assert outcome(tmp_path / "run") == uninterrupted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seed", "2"), "--seed 2: {} resumes with the weights and the optimizer state of its checkpoint"),
        (("--expressions", "310"), "{}: this run was started with other training or validation data"),
    ],
)
def test_a_run_goes_on_with_the_data_that_it_began_with(tmp_path, capsys, uninterrupted, options, message):
    assert train(tmp_path / "run", "--epochs", "1") == 0
    assert train(tmp_path / "run", "--resume", *options) == 2
    assert message.format(tmp_path / "run") in capsys.readouterr().err
    assert train(tmp_path / "run", "--resume") == 0
    assert outcome(tmp_path / "run") == uninterrupted


def test_a_run_with_radam_resumes(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(whole, "--optimizer", "radam") == 0
    assert train(parts, "--optimizer", "radam", "--epochs", "1") == 0
    assert train(parts, "--optimizer", "radam", "--resume") == 0
    assert outcome(parts) == outcome(whole)


def test_options_that_would_do_nothing_to_a_run_are_refused(tmp_path, capsys):
    run = tmp_path / "run"
    assert train(run) == 0
    before, config = outcome(run), (run / "config.json").read_text()
    for words, message in (
        (["--test-num-slots", "9"], "--test-num-slots 9: {} is already finished, with None"),
        (["--epochs", "1"], "--epochs 1: {} is already finished, with 2; --epochs ended it"),
        (["--max-minutes", "10"], "--max-minutes 10.0: {} is already finished, with None; --epochs ended it"),
        (["--epochs", "3", "--learning-rate", "0.5"], "--learning-rate 0.5: {} resumes with the"),
        (["--epochs", "3", "--adam-betas", "0.5", "0.9"], "--adam-betas (0.5, 0.9): {} resumes with"),
        (["--epochs", "3", "--optimizer", "radam"], "--optimizer radam: {} resumes with"),
        (["--epochs", "3", "--weight-decay", "0.5"], "--weight-decay 0.5: {} resumes with"),
        (["--epochs", "3", "--adam-epsilon", "0.5"], "--adam-epsilon 0.5: {} resumes with"),
        (["--epochs", "3", "--patience", "9"], "--patience 9: {} resumes with"),
        (["--epochs", "3", "--learning-rate-decay", "0.3"], "--learning-rate-decay 0.3: {} resumes with"),
        (["--epochs", "3", "--curriculum-epochs", "0"], "--curriculum-epochs 0: {} resumes with"),
        (["--epochs", "3", "--curriculum-length", "9"], "--curriculum-length 9: {} resumes with"),
        (["--preset", "demo"], "--preset demo: {} holds a run with --preset paper"),
    ):
        assert main(["train", "--run-dir", str(run), "--resume", *words]) == 2
        assert message.format(run) in capsys.readouterr().err
    assert (run / "config.json").read_text() == config
    moved = run.rename(tmp_path / "moved")
    assert main(["train", "--run-dir", str(moved), "--resume", "--evaluation-batch-size", "7"]) == 0
    assert outcome(moved) == before


def test_a_trained_model_without_its_training_state_is_not_trained_anew(tmp_path, capsys):
    assert train(tmp_path) == 0
    before = (tmp_path / "best.safetensors").read_bytes()
    (tmp_path / "last.safetensors").unlink()
    assert train(tmp_path, "--resume") == 2
    assert f"{tmp_path}: has no last.safetensors to resume from" in capsys.readouterr().err
    assert (tmp_path / "best.safetensors").read_bytes() == before


def test_a_finished_run_keeps_the_options_that_it_was_trained_with(tmp_path):
    assert train(tmp_path) == 0
    config = (tmp_path / "config.json").read_text()
    assert train(tmp_path, "--resume", "--precision", "bf16-mixed") == 0
    assert (tmp_path / "config.json").read_text() == config


def test_fewer_epochs_than_a_run_has_begun_are_refused_and_as_many_end_it(tmp_path, monkeypatch, capsys):
    end_epoch = Trainer._end_epoch

    def interrupt(self, *arguments):
        end_epoch(self, *arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_end_epoch", interrupt)
        assert train(tmp_path, "--epochs", "9") == 130
        assert train(tmp_path, "--epochs", "9", "--resume") == 130
    assert train(tmp_path, "--epochs", "1", "--resume") == 2
    assert f"--epochs 1: {tmp_path} is in epoch 2 already" in capsys.readouterr().err
    assert train(tmp_path, "--epochs", "2", "--resume") == 0
    assert len(outcome(tmp_path)[0]) == 2


@pytest.mark.parametrize("decay", ["0", "0.9"])
def test_a_lower_learning_rate_starts_from_the_best_weights_where_asked(tmp_path, monkeypatch, capsys, decay):
    scores = (1.0, 3.0, 2.0, 2.5, 4.0)  # of each epoch

    def selection_score(self, validation):
        return next(expected)

    def stop(self, *arguments):
        end_epoch(self, *arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(ClassificationObjective, "selection_score", selection_score)
    options = ["--epochs", "5", "--patience", "0", "--restore-best", "--average-decay", decay]
    expected = iter(scores)
    assert train(tmp_path / "whole", *options) == 0
    assert capsys.readouterr().out.count("from the weights of epoch 2") == 2

    expected = iter(scores)
    end_epoch = Trainer._end_epoch
    for epoch in range(1, 5):
        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "_end_epoch", stop)
            assert train(tmp_path / "stopped", *options, "--resume") == 130
        weights = read_state(tmp_path / "stopped" / "last.safetensors")
        best, _ = read_checkpoint(tmp_path / "stopped" / "best.safetensors")
        same = all(torch.equal(best[name], value) for name, value in weights["model"].items())
        assert same == (epoch > 2 or decay == "0")
        if decay != "0":
            averaged = weights["optimization"]["average"]
            assert all(torch.equal(value, averaged[f"module.{name}"]) for name, value in best.items())
    assert train(tmp_path / "stopped", *options, "--resume") == 0
    assert outcome(tmp_path / "stopped")[:2] == outcome(tmp_path / "whole")[:2]


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


def test_float16_needs_a_gpu(tmp_path, capsys):
    assert train(tmp_path / "run", "--accelerator", "cpu", "--precision", "16-mixed") == 2
    assert "--precision 16-mixed needs a GPU; on a CPU use bf16-mixed" in capsys.readouterr().err


def test_options_that_a_model_does_not_have_are_warned_of(tmp_path, capsys):
    options = ["--model", "lstm", "--cell", "tree-rnn", "--average-decay", "0.9", "--epochs", "1"]
    assert train(tmp_path, *options) == 0
    warnings = capsys.readouterr().err
    assert "warning: --cell tree-rnn has no effect with --model lstm\n" in warnings
    assert "--average-decay" not in warnings
    for words in (["evaluate"], ["predict", "[MAX 2 9 ]"]):
        assert main([*words, "--checkpoint", str(tmp_path / "best.safetensors"), "--num-slots", "9"]) == 0
        assert "warning: --num-slots 9 has no effect with --model lstm\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ["--curriculum-epochs", "2"],
            "--curriculum-epochs 2 is not below --epochs 2: training uses only short examples",
        ),
        (["--model", "mean", "--slot-size", "7"], "--slot-size 7 has no effect with --model mean"),
    ],
)
def test_options_without_effect_are_warned_of(tmp_path, capsys, options, told):
    assert train(tmp_path, *options) == 0
    assert f"warning: {told}" in capsys.readouterr().err


def test_more_epochs_continue_every_seed(tmp_path, uninterrupted):
    assert train(tmp_path, "--seeds", "2", "--epochs", "1") == 0
    assert (tmp_path / "seed-1-to-2.json").exists()
    assert train(tmp_path, "--seeds", "3", "--resume") == 0
    assert [path.name for path in tmp_path.glob("*.json")] == ["seed-1-to-3.json"]
    assert [len(outcome(tmp_path / f"seed-{seed}")[0]) for seed in (1, 2, 3)] == [2, 2, 2]
    assert outcome(tmp_path / "seed-1")[:2] == uninterrupted[:2]


def test_seeds_resume_with_the_saved_options(tmp_path, uninterrupted):
    assert train(tmp_path, "--seeds", "2", "--epochs", "1") == 0
    assert main(["train", "--run-dir", str(tmp_path), "--seeds", "2", "--epochs", "2", "--resume"]) == 0
    assert outcome(tmp_path / "seed-1") == uninterrupted


def test_seeds_refuse_a_directory_that_holds_a_run_before_they_train(tmp_path, capsys):
    assert train(tmp_path / "seed-2", "--epochs", "1") == 0
    assert train(tmp_path, "--seeds", "2") == 2
    assert "seed-2: already holds a run" in capsys.readouterr().err
    assert not (tmp_path / "seed-1").exists()


def test_a_loss_that_is_not_finite_ends_training_before_the_weights_are_saved(tmp_path, monkeypatch, capsys):
    losses, calls = ClassificationObjective.losses, 0

    def losses_of(self, model, batch):
        nonlocal calls
        calls += 1
        result = losses(self, model, batch)
        return result._replace(loss=result.loss * float("nan")) if calls == 3 else result

    monkeypatch.setattr(ClassificationObjective, "losses", losses_of)
    assert train(tmp_path / "run", "--epochs", "1", "--save-every", "2", "--curriculum-epochs", "0") == 2
    assert "the loss is not finite at step 4: " in capsys.readouterr().err
    saved = load_file(tmp_path / "run" / "last.safetensors")  # of step 2
    assert all(tensor.isfinite().all() for tensor in saved.values() if tensor.is_floating_point())


def test_a_weight_that_is_not_finite_does_not_replace_those_that_are(tmp_path, monkeypatch, capsys):
    train_batch = Trainer.train_batch

    def spoilt_by_step_3(self, batch):
        result = train_batch(self, batch)
        if self.progress.step == 3:
            next(self.unwrapped_model.parameters()).data.view(-1)[0] = float("nan")
        return result

    monkeypatch.setattr(Trainer, "train_batch", spoilt_by_step_3)
    options = ["--epochs", "1", "--save-every", "2", "--curriculum-epochs", "0"]
    assert train(tmp_path / "run", *options) == 2
    assert "a weight is not finite at step 4: " in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "diverged.json").read_text())["step"] == 4
    monkeypatch.undo()
    assert train(tmp_path / "run", *options, "--resume") == 0
    assert not (tmp_path / "run" / "diverged.json").exists()


def test_a_run_that_is_finished_after_all_has_not_diverged(tmp_path, monkeypatch):
    assert train(tmp_path / "run", "--epochs", "1") == 0
    with monkeypatch.context() as patch:
        losses = ClassificationObjective.losses

        def wild(self, model, batch):
            result = losses(self, model, batch)
            return result._replace(loss=result.loss * float("nan"))

        patch.setattr(ClassificationObjective, "losses", wild)
        assert train(tmp_path / "run", "--epochs", "2", "--resume") == 2
    assert (tmp_path / "run" / "diverged.json").exists()
    assert train(tmp_path / "run", "--epochs", "1", "--resume") == 0
    assert (tmp_path / "run" / "results.json").exists()
    assert not (tmp_path / "run" / "diverged.json").exists()


def test_a_seed_that_diverges_is_named_and_the_others_have_a_mean(tmp_path, monkeypatch, capsys):
    losses = ClassificationObjective.losses
    wild = {2}

    def losses_of(self, model, batch):
        result = losses(self, model, batch)
        return result._replace(loss=result.loss * float("nan")) if self.config.seed in wild else result

    monkeypatch.setattr(ClassificationObjective, "losses", losses_of)
    options = ["--seeds", "3", "--epochs", "1"]
    assert train(tmp_path, *options) == 0
    captured = capsys.readouterr()
    assert "seed 2: the loss is not finite at step " in captured.err
    assert "2 seeds: mean ± sample" in captured.out
    assert "diverged, and not included: 2\n" in captured.out
    summary = json.loads((tmp_path / "seed-1-to-3.json").read_text())
    assert summary["diverged"] == [2]
    assert summary["runs"].keys() == summary["results"]["accuracy"]["values"].keys() == {"1", "3"}
    wild |= {4, 5}
    assert train(tmp_path, "--seeds", "2", "--seed", "4", "--epochs", "1") == 2
    assert "the loss is not finite" in capsys.readouterr().err


def test_the_scale_of_float16_losses_goes_on(tmp_path, monkeypatch):
    made = []

    def float16(config):
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
        made.append(scaler)
        return Fabric(accelerator="cpu", plugins=[MixedPrecision("16-mixed", "cpu", scaler)])

    monkeypatch.setattr("tasks.runs.fabric.build_fabric", float16)
    assert train(tmp_path / "whole") == 0
    assert train(tmp_path / "halves", "--epochs", "1") == 0
    assert train(tmp_path / "halves", "--resume") == 0
    whole, first, second = (scaler.get_scale() for scaler in made)
    assert 64 < first < second == whole
    assert outcome(tmp_path / "halves") == outcome(tmp_path / "whole")


def test_two_runs_do_not_share_a_directory(tmp_path, capsys, uninterrupted):
    with RunDirectory(tmp_path / "run").locked():
        assert train(tmp_path / "run") == 2
    assert "run: another process is training here" in capsys.readouterr().err
    assert not (tmp_path / "run" / "config.json").exists()
    assert train(tmp_path / "run") == 0
    assert outcome(tmp_path / "run") == uninterrupted


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_there_are_no_locks_a_run_is_trained_without(
    tmp_path, capsys, monkeypatch, uninterrupted, number
):
    def refuse(*arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert train(tmp_path / "run") == 0
    error = capsys.readouterr().err
    assert f"warning: {tmp_path / 'run'}: cannot be locked ([Errno {number}]" in error
    assert error.count("start no other training here") == 1
    assert outcome(tmp_path / "run") == uninterrupted


def test_where_the_lock_may_not_be_opened_nothing_is_trained(tmp_path, capsys, monkeypatch):
    def refuse(*arguments):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(FileLock, "_acquire", refuse)
    assert train(tmp_path / "run") == 2
    assert f"{tmp_path / 'run'}: cannot be locked ([Errno 13] Permission denied)" in capsys.readouterr().err
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_run_is_kept_that_was_trained_while_another_one_loaded_its_data(tmp_path, uninterrupted):
    words = ["--run-dir", str(tmp_path), *TINY, "--cell-dropout", "0.5"]
    config = parse_run(ListOpsConfig, lambda model: PRESETS, words, "train")

    def prepare():
        assert train(tmp_path) == 0
        return LISTOPS.prepare(config)

    with pytest.raises(UserError, match="already holds a run"):
        run_experiment(config, prepare)
    assert outcome(tmp_path) == uninterrupted


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


def test_a_validation_loss_that_is_no_number_replaces_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tasks.runs.trainer.validate", lambda *_: Scores(float("nan"), 0.0))
    assert train(tmp_path / "run") == 2
    assert "a lower --learning-rate" in capsys.readouterr().err
    assert not (tmp_path / "run" / "best.safetensors").exists()


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


def test_without_the_best_weights_nothing_is_trained(tmp_path, capsys):
    directory = tmp_path / "run"
    assert train(directory, "--epochs", "1") == 0
    (directory / "best.safetensors").unlink()
    assert train(directory, "--resume") == 2
    assert (
        f"{directory}: has no best.safetensors, the weights of its best epoch, 1" in capsys.readouterr().err
    )
    assert len((directory / "metrics.jsonl").read_text().splitlines()) == 1


def test_other_test_data_are_tested(tmp_path, capsys):
    data = tmp_path / "data"
    data.mkdir()
    for name, size, seed in (("train", 200, 1), ("test", 30, 2)):
        write_tsv(data / f"{name}_d20s.tsv", ListOpsData(generate(size, seed=seed, max_length=12)))
    options = ("--data-dir", str(data), "--curriculum-epochs", "0")
    assert train(tmp_path / "run", *options) == 0
    weights = (tmp_path / "run" / "best.safetensors").read_bytes()
    capsys.readouterr()
    assert train(tmp_path / "run", *options, "--resume") == 0
    assert "testing the best weights" not in capsys.readouterr().out
    write_tsv(data / "test_d20s.tsv", ListOpsData(generate(50, seed=3, max_length=12)))
    assert train(tmp_path / "run", *options, "--resume") == 0
    told = capsys.readouterr().out
    assert "testing the best weights" in told
    assert re.search(r"test accuracy [\d.]+ on 50 expressions", told)
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["examples"] == 50
    assert (tmp_path / "run" / "best.safetensors").read_bytes() == weights
    del results["data"]  # which data it had is not known
    (tmp_path / "run" / "results.json").write_text(json.dumps(results))
    assert train(tmp_path / "run", *options, "--resume") == 0
    assert "testing the best weights" in capsys.readouterr().out


def test_results_are_kept_if_the_report_fails(tmp_path, monkeypatch, uninterrupted):
    def failing(*_):
        raise KeyError("a typing error")

    with monkeypatch.context() as patch:
        patch.setattr("tasks.classifiers.task.write_run_report", failing)
        with pytest.raises(KeyError, match="a typing error"):
            train(tmp_path)
    assert outcome(tmp_path) == uninterrupted
    assert train(tmp_path, "--resume") == 0
    assert (tmp_path / "report.html").exists()
    assert outcome(tmp_path) == uninterrupted


def test_the_same_seed_gives_the_same_run_and_another_another(tmp_path, uninterrupted):
    assert train(tmp_path / "same") == 0
    assert outcome(tmp_path / "same") == uninterrupted
    assert train(tmp_path / "other", "--seed", "2") == 0
    assert outcome(tmp_path / "other")[0] != uninterrupted[0]


@pytest.mark.parametrize(
    ("model", "unused"),
    [("gold-tree-lstm", True), ("gumbel-tree-lstm", True), ("crvnn", True), ("ordered-memory", False)],
)
def test_processes_that_compose_nothing_do_not_wait_for_each_other(model, unused):
    config = replace(PRESETS["demo"], model=model, devices=2, accelerator="cpu")
    assert build_fabric(config).strategy._ddp_kwargs.get("find_unused_parameters", False) == unused


def test_processes_wait_for_a_test_that_takes_hours(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(torch.distributed, "new_group", lambda **options: calls.append(options) or "group")
    monkeypatch.setattr(torch.distributed, "barrier", calls.append)
    with others_wait(SimpleNamespace(world_size=2)):
        calls.append("test")
    options, *rest = calls
    assert options.pop("timeout") >= timedelta(days=1)
    assert (options, rest) == ({"backend": "gloo"}, ["test", "group"])
    with others_wait(SimpleNamespace(world_size=1)):
        pass
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("variables", "has_started_them"),
    [
        ({"SLURM_NTASKS": "1"}, False),
        ({"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2"}, True),  # srun
        ({"SLURM_NTASKS": "1", "TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2"}, True),  # torchrun
    ],
)
def test_two_devices_are_two_processes_in_a_job_of_slurm(monkeypatch, variables, has_started_them):
    ranks = dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "RANK"), "0")
    if "WORLD_SIZE" in variables:
        ranks |= {"LOCAL_RANK": "0", "GROUP_RANK": "0"}
    for name, value in (ranks | {"SLURM_JOB_NAME": "job"} | variables).items():
        monkeypatch.setenv(name, value)
    fabric = build_fabric(replace(PRESETS["demo"], accelerator="cpu", devices=2))
    assert fabric.world_size == 2
    assert fabric.strategy.cluster_environment.creates_processes_externally == has_started_them


def test_another_number_of_processes_than_of_devices_is_refused_before_any_data_are_loaded(monkeypatch):
    for name in ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "4")
    with pytest.raises(UserError, match=r"--devices 2: .*--ntasks-per-node=4"):
        build_fabric(replace(PRESETS["demo"], accelerator="cpu", devices=2))


def test_a_single_process_with_ddp_may_compose_nothing():
    config = replace(PRESETS["demo"], model="gumbel-tree-lstm", strategy="ddp", accelerator="cpu")
    assert build_fabric(config).strategy._ddp_kwargs["find_unused_parameters"]


def test_the_learning_rate_falls_on_a_plateau(tmp_path):
    assert train(tmp_path / "run", "--learning-rate", "1e-6", "--epochs", "5", "--patience", "1") == 0
    rates = [row["learning_rate"] for row in outcome(tmp_path / "run")[0]]
    assert rates[:3] == [1e-6] * 3
    assert rates[-1] == 5e-7


def test_a_loss_that_is_no_number_stops_the_run(tmp_path, capsys):
    assert train(tmp_path / "run", "--learning-rate", "1e30", "--gradient-clip", "1e30") == 2
    assert "a lower --learning-rate" in capsys.readouterr().err


def test_training_does_not_touch_the_global_state_of_numpy_and_leaves_signals_alone(tmp_path):
    handler = signal.getsignal(signal.SIGINT)
    _, before, *place = np.random.get_state()  # noqa: NPY002 - the global generator is what must not change
    assert train(tmp_path / "run", "--epochs", "1") == 0
    _, after, *place_after = np.random.get_state()  # noqa: NPY002
    assert np.array_equal(before, after)
    assert place == place_after
    assert signal.getsignal(signal.SIGINT) is handler
    assert not torch.distributed.is_initialized()


def test_an_apple_gpu_is_not_chosen(monkeypatch):
    monkeypatch.setattr("lightning_fabric.accelerators.mps.MPSAccelerator.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert build_fabric(PRESETS["demo"]).device.type == "cpu"
