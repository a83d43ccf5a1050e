"""ONLSTM under `torch.compile`, `torch.export` and `torch.jit.trace`."""

import io

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from onlstm import ONLSTM, ONLSTMCell
from onlstm.language_model import LanguageModel
from tests.equality import FAST, NEEDS_NATIVE
from tests.tolerances import assert_close
from tests.versions import PACKED_FIELDS_IN_GRAPHS, SORTED_IN_GRAPHS

pytestmark = NEEDS_NATIVE


def flat(results):
    """The tensors of a layer's results."""
    for result in results:
        if isinstance(result, Tensor := torch.Tensor):
            yield result
        elif isinstance(result, PackedSequence):
            yield result[0]  # by index: see `PACKED_FIELDS_IN_GRAPHS`
        else:
            assert all(isinstance(one, Tensor) for one in result)
            yield from result


def ragged(enforce_sorted):
    lengths = (5, 3, 2, 1) if enforce_sorted else (2, 5, 1, 3)
    return pack_sequence([torch.randn(n, 3) for n in lengths], enforce_sorted=enforce_sorted)


CASES = {
    "padded": (lambda: torch.randn(5, 4, 3), False),
    "carried": (lambda: torch.randn(5, 4, 3), True),
    "ragged, carried": (lambda: ragged(False), True),
    "sorted": (lambda: ragged(True), False),
    "sorted, carried": (lambda: ragged(True), True),
}
EACH_CASE = [pytest.param(case, marks=SORTED_IN_GRAPHS if case == "sorted" else ()) for case in CASES]


def check_that_compiled_equals_eager(layer, input, state, compiler):
    data = input if isinstance(input, torch.Tensor) else input.data

    def call(data, state):
        given = data if isinstance(input, torch.Tensor) else PackedSequence(data, *input[1:])
        return list(flat(layer(given, state, distances=True)))

    torch._dynamo.reset()
    counters.clear()
    outcomes = []
    for run in (call, torch.compile(call, fullgraph=True, backend=compiler)):
        leaves = [data.clone().requires_grad_(), *(one.clone().requires_grad_() for one in state or ())]
        results = run(leaves[0], tuple(leaves[1:]) or None)
        loss = sum((result * (1 + k)).sin().sum() for k, result in enumerate(results))
        outcomes.append([*results, *torch.autograd.grad(loss, [*leaves, *layer.parameters()])])
    for one, other in zip(*outcomes, strict=True):
        assert_close(one, other)
    assert not counters["graph_break"]


OF_INDUCTOR = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its own, of torch.jit
INDUCTOR = pytest.param("inductor", marks=[pytest.mark.slow, OF_INDUCTOR])


@pytest.mark.parametrize("compiler", ["aot_eager", INDUCTOR])
@pytest.mark.parametrize("case", EACH_CASE)
def test_compiled_and_eager_agree(case, compiler):
    make, carried = CASES[case]
    layer = ONLSTM(3, 6, 2, chunk_size=2, bidirectional=True)
    state = tuple(torch.randn(2, 4, 4, 6)) if carried else None
    check_that_compiled_equals_eager(layer, make(), state, compiler)


def test_the_sequence_backend_compiles_too():
    layer = ONLSTM(3, 6, chunk_size=2, bidirectional=True, backend="sequence")
    check_that_compiled_equals_eager(layer, ragged(False), None, "aot_eager")


@pytest.mark.slow
@OF_INDUCTOR
def test_compiled_by_inductor_both_ways_for_batches_of_any_size():
    torch._dynamo.reset()
    layer = ONLSTM(3, 6, chunk_size=2, bidirectional=True).requires_grad_(False)
    compiled = torch.compile(layer, fullgraph=True)
    for shape in ((5, 4, 3), (6, 2, 3), (3, 7, 3)):
        x = torch.randn(shape)
        for one, other in zip(flat(compiled(x)), flat(layer(x)), strict=True):
            assert_close(one, other)


@PACKED_FIELDS_IN_GRAPHS
def test_a_packed_sequence_as_input_of_what_is_compiled():
    layer = ONLSTM(3, 6, chunk_size=2)
    packed = ragged(False)
    compiled = torch.compile(lambda packed: layer(packed)[0].data, fullgraph=True, backend="aot_eager")
    assert_close(compiled(packed), layer(packed)[0].data)


