"""Training by the commands: options and what they have no effect on."""

import signal

import numpy as np
import pytest
import torch

from tasks.listops.__main__ import main
from tasks.listops.config import PRESETS
from tasks.runs.fabric import build_fabric
from tests.outcome import outcome
from tests.tasks.runs.tiny import train


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


def test_the_learning_rate_falls_on_a_plateau(tmp_path):
    assert train(tmp_path / "run", "--learning-rate", "1e-6", "--epochs", "5", "--patience", "1") == 0
    rates = [row["learning_rate"] for row in outcome(tmp_path / "run")[0]]
    assert rates[:3] == [1e-6] * 3
    assert rates[-1] == 5e-7


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
