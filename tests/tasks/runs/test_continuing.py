"""A run that goes on: with more epochs, other options, other data, or after it has finished."""

import json
import re

import pytest
import torch

from tasks.classifiers.classification import ClassificationObjective
from tasks.listops.__main__ import main
from tasks.listops.config import ListOpsConfig
from tasks.listops.data import Dataset as ListOpsData
from tasks.listops.data import write_tsv
from tasks.listops.generator import generate
from tasks.listops.model import ListOpsModel
from tasks.runs.checkpoints import read_checkpoint, read_state
from tasks.runs.trainer import Trainer
from tests.outcome import outcome
from tests.tasks.runs.tiny import train


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


def test_more_epochs_continue_every_seed(tmp_path, uninterrupted):
    assert train(tmp_path, "--seeds", "2", "--epochs", "1") == 0
    assert (tmp_path / "seed-1-to-2.json").exists()
    assert train(tmp_path, "--seeds", "3", "--resume") == 0
    assert [path.name for path in tmp_path.glob("*.json")] == ["seed-1-to-3.json"]
    assert [len(outcome(tmp_path / f"seed-{seed}")[0]) for seed in (1, 2, 3)] == [2, 2, 2]
    assert outcome(tmp_path / "seed-1")[:2] == uninterrupted[:2]


def test_seeds_refuse_a_directory_that_holds_a_run_before_they_train(tmp_path, capsys):
    assert train(tmp_path / "seed-2", "--epochs", "1") == 0
    assert train(tmp_path, "--seeds", "2") == 2
    assert "seed-2: already holds a run" in capsys.readouterr().err
    assert not (tmp_path / "seed-1").exists()


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
