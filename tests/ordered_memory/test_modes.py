"""Modes of PyTorch: an LSTM where it cannot run under autocast; marks for torch.compile."""

import contextlib
import logging

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

from onlstm.language_model import LanguageModel
from ordered_memory import modes
from ordered_memory.modes import autocast_of_lstm, is_transformed, runs_lstm


@pytest.fixture
def no_lstm_under_autocast(monkeypatch):
    monkeypatch.setattr(modes, "_runs_lstm", {torch.bfloat16: False}.__getitem__)  # asked about no other


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_it_is_known_whether_an_lstm_runs_under_autocast(dtype, caplog):
    modes._runs_lstm.cache_clear()
    random_state = torch.get_rng_state()
    with caplog.at_level(logging.WARNING):
        answers = [runs_lstm(dtype) for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), random_state)
    with torch.autocast("cpu", dtype):
        if answers[0]:
            nn.LSTM(3, 4)(torch.randn(5, 2, 3))
        else:
            with pytest.raises(RuntimeError):
                nn.LSTM(3, 4)(torch.randn(5, 2, 3))
    assert answers[0] == answers[1]
    assert len(caplog.records) == (not answers[0])  # a warning, once
    modes._runs_lstm.cache_clear()


@pytest.mark.parametrize("autocast_to", [torch.bfloat16, torch.float16])
def test_whether_an_lstm_runs_does_not_depend_on_the_defaults(autocast_to):
    modes._runs_lstm.cache_clear()
    expected = runs_lstm(autocast_to)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    modes._runs_lstm.cache_clear()
    try:
        with torch.device("meta"):
            assert runs_lstm(autocast_to) == expected
    finally:
        torch.set_default_dtype(default)
        modes._runs_lstm.cache_clear()


def test_autocast_stays_where_an_lstm_runs_under_it(monkeypatch):
    monkeypatch.setattr(modes, "_runs_lstm", lambda dtype: True)
    with torch.autocast("cpu", torch.bfloat16), autocast_of_lstm(torch.device("cpu")):
        assert torch.is_autocast_enabled("cpu")


@pytest.mark.usefixtures("no_lstm_under_autocast")
def test_autocast_is_disabled_only_where_it_is_enabled():
    for enabled in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            with autocast_of_lstm(torch.device("cpu")):
                assert not torch.is_autocast_enabled("cpu")
            assert torch.is_autocast_enabled("cpu") == enabled
        with autocast_of_lstm(torch.device("meta")):
            pass


@pytest.mark.usefixtures("no_lstm_under_autocast")
def test_autocast_stays_on_another_device(monkeypatch):
    monkeypatch.setattr(modes, "autocast_dtype", lambda device: torch.bfloat16)  # also without such a device
    assert isinstance(autocast_of_lstm(torch.device("cuda")), contextlib.nullcontext)
    assert not isinstance(autocast_of_lstm(torch.device("cpu")), contextlib.nullcontext)


@pytest.mark.usefixtures("no_lstm_under_autocast")
def test_the_layers_of_a_language_model_compute_without_autocast():
    model = LanguageModel(11, 6, 8, 2, recurrent="lstm", weight_dropout=0.5)
    tokens = torch.randint(11, (7, 3))
    for mode in (model.eval(), model.train()):
        torch.manual_seed(1)
        expected = mode(tokens)
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16):
            actual = mode(tokens)
        assert torch.equal(actual.raw, expected.raw)
        assert actual.raw.dtype == torch.float32
        assert actual.logits.dtype == torch.bfloat16
        again = mode(tokens, actual.state)  # the state fits another call
        assert again.raw.dtype == torch.float32


def test_forward_mode_concerns_the_tensors_that_carry_a_derivative():
    x = torch.zeros(2)
    assert not is_transformed(x, None)
    with forward_ad.dual_level():
        assert not is_transformed(x, None)
        assert is_transformed(x, None, forward_ad.make_dual(x, x))


def test_functions_are_marked_as_torch_compile_marks_them():
    def function():
        pass

    marks = vars(torch.compiler.assume_constant_result(function))
    assert vars(runs_lstm).items() >= marks.items() != {}.items()
