"""Cells, scores and maps that a user puts in place of the layer's own."""

import pytest
import torch
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from ordered_memory import NormalizedScore, OrderedMemory, TreeRNNCell
from tests.small_memory import F64, X, make
from tests.tolerances import assert_close


def test_what_a_subclass_does_in_forward_is_done_once():
    class Doubled(OrderedMemory):
        def forward(self, x):
            return (
                super().forward(2 * x if isinstance(x, torch.Tensor) else x._replace(data=2 * x.data)).output
            )

    plain = OrderedMemory(4, 6, 5, dtype=F64, batch_first=True)
    layer = Doubled(4, 6, 5, dtype=F64, batch_first=True)
    layer.load_state_dict(plain.state_dict())
    x = torch.randn(2, 5, 4, dtype=F64)
    expected = plain(2 * x).output
    assert_close(layer(x), expected)
    assert_close(layer(x[0]), expected[0])
    packed = layer(pack_sequence([x[0], x[1, :3]], enforce_sorted=False))
    assert_close(pad_packed_sequence(packed, batch_first=True)[0][0], expected[0])


def test_a_score_or_cell_that_would_not_be_called_is_refused():
    class Forward(TreeRNNCell):
        def forward(self, memory, candidate):
            return memory + candidate

    class Compose(Forward):
        def compose(self, prepared, memory, candidate, masks):
            return self(memory, candidate)

    layer = make()
    with pytest.raises(TypeError, match=r"cell is the name of the cell .*, got Compose; .*directions\[i\]"):
        layer.cell = Compose(6)
    with pytest.raises(TypeError, match="override compose in Forward"):
        layer.directions[0].cell = Forward(6)
    layer.directions[0].cell = Compose(6, dtype=F64)
    assert layer(X).output.shape == (2, 5, 6)


class Plain(torch.nn.Module):
    """A cell and a score that derives from neither, but has what the layer uses."""

    dropout = 0.0

    def prepare(self, memory, masks):
        return memory

    def compose(self, prepared, memory, candidate, masks):
        return prepared + candidate

    def draw_masks(self, batch_size, num_slots, like):
        return None

    def forward(self, x, candidate, masks=None):
        return (x.unsqueeze(1) * candidate).sum(-1)


def without(name):
    """`Plain` without an attribute, or with a forward that takes no masks."""
    if name == "masks":
        return type("S", (Plain,), {"forward": lambda self, x, candidate: candidate[..., 0]})()
    kept = {key: value for key, value in vars(Plain).items() if key not in (name, "__dict__", "__weakref__")}
    return type("S", (torch.nn.Module,), kept)()


@pytest.mark.parametrize("name", ["prepare", "compose", "draw_masks", "dropout"])
def test_a_cell_that_lacks_something_is_refused_when_it_is_set(name):
    message = (
        "cell must derive from GatedRecursiveCell or TreeRNNCell and override `compose`, got S, which has no "
        f"`{name}`"
    )
    with pytest.raises(TypeError, match=f"^{message}$"):
        make().directions[0].cell = without(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("draw_masks", "has no `draw_masks`"),
        ("dropout", "has no `dropout`"),
        ("masks", r"has a `forward` that does not take \(x, candidate, masks\)"),
    ],
)
def test_a_score_that_lacks_something_is_refused_when_it_is_set(name, problem):
    message = "score must derive from NormalizedScore or AdditiveScore and override `features`, got S, which "
    with pytest.raises(TypeError, match=f"^{message}{problem}$"):
        make().directions[0].score = without(name)


def test_a_cell_or_score_of_another_size_is_refused_when_it_is_set():
    direction = make().directions[0]
    with pytest.raises(ValueError, match=r"^cell must have slot_size=6, got slot_size=8$"):
        direction.cell = TreeRNNCell(8)
    with pytest.raises(ValueError, match=r"^score must have slot_size=6, got slot_size=8$"):
        direction.score = NormalizedScore(8)


def test_a_score_and_a_cell_that_have_what_the_layer_uses_run():
    layer = make(cell_dropout=0.5, attention_dropout=0.5)
    layer.directions[0].score, layer.directions[0].cell = Plain(), Plain()
    layer(X).output.sum().backward()
    wrapped = make().requires_grad_(False)
    direction, expected = wrapped.directions[0], wrapped(X).output
    direction.score = torch.compile(direction.score, backend="eager")
    direction.cell = torch.compile(direction.cell, backend="eager")
    assert_close(wrapped(X).output, expected)


def test_a_cached_parametrization_is_computed_once():
    calls = []

    class Counted(torch.nn.Module):
        def forward(self, weight):
            calls.append(weight)
            return weight

    layer = make(recompute_every=2)
    parametrize.register_parametrization(layer.directions[0].cell.output, "weight", Counted())
    calls.clear()
    layer(X)
    assert len(calls) == 5 * 5  # steps and slots
    calls.clear()
    with parametrize.cached():
        layer(X).output.sum().backward()
    assert len(calls) == 1


def test_reset_parameters_passes_over_modules_without_parameters():
    layer = make(backend="reference")
    layer.directions[0].norm = torch.nn.Sequential(torch.nn.GELU(), torch.nn.LayerNorm(6, dtype=F64))
    layer.directions[0].score.key = torch.nn.Sequential(torch.nn.Linear(6, 6, dtype=F64), torch.nn.Tanh())
    before = layer.directions[0].score.key[0].weight.clone()
    layer.reset_parameters()
    assert not torch.equal(layer.directions[0].score.key[0].weight, before)
