"""The authors' code: their module, with our weights, on the same sequences."""

import sys

import pytest
import torch
from torch import nn

import ordered_memory
from ordered_memory import OrderedMemory
from ordered_memory.cells import GatedRecursiveCell
from tasks.benchmark.compare import _notes
from tasks.benchmark.contenders import Entry, Setup, build, build_batches
from tasks.benchmark.released import FILE, REPOSITORY, execute, largest_difference, released_weights
from tasks.benchmark.workloads import Batch, embed, pad, pad_left
from tasks.runs.errors import UserError
from tests.tasks.benchmark.tiny import SIZES, fails, some_batches


def test_their_cell_with_the_mapped_weights_composes_as_ours():
    """By the formula of the authors' cell: [candidate; memory] in, gates of candidate, memory, update."""
    layer = OrderedMemory(5, 6, 4, dtype=torch.float64)
    theirs = {name.removeprefix("OM_forward.cell."): w for name, w in released_weights(layer).items()}
    memory, candidate = torch.randn(2, 3, 6, dtype=torch.float64)
    hidden = torch.cat([candidate, memory], -1) @ theirs["input_t.1.weight"].T + theirs["input_t.1.bias"]
    units = hidden.relu() @ theirs["input_t.4.weight"].T + theirs["input_t.4.bias"]
    of_candidate, of_memory, of_update = units[:, :18].sigmoid().chunk(3, dim=-1)
    composed = of_candidate * candidate + of_memory * memory + of_update * units[:, 18:]
    cell = layer.directions[0].cell
    assert isinstance(cell, GatedRecursiveCell)
    torch.testing.assert_close(composed, cell(memory, candidate), rtol=1e-12, atol=1e-12)


def test_every_parameter_is_handed_over():
    layer = OrderedMemory(5, 6, 4)
    # Their shared LayerNorm has three names; count it under one.
    handed = {name: w for name, w in released_weights(layer).items() if "activation" not in name}
    assert all(name.startswith("OM_forward.") for name in handed)
    assert sum(w.numel() for w in handed.values()) == sum(w.numel() for w in layer.parameters())


def test_nothing_is_written_to_a_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    (tmp_path / "first.py").write_text("from second_of_checkout import NUMBER")
    (tmp_path / "second_of_checkout.py").write_text("NUMBER = 3")
    assert execute(tmp_path, "first.py", REPOSITORY).NUMBER == 3
    assert {path.name for path in tmp_path.iterdir()} == {"first.py", "second_of_checkout.py"}
    assert not sys.dont_write_bytecode


def test_their_module_comes_from_its_source_and_stays_private(checkout):
    module = execute(checkout, FILE, REPOSITORY)
    assert module.OrderedMemory is not OrderedMemory
    assert module.__name__ not in sys.modules
    assert sys.modules["ordered_memory"] is ordered_memory
    assert [path.name for path in checkout.iterdir()] == ["ordered_memory.py"]


@pytest.mark.parametrize("left_padded", [True, False])
def test_their_module_reads_the_same_sequences_padded_on_its_side(checkout, left_padded):
    setup = Setup(SIZES, 0, "cpu", checkout, left_padded=left_padded)
    batches = build_batches(setup, some_batches([4, 1, 3]))
    contender = build(setup, Entry("released"), batches)
    contender.training_step(0)()
    contender.evaluation(0)()
    module = contender.module
    assert module.projection.weight.grad is None  # forgotten before an evaluation
    (mask, output_last), _ = module.seen
    assert output_last == left_padded
    assert mask.sum(0).tolist() == [4, 1, 3]
    assert mask[0].tolist() == [True, not left_padded, not left_padded]
    projected = module.projection(batches[0].inputs)[batches[0].lengths - 1, torch.arange(3)]
    torch.testing.assert_close(contender.forward(contender.batches[0]), projected)


def test_padding_moves_to_the_left_and_nothing_is_lost():
    batch = embed(pad([[1, 2, 3], [4]]), torch.arange(6.0).unsqueeze(1), SIZES, seed=0)
    moved = pad_left(batch)
    assert moved.inputs.squeeze(-1).T.tolist() == [[1, 2, 3], [0, 0, 4]]
    assert moved.mask.T.tolist() == [[True] * 3, [False, False, True]]


class _Same(nn.Module):
    """Computes what a layer of ours does, off by a little."""

    def __init__(self, layer, offset):
        super().__init__()
        self.layer, self.offset = layer, offset

    def forward(self, inputs, mask):
        assert mask.all()
        return self.layer(inputs).state.candidate[:, -1] + self.offset


def test_outputs_that_differ_are_no_basis_for_a_comparison():
    layer = OrderedMemory(5, 6, 4)
    batch: Batch = embed(some_batches([4, 2, 3])[0], torch.randn(10, 5), SIZES, seed=0)
    assert largest_difference(_Same(layer, 0.0), layer, batch) <= 1e-12
    with pytest.raises(UserError, match=r"differ from ours by 0\.01"):
        largest_difference(_Same(layer, 0.01), layer, batch)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "contains no ordered_memory.py; expected a checkout of yikangshen/Ordered-Memory"),
        ("1 +", "not the expected module: SyntaxError"),
        ("raise OSError('no')", "not the expected module: OSError: no"),
        ("OrderedMemory = 3", "not the expected module: TypeError"),
        ("from torch.nn import Linear as OrderedMemory", "not the expected module"),
    ],
)
def test_another_checkout_is_refused(tmp_path, capsys, content, complaint):
    if content is not None:
        (tmp_path / "ordered_memory.py").write_text(content)
    error = fails(capsys, "--quick", "--no-memory", "--released-code", tmp_path)
    assert str(tmp_path) in error
    assert complaint in error


@pytest.mark.parametrize(
    ("sizes", "difference", "said"),
    [
        ({}, 1e-12, "same weights; on sequences of one length its outputs differ by at most 1.0e-12"),
        ({"occupancy_threshold": 0.01}, None, "same weights; its outputs are not compared"),
        ({"score": "additive"}, None, "random weights on the same shapes, because it has no additive score"),
    ],
)
def test_the_note_on_the_released_code_says_which_weights_it_has(sizes, difference, said):
    values = SIZES._replace(score="normalized", cell="gated")._asdict() | sizes
    result = {
        "skipped": {},
        "contenders": {"released": {}},
        "released_difference": difference,
        "sizes": values,
    }
    assert said in _notes(result)[-1]
