"""The benchmark's subcommand `onlstm`, and the authors' module beside ours."""

import json

import pytest
import torch

from onlstm import ONLSTM
from tasks.benchmark import ordered_neurons
from tasks.benchmark.__main__ import main
from tasks.benchmark.ordered_neurons import largest_difference, released_weights
from tasks.runs.errors import UserError

# A stand-in for the authors' file: the same names and order of parameters, our equations.
STAND_IN = """
import torch
from torch import nn
from locked_dropout import marker
from onlstm.functional import step

class Cell(nn.Module):
    def __init__(self, features, size, chunk):
        super().__init__()
        rows = 4 * size + 2 * (size // chunk)
        self.ih, self.hh = nn.Sequential(nn.Linear(features, rows)), nn.Linear(size, rows)
        self.size, self.chunk = size, chunk

class ONLSTMStack(nn.Module):
    def __init__(self, sizes, chunk_size):
        super().__init__()
        self.cells = nn.ModuleList([Cell(*sizes, chunk_size)])

    def init_hidden(self, batch):
        zeros = self.cells[0].hh.weight.new_zeros(batch, self.cells[0].size)
        return [(zeros, zeros)]

    def forward(self, x, hidden):
        cell, ((h, c),), outputs = self.cells[0], hidden, []
        masters = cell.size // cell.chunk
        for token in x:
            gates = cell.ih(token) + cell.hh(h)
            i_master, f_master, o, g, i, f = gates.split([masters] * 2 + [cell.size] * 4, dim=1)
            h, c, _ = step(torch.cat([i, f, g, o, f_master, i_master], dim=1), c, cell.chunk)
            outputs.append(h)
        return (torch.stack(outputs),)
"""


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "ON_LSTM.py").write_text(STAND_IN)
    (tmp_path / "locked_dropout.py").write_text("marker = 1\n")
    return tmp_path


def test_everyone_is_timed_on_the_same_batch(checkout, tmp_path, timed_by, capsys):
    target, timed = tmp_path / "results.json", timed_by(ordered_neurons)
    words = ["onlstm", "--sizes", "4x3x5x40", "2x2x5x20", "--repeats", "1", "--released-code", str(checkout)]
    assert main([*words, "--json", str(target)]) == 0
    results = json.loads(target.read_text())
    assert [(one["T"], one["H"]) for one in results] == [(4, 40), (2, 20)]
    for one in results:
        assert {"sequence", "reference", "nn.LSTM", "released", "floor"} <= one["contenders"].keys()
        assert all(of["train_ms"] > 0 and of["infer_ms"] > 0 for of in one["contenders"].values())
    for contenders in timed:
        [batch] = contenders["sequence"].batches
        for name, contender in contenders.items():
            if name.startswith("floor"):
                assert torch.equal(contender.tokens, batch.inputs.flatten(0, 1).to(contender.tokens.dtype))
            else:
                [own] = contender.batches
                assert torch.equal(own.inputs, batch.inputs)
                assert torch.equal(own.weights, batch.weights)
    assert len(timed) == 2
    assert "× LSTM" in capsys.readouterr().out
    assert main(["onlstm", "--quick", "--repeats", "1"]) == 0


def test_other_code_is_refused(checkout, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main(["onlstm", "--quick", "--released-code", str(tmp_path / "empty")]) == 2
    assert "contains no ON_LSTM.py" in capsys.readouterr().err
    (checkout / "ON_LSTM.py").write_text(STAND_IN.replace("cell.ih(token) +", "cell.ih(token) -"))
    assert main(["onlstm", "--quick", "--released-code", str(checkout)]) == 2
    assert "its outputs differ from ours" in capsys.readouterr().err
    (checkout / "ON_LSTM.py").write_text("raise ValueError('no')")
    assert main(["onlstm", "--quick", "--released-code", str(checkout)]) == 2
    assert "not the expected module: ValueError: no" in capsys.readouterr().err


def test_their_weights_have_every_one_of_ours():
    layer = ONLSTM(3, 6, chunk_size=2)
    theirs = released_weights(layer)
    assert sum(tensor.numel() for tensor in theirs.values()) == sum(p.numel() for p in layer.parameters())
    with pytest.raises(UserError, match="differ from ours"):
        largest_difference(_Zero(), layer, torch.randn(5, 2, 3))


class _Zero(torch.nn.Linear):
    def __init__(self):
        super().__init__(3, 6)

    def init_hidden(self, batch):
        return None

    def forward(self, x, hidden):
        return (torch.zeros(*x.shape[:2], 6, dtype=x.dtype) + 1,)


def test_a_bad_size_is_reported_before_anything_is_measured(capsys):
    assert main(["onlstm", "--sizes", "1x1x1x20", "1x1x1x7", "--repeats", "1"]) == 2
    out, error = capsys.readouterr()
    assert "hidden_size=7 must be divisible by chunk_size=10" in error
    assert not out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sizes", "5x2"], "--sizes must be like 70x20x400x1150, got '5x2'"),
        (["--sizes", f"{10**20}x1x1x10"], f"--sizes must be like 70x20x400x1150, got '{10**20}x1x1x10'"),
        (["--sizes", f"1x1x1x1{'0' * 5000}"], "--sizes must be like 70x20x400x1150, got '1x1x1x10"),
        (["--sizes", "5x2x3x7"], "hidden_size=7 must be divisible by chunk_size=10"),
        (["--repeats", "0"], "--repeats must be at least 1, got 0"),
    ],
)
def test_bad_options_are_one_line(options, message, capsys):
    assert main(["onlstm", *options]) == 2
    assert message in capsys.readouterr().err