def test_compiled_once_for_all_lengths():
    torch._dynamo.reset()
    counters.clear()
    layer = ONLSTM(3, 6, chunk_size=2)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for steps in (3, 5, 7, 4, 12):
        x = torch.randn(steps, 2, 3)
        assert_close(compiled(x)[0], layer(x)[0])
    assert counters["stats"]["unique_graphs"] == 2


def test_a_language_model_exported():
    model = LanguageModel(11, 6, 8, num_layers=2, chunk_size=2).eval()
    sizes = {0: torch.export.Dim("T", min=2, max=100), 1: torch.export.Dim("B", min=2, max=100)}
    program = torch.export.export(model, (torch.randint(11, (5, 3)),), dynamic_shapes=(sizes,))
    text, file = torch.randint(11, (9, 4)), io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for exported in (program, torch.export.load(file)):
        assert torch.equal(exported.module()(text).logits, model(text).logits)


def test_the_definition_exported_takes_batches_of_any_size():
    layer = ONLSTM(3, 6, chunk_size=2, backend="reference").eval()
    batch = {1: torch.export.Dim("B", min=2, max=100)}
    program = torch.export.export(layer, (torch.randn(3, 2, 3),), dynamic_shapes=(batch,))
    x = torch.randn(3, 4, 3)
    assert torch.equal(program.module()(x)[0], layer(x)[0])


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("with_state", [False, True])
def test_an_exported_cell_takes_batches_of_any_size(with_state, strict):
    cell, batch = ONLSTMCell(3, 6, chunk_size=2), {0: torch.export.Dim("B", min=2, max=100)}
    arguments = [
        (torch.randn(B, 3), *([(torch.randn(B, 6), torch.randn(B, 6))] * with_state)) for B in (3, 5)
    ]
    shapes = (batch, *([(batch, batch)] * with_state))
    program = torch.export.export(cell, arguments[0], dynamic_shapes=shapes, strict=strict).module()
    traced = torch.jit.trace(cell, arguments[0])
    for one in (program, traced):
        assert all(map(torch.equal, one(*arguments[1]), cell(*arguments[1])))


class OfPacked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = ONLSTM(3, 6, chunk_size=2, bidirectional=True)

    def forward(self, packed):
        output, (hidden, cell) = self.layer(packed)
        return output[0], hidden, cell  # by index: see `PACKED_FIELDS_IN_GRAPHS`


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("enforce_sorted", [False, pytest.param(True, marks=SORTED_IN_GRAPHS)])
def test_an_exported_layer_takes_a_packed_sequence(enforce_sorted, strict):
    model, packed = OfPacked(), ragged(enforce_sorted)
    exported = torch.export.export(model, (packed,), strict=strict).module()
    for one, other in zip(exported(packed), model(packed), strict=True):
        assert_close(one, other)


def test_an_exported_layer_comes_back_from_a_file():
    layer, x, file = ONLSTM(3, 6, chunk_size=2, bidirectional=True), torch.randn(4, 2, 3), io.BytesIO()
    torch.export.save(torch.export.export(layer, (x,)), file)
    file.seek(0)
    assert torch.equal(torch.export.load(file).module()(x)[0], layer(x)[0])
    file.seek(0)
    torch.export.save(torch.export.export(layer, (x,), {"distances": True}), file)
    file.seek(0)
    *_, distances = torch.export.load(file).module()(x, distances=True)
    assert torch.equal(distances.forget, layer(x, distances=True)[2].forget)


def test_a_graph_has_one_operator():
    layer = ONLSTM(3, 6, chunk_size=2)
    graph = make_fx(lambda x: layer(x)[0])(torch.randn(3, 2, 3))
    assert sum(node.target is torch.ops.onlstm.native.default for node in graph.graph.nodes) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", FAST)
def test_a_traced_layer_is_the_eager_one_at_any_length(name):
    layer = ONLSTM(3, 4, chunk_size=2, bidirectional=True, backend=name)
    traced = torch.jit.trace(layer, torch.randn(3, 2, 3))
    for x in (torch.randn(3, 2, 3), torch.randn(7, 1, 3)):
        (output, _), (expected, _) = traced(x), layer(x)
        assert torch.equal(output, expected)
        leaves = list(layer.parameters())
        gradients, wanted = (torch.autograd.grad(one.sin().sum(), leaves) for one in (output, expected))
        for gradient, other in zip(gradients, wanted, strict=True):
            assert torch.equal(gradient, other)
