"""The native recurrence as an operator of PyTorch, and what backends leave to the definition."""

import io
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils import parametrizations, prune, rnn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from ordered_memory import OrderedMemory, OrderedMemoryOutput, OrderedMemoryState
from ordered_memory.backends import BACKENDS, module_checks, native, select_backend
from ordered_memory.backends.native.call import SOURCE
from ordered_memory.backends.registry import BackendError
from ordered_memory.backends.runtime import processor
from ordered_memory.backends.runtime.build import load
from ordered_memory.memory import run_recurrence
from tests.tolerances import assert_close
from tests.versions import MESSAGES_IN_GRAPHS, SORTED_IN_GRAPHS
from tests.wrapped_weights import wrap_weight

F64 = torch.float64
LENGTHS = torch.tensor([6, 2, 3, 1, 5])
NATIVE = load(SOURCE, F64)
pytestmark = pytest.mark.skipif(isinstance(NATIVE, str), reason=str(NATIVE))
# What PyTorch's own tracing says about itself.
QUIET = pytest.mark.filterwarnings(
    r"ignore:`torch\.jit\.\w+` is deprecated:DeprecationWarning",
    "ignore::torch.jit.TracerWarning",
    r"ignore:The \.grad attribute of a Tensor that is not a leaf Tensor is being accessed:UserWarning",
)


@pytest.fixture(autouse=True)
def _nothing_is_compiled_yet():
    torch.compiler.reset()
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def make(backend="auto", num_slots=4, **arguments):
    """A layer; the third token is the first one that has more than one slot to attend to."""
    layer = OrderedMemory(3, 8, num_slots, backend=backend, dtype=F64, **arguments)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


def tokens(*shape, dtype=F64):
    return torch.randn(*(shape or (6, 5, 3)), dtype=dtype, requires_grad=True)


def results_and_gradients(function, layer, x, **arguments):
    out = function(x, **arguments)
    output = out.output.data if isinstance(out.output, rnn.PackedSequence) else out.output
    results = [output, out.attention, *out.state]
    loss = sum(((i + 1) * tensor).sin().sum() for i, tensor in enumerate(results))
    leaf = x.data if isinstance(x, rnn.PackedSequence) else x
    wanted = [leaf, *layer.parameters()]
    return [*results, *torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)]


def assert_all_close(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        assert_close(one, other)


# torch.compile, torch.export


def fullgraph(layer, backend="aot_eager", **arguments):
    return torch.compile(layer, fullgraph=True, backend=backend, **arguments)


def carried_state(layer):
    return layer(torch.randn(3, 5, 3, dtype=F64)).state.detach()


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
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"recompute_every": 2}])
def test_sequence_is_left_as_it_is(options):
    layer = make("sequence", **options)
    x = tokens()
    function = torch.compile(layer, backend="aot_eager")
    assert_all_close(results_and_gradients(function, layer, x), results_and_gradients(layer, layer, x))
    torch.compiler.reset()
    with pytest.raises(Exception, match="sequence backend"):
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
        return out.output.data, out.attention


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


# What the dispatcher does


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


