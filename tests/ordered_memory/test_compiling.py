"""Layers under `torch.compile`, `torch.export` and `torch.jit.trace`."""

import io

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn

from ordered_memory import OrderedMemory, OrderedMemoryOutput, OrderedMemoryState
from ordered_memory.backends import native
from ordered_memory.backends.registry import BackendError
from ordered_memory.backends.runtime import processor
from tests.random_layers import (
    LENGTHS,
    QUIET,
    assert_all_close,
    carried_state,
    make,
    results_and_gradients,
    tokens,
)
from tests.small_memory import F64, NEEDS_NATIVE
from tests.tolerances import assert_close
from tests.versions import DROPOUT_OF_EAGER_MODE, MESSAGES_IN_GRAPHS, PROPERTIES_IN_GRAPHS, SORTED_IN_GRAPHS

pytestmark = [NEEDS_NATIVE, pytest.mark.usefixtures("nothing_compiled")]


def fullgraph(layer, backend="aot_eager", **arguments):
    return torch.compile(layer, fullgraph=True, backend=backend, **arguments)


@QUIET
@pytest.mark.parametrize(
    ("bidirectional", "arguments"),
    [
        (False, lambda layer: {}),
        (True, lambda layer: {"lengths": LENGTHS}),
        (False, lambda layer: {"lengths": LENGTHS.tolist()}),
        (False, lambda layer: {"state": OrderedMemoryState(*carried_state(layer))}),
        (True, lambda layer: {"lengths": LENGTHS, "state": OrderedMemoryState(*carried_state(layer))}),
    ],
    ids=["whole", "ragged both ways", "ragged list", "carried state", "all"],
)
def test_a_compiled_layer_is_the_eager_one(bidirectional, arguments):
    layer = make(bidirectional=bidirectional)
    x, given = tokens(), arguments(layer)
    expected = results_and_gradients(layer, layer, x, **given)
    assert_all_close(results_and_gradients(fullgraph(layer), layer, x, **given), expected)


@QUIET
@pytest.mark.parametrize("enforce_sorted", [False, pytest.param(True, marks=SORTED_IN_GRAPHS)])
def test_a_compiled_layer_takes_a_packed_sequence(enforce_sorted):
    layer = make(bidirectional=True)
    lengths = LENGTHS.sort(descending=True).values if enforce_sorted else LENGTHS
    packed = rnn.pack_padded_sequence(tokens(), lengths, enforce_sorted=enforce_sorted)
    expected = results_and_gradients(layer, layer, packed)
    assert_all_close(results_and_gradients(fullgraph(layer), layer, packed), expected)


@QUIET
def test_a_compiled_layer_takes_the_packed_output_of_another():
    lower, upper = OrderedMemory(3, 4, 4, dtype=F64), OrderedMemory(4, 4, 4, dtype=F64)
    packed = rnn.pack_padded_sequence(tokens().detach(), LENGTHS, enforce_sorted=False)

    def both(packed):
        return upper(lower(packed).output).summary

    assert_close(fullgraph(both)(packed), both(packed))


def read_summary(out):
    return out.summary


def read_the_state(out):
    return out.state.candidate[..., -1, :]


@QUIET
@pytest.mark.parametrize("read", [pytest.param(read_summary, marks=PROPERTIES_IN_GRAPHS), read_the_state])
def test_compiled_and_exported_code_computes_with_the_summary(read):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.memory = make(bidirectional=True)

        def forward(self, x):
            return 2 * read(self.memory(x))

    model, x = Model(), tokens().detach()
    expected = 2 * model.memory(x).summary
    assert_close(fullgraph(model)(x), expected)
    assert_close(torch.export.export(model, (x,), strict=True).module()(x), expected)


@QUIET
@pytest.mark.slow
def test_a_layer_compiled_by_inductor_is_the_eager_one():
    layer = make(cell_dropout=0.2).eval()
    x = tokens()
    expected = results_and_gradients(layer, layer, x, lengths=LENGTHS)
    assert_all_close(results_and_gradients(fullgraph(layer, "inductor"), layer, x, lengths=LENGTHS), expected)


@QUIET
@pytest.mark.slow
def test_inductor_draws_dropout_before_it_is_read():
    torch.compiler.reset()
    layer, x = make(cell_dropout=0.2, attention_dropout=0.3), tokens()
    function = torch.compile(layer)
    with torch._inductor.config.patch({"cpp.vec_isa_ok": True}):  # compiles no programs to ask the processor
        for _ in range(2):  # no numbers of uninitialised memory
            assert all(found.isfinite().all() for found in results_and_gradients(function, layer, x))


