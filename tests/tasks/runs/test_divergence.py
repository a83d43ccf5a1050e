"""A loss or a weight that is not finite ends a run and replaces nothing."""

import json

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision
from safetensors.torch import load_file

from tasks.classifiers.classification import ClassificationObjective
from tasks.runs.interfaces import Scores
from tasks.runs.trainer import Trainer
from tests.outcome import outcome
from tests.tasks.runs.tiny import train


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


def test_a_validation_loss_that_is_no_number_replaces_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tasks.runs.trainer.validate", lambda *_: Scores(float("nan"), 0.0))
    assert train(tmp_path / "run") == 2
    assert "a lower --learning-rate" in capsys.readouterr().err
    assert not (tmp_path / "run" / "best.safetensors").exists()


def test_a_loss_that_is_no_number_stops_the_run(tmp_path, capsys):
    assert train(tmp_path / "run", "--learning-rate", "1e30", "--gradient-clip", "1e30") == 2
    assert "a lower --learning-rate" in capsys.readouterr().err