class Recorder(TorchDispatchMode):
    """Keeps what the operators are called with."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "ordered_memory":
            self.calls.append(args)
        return function(*args, **(kwargs or {}))


def operator_arguments(layer, x, **arguments):
    """What the operator and its reverse are called with."""
    with Recorder() as recorder:
        layer(x, **arguments).output.sum().backward()

    def leaf(value):
        if isinstance(value, torch.Tensor):
            return value.detach().requires_grad_(value.requires_grad)
        return list(map(leaf, value)) if isinstance(value, list) else value

    return [[leaf(value) for value in call] for call in recorder.calls]


@QUIET
@pytest.mark.parametrize(("score", "dropout"), [("normalized", 0.0), ("normalized", 0.3), ("additive", 0.3)])
def test_opcheck(score, dropout):
    layer = make("native", score=score, cell_dropout=dropout, attention_dropout=dropout)
    forward, backward = operator_arguments(layer, tokens(), lengths=LENGTHS if dropout else None)
    assert any(isinstance(value, torch.Tensor) and value.requires_grad for value in forward)
    torch.library.opcheck(torch.ops.ordered_memory.native.default, tuple(forward))
    for value in tree_leaves(backward):
        if isinstance(value, torch.Tensor):
            value.requires_grad_(False)
    torch.library.opcheck(torch.ops.ordered_memory.native_backward.default, tuple(backward))


def test_fake_tensors_and_meta_tensors_have_shapes():
    with FakeTensorMode():
        layer = make()
        x = tokens()
        output = layer(x).output
        output.sum().backward()
        assert output.shape == (6, 5, 8)
        assert x.grad.shape == x.shape
    layer = OrderedMemory(3, 8, 4, device="meta")
    out = layer(torch.zeros(6, 5, 3, device="meta"), lengths=LENGTHS)
    assert out.attention.shape == (6, 5, 4)
    assert out.state.memory.device.type == "meta"


def test_make_fx_sees_one_operator():
    layer = make()
    graph = make_fx(lambda x: layer(x).output)(tokens().detach())
    assert [str(node.target) for node in graph.graph.nodes].count("ordered_memory.native.default") == 1
    x = torch.randn(6, 5, 3, dtype=F64)
    assert_close(graph(x), layer(x).output)


def test_the_default_device_changes_nothing():
    layer = make(cell_dropout=0.2, attention_dropout=0.2)
    x = tokens()
    torch.manual_seed(3)
    expected = results_and_gradients(layer, layer, x, lengths=LENGTHS)
    torch.manual_seed(3)
    with torch.device("meta"):
        found = results_and_gradients(layer, layer, x, lengths=LENGTHS)
    assert_all_close(found, expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.to("meta"), "state.memory must be on cpu, got a tensor on meta"),
        (
            lambda t: t.to(torch.complex128),
            "state.memory must have dtype torch.float64, got torch.complex128",
        ),
        (lambda t: t.long(), "state.memory must have dtype torch.float64, got torch.int64"),
        (lambda t: t.float(), "state.memory must have dtype torch.float64, got torch.float32"),
        (lambda t: t[:, :3], r"state.candidate must have shape \(5, 3, 8\)"),
    ],
)
@pytest.mark.parametrize("backend", ["native", "sequence", "reference"])
def test_a_state_that_does_not_fit_is_refused_by_name(backend, change, message):
    layer = make(backend)
    state = carried_state(layer)
    run = BACKENDS[backend].run_recurrence
    with pytest.raises(ValueError, match=message):
        run(
            torch.zeros(6, 5, 8, dtype=F64),
            state._replace(memory=change(state.memory)),
            layer.directions[0].recurrent_modules(),
        )


@pytest.mark.parametrize("backend", ["native", "sequence", "reference"])
@pytest.mark.parametrize("lengths", [torch.tensor([3]), torch.tensor(3), torch.tensor([[3], [2]])], ids=str)
def test_lengths_are_one_for_each_sequence(backend, lengths):
    layer = make(backend)
    state, modules = carried_state(layer), layer.directions[0].recurrent_modules()
    with pytest.raises(ValueError, match=r"^lengths must have shape \(5,\), got"):
        BACKENDS[backend].run_recurrence(torch.zeros(6, 5, 8, dtype=F64), state, modules, lengths)


@pytest.mark.parametrize("argument", ["queries", "lengths", "memory", "w_in", "key_mask", "dtype", "device"])
def test_the_operator_checks_what_it_is_called_with(argument):
    forward, _ = operator_arguments(make("native"), tokens(), lengths=LENGTHS)
    names = [one.name for one in torch.ops.ordered_memory.native.default._schema.arguments]
    place = names.index(argument) if argument in names else None
    if place is None:
        forward[1] = forward[1].float() if argument == "dtype" else forward[1].to("meta")
    else:
        forward[place] = torch.zeros(2, 2, dtype=forward[place].dtype if forward[place] is not None else F64)
    with pytest.raises(
        (ValueError, RuntimeError), match=argument if argument[0] != "d" else "queries|device"
    ):
        torch.ops.ordered_memory.native(*forward)


@pytest.mark.parametrize("argument", ["w_out", "b_out", "key_norm", "key_norm_bias", "seed"])
def test_the_operator_needs_the_tensors_that_it_reads(argument):
    dropout = {"cell_dropout": 0.3} if argument == "seed" else {}
    forward, backward = operator_arguments(make("native", score="normalized", **dropout), tokens())
    for call, operator in ((forward, "native"), (backward, "native_backward")):
        schema = getattr(torch.ops.ordered_memory, operator).default._schema
        call[[one.name for one in schema.arguments].index(argument)] = None
        with pytest.raises(ValueError, match=f"^{argument} must be a tensor for these arguments, got None"):
            getattr(torch.ops.ordered_memory, operator)(*call)


@pytest.mark.parametrize("shares", [0, -1])
def test_the_operator_needs_a_share(shares):
    forward, backward = operator_arguments(make("native"), tokens())
    for call, operator in ((forward, "native"), (backward, "native_backward")):
        schema = getattr(torch.ops.ordered_memory, operator).default._schema
        call[[one.name for one in schema.arguments].index("shares")] = shares
        with pytest.raises(ValueError, match=f"shares must be at least 1, got {shares}"):
            getattr(torch.ops.ordered_memory, operator)(*call)


def test_negative_views_are_read_as_they_are():
    layer = make()
    x = torch.randn(6, 5, 3, dtype=torch.complex128).conj().imag
    memory = torch.randn(5, 4, 8, dtype=torch.complex128).conj().imag
    assert x.is_neg()
    state = OrderedMemoryState(memory, memory, torch.rand(5, 5, dtype=F64))
    resolved = OrderedMemoryState(*(tensor.resolve_neg() for tensor in state))
    assert torch.equal(layer(x, state).output, layer(x.resolve_neg(), resolved).output)


def test_checkpointing_and_the_profiler_see_the_operator():
    layer = make(cell_dropout=0.3)
    x = tokens()
    found = []
    with torch.profiler.profile() as profile:
        for function in (layer, lambda x: checkpoint(layer, x, use_reentrant=False)):
            torch.manual_seed(3)
            found.append(results_and_gradients(function, layer, x))
    assert_all_close(*found)
    names = {event.key for event in profile.key_averages()}
    assert {"ordered_memory::native", "ordered_memory::native_backward"} <= names


def test_what_is_returned_is_allocated_for_it():
    out = make("native")(tokens())
    for tensor in (out.output, out.attention, *out.state):
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


# Transforms


@QUIET
@pytest.mark.parametrize("backend", ["auto", "native"])
@pytest.mark.parametrize("transform", ["vmap", "grad", "forward mode", "forward mode of the state"])
def test_transforms_take_the_definition_or_are_refused(backend, transform):
    layer, definition = make(backend), make("reference")
    definition.load_state_dict(layer.state_dict())
    x = torch.randn(2, 6, 5, 3, dtype=F64)
    start = OrderedMemoryState(*(tensor.detach() for tensor in definition(x[0]).state))

    def run(layer):
        if transform == "vmap":
            return torch.func.vmap(lambda x: layer(x).output)(x)
        if transform == "grad":
            return torch.func.grad(lambda x: layer(x).output.sin().sum())(x[0])
        with forward_ad.dual_level():
            if transform == "forward mode":
                output = layer(forward_ad.make_dual(x[0], x[1])).output
            else:
                memory = forward_ad.make_dual(start.memory, torch.ones_like(start.memory))
                output = layer(x[0], start._replace(memory=memory)).output
            return forward_ad.unpack_dual(output).tangent

    if backend == "auto":
        assert_close(run(layer), run(definition))
    else:
        with pytest.raises(BackendError, match="backend='reference'"):
            run(layer)


@QUIET
@pytest.mark.parametrize("transform", ["vmap", "grad"])
def test_a_compiled_transform_takes_the_definition(transform):
    layer, x = make(num_slots=2), torch.randn(2, 3, 2, 3, dtype=F64)

    def run(x):
        if transform == "vmap":
            return torch.func.vmap(lambda x: layer(x).output)(x)
        return torch.func.grad(lambda x: layer(x).output.sin().sum())(x[0])

    assert_close(torch.compile(run, backend="eager")(x), run(x))


def test_lengths_that_vmap_batches_are_refused():
    layer, x = make(), torch.randn(2, 5, 1, 3, dtype=F64)
    with pytest.raises(ValueError, match=r"lengths must be known numbers, .* that torch\.func\.vmap has"):
        torch.func.vmap(lambda x, n: layer(x, lengths=n[None]).output)(x, torch.tensor([5, 3]))
    gradient = torch.func.grad(lambda x, n: layer(x, lengths=n[None]).output.sum())
    with pytest.raises(ValueError, match="lengths must be known numbers"):
        torch.func.vmap(gradient)(x, torch.tensor([5, 3]))


def test_under_vmap_dropout_is_drawn_for_each_entry_or_once_for_all():
    layer, x = make(cell_dropout=0.5, attention_dropout=0.5), torch.randn(4, 2, 3, dtype=F64)

    def first_and_second(randomness):
        twice = torch.stack([x, x])
        return torch.func.vmap(lambda x: layer(x).output, randomness=randomness)(twice)

    first, second = first_and_second("different")
    assert not torch.allclose(first, second)
    first, second = first_and_second("same")
    assert_close(first, second)


def test_recomputation_is_left_out_under_transforms():
    layer, x = make(recompute_every=2), torch.randn(5, 2, 3, dtype=F64)

    def loss(x):
        return layer(x).output.sin().sum()

    x.requires_grad_()
    assert_close(torch.func.grad(loss)(x.detach()), torch.autograd.grad(loss(x), x)[0])


def test_a_second_derivative_names_the_definition():
    layer, x = make("native"), tokens()
    (slope,) = torch.autograd.grad(layer(x).output.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="use backend='reference'"):
        slope.sum().backward()


@pytest.mark.parametrize("backend", ["native", "sequence"])
@pytest.mark.parametrize("batched", ["is_grads_batched", "vmap"])
def test_a_batch_of_upstream_gradients_names_the_definition(batched, backend):
    layer, definition, x = make(backend), make("reference"), tokens()
    definition.load_state_dict(layer.state_dict())
    upstream = torch.randn(3, 6, 5, 8, dtype=F64)

    def gradients(layer, upstream, **arguments):
        return torch.autograd.grad(layer(x).output, x, upstream, **arguments)[0]

    def at_once(layer):
        if batched == "is_grads_batched":
            return gradients(layer, upstream, is_grads_batched=True)
        output = layer(x).output
        return torch.func.vmap(lambda one: torch.autograd.grad(output, x, one, retain_graph=True)[0])(
            upstream
        )

    assert_close(at_once(definition), torch.stack([gradients(layer, one) for one in upstream]))
    with pytest.raises(RuntimeError, match="does not support batched gradients: use backend='reference'"):
        at_once(layer)


# Threads


@pytest.mark.parametrize("recompute_every", [None, 2])
@pytest.mark.parametrize(("forward", "backward"), [(1, 2), (2, 1), (3, 2)])
def test_the_reverse_pass_needs_no_more_threads_than_it_finds(forward, backward, recompute_every):
    layer, x = make("native", cell_dropout=0.2, recompute_every=recompute_every), tokens()
    torch.manual_seed(3)
    expected = results_and_gradients(layer, layer, x, lengths=LENGTHS)
    torch.manual_seed(3)
    torch.set_num_threads(forward)
    out = layer(x, lengths=LENGTHS)
    results = [out.output, out.attention, *out.state]
    loss = sum(((i + 1) * tensor).sin().sum() for i, tensor in enumerate(results))
    torch.set_num_threads(backward)
    wanted = [x, *layer.parameters()]
    found = []

    def work():
        found.extend(torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert_all_close([*results, *found], expected)


def test_the_first_pass_with_another_number_of_threads_is_as_the_next():
    layer = OrderedMemory(3, 64, 4, backend="native")
    x = tokens(12, 16, 3, dtype=torch.float32)
    for threads in (2, 3):
        torch.set_num_threads(threads)
        first, *others = (results_and_gradients(layer, layer, x) for _ in range(3))
        assert all(all(map(torch.equal, first, other)) for other in others)


# What backends do not see


class LowRank(nn.Module):
    """A map with a low-rank correction beside it."""

    def __init__(self, base):
        super().__init__()
        self.base, self.down = base, nn.Linear(base.in_features, 2, dtype=F64)
        self.up = nn.Linear(2, base.out_features, dtype=F64)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def buffers(module):
    weight = module.weight.detach()
    del module.weight
    module.register_buffer("weight", weight)


def unbiased(direction):
    direction.cell.output = nn.Linear(32, 32, bias=False, dtype=F64)


CHANGES = {
    "replaced": lambda d: setattr(d.cell, "output", LowRank(d.cell.output)),
    "another size": lambda d: setattr(d.score, "output", nn.Linear(8, 3, dtype=F64)),
    "without bias": unbiased,
    "hook": lambda d: d.cell.output.register_forward_hook(lambda m, x, y: 2 * y),
    "pre-hook": lambda d: d.score.key.register_forward_pre_hook(lambda m, x: (2 * x[0],)),
    "backward hook": lambda d: d.norm.register_full_backward_hook(lambda m, x, y: (3 * x[0],)),
    "hook of the cell": lambda d: d.cell.register_forward_hook(lambda m, x, y: y),
    "hook of the score": lambda d: d.score.register_forward_hook(lambda m, x, y: 2 * y),
    "forward of a part": lambda d: setattr(d.cell.output, "forward", lambda x: 0 * x),
    "masks of the cell": lambda d: setattr(d.cell, "draw_masks", lambda *sizes: None),
    "masks of the score": lambda d: setattr(d.score, "draw_masks", lambda *sizes: None),
    "compose of the cell": lambda d: setattr(d.cell, "compose", lambda *inputs: inputs[1]),
    "weight norm": lambda d: parametrizations.weight_norm(d.cell.from_memory),
    "pruned": lambda d: prune.l1_unstructured(d.score.output, "weight", 0.5),
    "buffer": lambda d: buffers(d.cell.from_candidate),
    "another dtype": lambda d: d.score.key.float(),
    "norm": lambda d: setattr(d.score, "key_norm", nn.Identity()),
    "without affine": lambda d: setattr(d, "norm", nn.LayerNorm(8, elementwise_affine=False, dtype=F64)),
    "wrapped weight": lambda d: wrap_weight(d.cell.output),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_backend_does_not_see_is_left_to_the_definition(name):
    layer = make()
    CHANGES[name](layer.directions[0])
    inputs, modules = torch.zeros(2, 1, 8, dtype=F64), layer.directions[0].recurrent_modules()
    assert select_backend("auto", inputs, modules) is run_recurrence
    for backend in ("native", "sequence"):
        with pytest.raises(BackendError, match=f"backend '{backend}' cannot run here: (it|its|the) "):
            select_backend(backend, inputs, modules)
    assert module_checks.why_not(inputs, modules) is not None


@pytest.mark.parametrize("part", ["cell.from_memory", "score.key", "score.query", "projection"])
def test_a_weight_may_wrap_another_tensor(part):
    layer = make()
    x = tokens().detach()
    with torch.no_grad():
        expected = layer(x)
        wrap_weight(layer.directions[0].get_submodule(part))
        actual = layer(x)
    assert_all_close([actual.output, actual.attention], [expected.output, expected.attention])


def test_with_hooks_of_all_modules_the_definition_runs():
    layer, definition = make(), make("reference")
    definition.load_state_dict(layer.state_dict())
    x = tokens()
    plain = layer(x).output
    hook = nn.modules.module.register_module_forward_hook(
        lambda m, x, y: 2 * y if isinstance(m, nn.LayerNorm) else None
    )
    try:
        actual, expected = layer(x).output, definition(x).output
    finally:
        hook.remove()
    assert torch.equal(actual, expected)
    assert not torch.allclose(actual, plain)


@pytest.mark.parametrize("backend", ["native", "sequence"])
def test_hooks_of_the_query_map_are_called(backend):
    layer, definition = make(backend), make("reference")
    definition.load_state_dict(layer.state_dict())
    for module in (layer, definition):
        module.directions[0].score.query.register_forward_hook(lambda m, x, y: 2 * y)
    x = tokens()
    expected = results_and_gradients(definition, definition, x)
    assert_all_close(results_and_gradients(layer, layer, x), expected)


@pytest.mark.parametrize("backend", ["native", "sequence"])
def test_every_norm_has_its_own_epsilon(backend):
    layer, definition = make(backend), make("reference")
    definition.load_state_dict(layer.state_dict())
    for module in (layer, definition):
        direction = module.directions[0]
        direction.score.key_norm.eps, direction.score.query_norm.eps, direction.norm.eps = 0.3, 0.2, 0.1
    x = tokens()
    expected = results_and_gradients(definition, definition, x)
    assert_all_close(results_and_gradients(layer, layer, x), expected)


@pytest.mark.parametrize("keep", [True, False])
def test_a_million_slots_do_not_overflow_the_stack(keep):
    layer = OrderedMemory(2, 2, 1_100_000, backend="native")
    with torch.set_grad_enabled(keep):
        output = layer(torch.randn(2, 1, 2)).output
    if keep:
        output.sum().backward()
    assert output.isfinite().all()


def test_a_package_is_reloaded_without_a_warning():
    code = "import importlib, onlstm, onlstm.language_model, ordered_memory\n"
    code += "for module in (ordered_memory, onlstm, onlstm.language_model): importlib.reload(module)"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