@QUIET
@pytest.mark.slow
@DROPOUT_OF_EAGER_MODE
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"score": "additive"}])
def test_inductor_has_the_dropout_of_eager_mode(options):
    torch.compiler.reset()
    layer, x = make(cell_dropout=0.2, attention_dropout=0.3, **options), tokens()
    found = []
    with torch._inductor.config.patch(fallback_random=True):  # the same random numbers
        for function in (layer, torch.compile(layer)):
            torch.manual_seed(3)
            found.append(results_and_gradients(function, layer, x))
    assert_all_close(*found)


@QUIET
def test_a_compiled_layer_takes_other_sizes_without_compiling_again():
    layer = make()
    function = fullgraph(layer, dynamic=True)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for shape in ((6, 5, 3), (9, 4, 3), (3, 7, 3)):
        x = tokens(*shape)
        expected = results_and_gradients(layer, layer, x)
        assert_all_close(results_and_gradients(function, layer, x), expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before + 1


@QUIET
def test_a_compiled_layer_takes_lists_of_other_lengths_without_compiling_for_each():
    layer, x = make(), tokens()
    function = fullgraph(layer)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for lengths in ([6, 2, 3, 4, 5], [5, 6, 2, 3, 4], [2, 3, 6, 5, 3], [4, 5, 4, 6, 2], [3, 4, 5, 2, 6]):
        expected = results_and_gradients(layer, layer, x, lengths=lengths)
        assert_all_close(results_and_gradients(function, layer, x, lengths=lengths), expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before + 2


@QUIET
@pytest.mark.parametrize("lengths", [[6, 2, True, 4, 5], [6, 2, 3.0, 4, 5]])
def test_a_compiled_layer_refuses_lengths_that_are_not_integers(lengths):
    message = "lengths must be one integer for each sequence"
    with pytest.raises(Exception, match=message):
        make()(tokens(), lengths=lengths)
    with pytest.raises(Exception, match=message if MESSAGES_IN_GRAPHS else "ValueError"):
        fullgraph(make())(tokens(), lengths=lengths)


@QUIET
def test_a_compiled_layer_drops_what_the_eager_one_drops():
    layer = make(cell_dropout=0.3, attention_dropout=0.3)
    x = tokens()
    found = []
    for function in (layer, fullgraph(layer)):
        torch.manual_seed(3)
        found.append(results_and_gradients(function, layer, x))
    assert_all_close(*found)


@QUIET
def test_a_graph_can_be_captured_where_autocast_finds_no_bfloat16_products(monkeypatch):
    monkeypatch.setattr(native, "multiplies_bfloat16", lambda: False)
    processor._warn_once.cache_clear()
    layer = make().float()
    x = tokens().float()
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(fullgraph(layer)(x).output, layer(x).output)
    processor._warn_once.cache_clear()


@QUIET
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "recompute_every": 2}])
def test_the_compiler_goes_round_the_sequence_backend(options):
    layer = make("sequence", **options)
    x = tokens()
    function = torch.compile(layer, backend="aot_eager")
    assert_all_close(results_and_gradients(function, layer, x), results_and_gradients(layer, layer, x))
    torch.compiler.reset()
    with pytest.raises(Exception, match="sequence backend computes depends on the data"):
        fullgraph(layer)(x)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.layer = nn.Embedding(7, 3, dtype=F64), make()
        self.head = nn.Linear(8, 2, dtype=F64)

    def forward(self, symbols, lengths):
        return self.head(self.layer(self.embedding(symbols), lengths=lengths).state.candidate[:, -1])


@pytest.mark.parametrize("strict", [False, True])
def test_the_definition_exported_for_training_takes_batches_of_any_size(strict):
    layer = make("reference", num_slots=2, cell_dropout=0.5, attention_dropout=0.5)
    batch = {1: torch.export.Dim("B", min=2, max=100)}
    program = torch.export.export(
        layer, (torch.randn(2, 2, 3, dtype=F64),), dynamic_shapes=(batch,), strict=strict
    )
    assert program.module()(torch.randn(2, 4, 3, dtype=F64)).output.shape == (2, 4, 8)


@QUIET
@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_classifier_gives_the_same_answers(strict):
    model = Classifier().eval()
    steps, batch = (torch.export.Dim(name, min=2, max=64) for name in ("steps", "batch"))
    example = torch.randint(7, (6, 5)), LENGTHS
    shapes = ({0: steps, 1: batch}, {0: batch})
    program = torch.export.export(model, example, dynamic_shapes=shapes, strict=strict)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    again = torch.export.load(file).module()
    for symbols, lengths in (example, (torch.randint(7, (9, 3)), torch.tensor([4, 9, 1]))):
        assert_close(again(symbols, lengths), model(symbols, lengths))


class OfPacked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = make(bidirectional=True)

    def forward(self, packed):
        out = self.layer(packed)
        return out.output[0], out.attention  # by index: see `PACKED_FIELDS_IN_GRAPHS`


@QUIET
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("enforce_sorted", [False, pytest.param(True, marks=SORTED_IN_GRAPHS)])
def test_an_exported_layer_takes_a_packed_sequence(enforce_sorted, strict):
    model = OfPacked()
    lengths = LENGTHS.sort(descending=True).values if enforce_sorted else LENGTHS
    packed = rnn.pack_padded_sequence(tokens().detach(), lengths, enforce_sorted=enforce_sorted)
    exported = torch.export.export(model, (packed,), strict=strict).module()
    assert_all_close(exported(packed), model(packed))


@QUIET
def test_an_exported_layer_and_its_state_come_back_from_a_file():
    layer, x, file = make().eval(), tokens().detach(), io.BytesIO()
    example = (x, OrderedMemoryState(*layer(x).state.detach()))
    torch.export.save(torch.export.export(layer, example), file)
    file.seek(0)
    again = torch.export.load(file).module()(*example)
    assert type(again) is OrderedMemoryOutput
    assert type(again.state) is OrderedMemoryState
    assert torch.equal(again.output, layer(*example).output)


@QUIET
@pytest.mark.parametrize("strict", [False, True])
def test_where_native_cannot_run_the_definition_is_exported(strict):
    layer, x = make(num_slots=2, cell="tree-rnn").eval(), torch.randn(3, 2, 3, dtype=F64)
    program = torch.export.export(layer, (x,), strict=strict)
    assert_close(program.module()(x).output, layer(x).output)


@QUIET
@pytest.mark.parametrize("enabled", [True, False])
def test_a_traced_layer_is_the_eager_one_at_any_length(enabled):
    layer = make("native")
    with torch.set_grad_enabled(enabled):
        traced = torch.jit.trace(layer, tokens(), strict=False)
    for x in (tokens(), tokens(9, 2, 3)):
        (output, *_), expected = traced(x), layer(x).output
        assert torch.equal(output, expected)
        leaves = [x, *layer.parameters()]
        gradients, wanted = (torch.autograd.grad(one.sin().sum(), leaves) for one in (output, expected))
        for gradient, other in zip(gradients, wanted, strict=True):
            assert torch.equal(gradient, other)


@QUIET
@pytest.mark.parametrize("backend", ["native", "reference"])
def test_a_traced_layer_takes_other_lengths(backend):
    layer, x, full = make(backend), tokens(), torch.full((5,), 6)
    example = {"x": x, "lengths": full}
    traced = torch.jit.trace(layer, example_kwarg_inputs=example, strict=False)
    assert torch.equal(traced(x=x, lengths=LENGTHS)[0], layer(x, lengths=LENGTHS).output)
    assert torch.equal(traced(x=x, lengths=full)[0], layer(x).output)


class PacksAndPads(nn.Module):
    """Packs, reads and pads again, so that only tensors go into a trace and come out of it."""

    def __init__(self, layer, enforce_sorted):
        super().__init__()
        self.layer, self.enforce_sorted = layer, enforce_sorted

    def forward(self, x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=self.enforce_sorted)
        output, state, attention = self.layer(packed)
        return rnn.pad_packed_sequence(output)[0], *state, attention


@QUIET
@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_traced_layer_takes_other_packed_batches(bidirectional, enforce_sorted):
    model = PacksAndPads(make("native", bidirectional=bidirectional), enforce_sorted)
    traced = torch.jit.trace(model, (tokens(6, 3, 3), torch.tensor([6, 4, 3])))
    for lengths in ([4, 2, 2], [6, 6], [5, 4, 3, 2, 1], [3]):
        x, lengths = tokens(6, len(lengths), 3), torch.tensor(lengths)
        for one, other in zip(traced(x, lengths), model(x, lengths), strict=True):
            assert torch.equal(one, other)


@QUIET
def test_sequence_is_not_traced_because_its_steps_depend_on_the_data():
    with pytest.raises(BackendError, match=r"torch\.jit\.trace"):
        torch.jit.trace(make("sequence"), tokens(), strict=False)


@QUIET
def test_a_graph_captured_without_gradients_says_that_it_has_none():
    with torch.no_grad():
        exported = torch.export.export(make("native"), (tokens().detach(),)).module()
    with pytest.raises(RuntimeError, match=r"'native' .* captured without gradients"):
        exported(tokens()).output.sum().backward()
