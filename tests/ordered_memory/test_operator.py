"""The native recurrence as an operator of PyTorch: what it checks, the dispatcher, threads."""

import subprocess
import sys
import threading

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ordered_memory import OrderedMemory, OrderedMemoryState
from ordered_memory.backends import BACKENDS
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

pytestmark = [NEEDS_NATIVE, pytest.mark.usefixtures("threads_as_before")]


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
def test_the_operators_do_what_they_declare(score, dropout):
    layer = make("native", score=score, cell_dropout=dropout, attention_dropout=dropout)
    forward, backward = operator_arguments(layer, tokens(), lengths=LENGTHS if dropout else None)
    assert any(isinstance(value, torch.Tensor) and value.requires_grad for value in forward)
    torch.library.opcheck(torch.ops.ordered_memory.native.default, tuple(forward))
    for value in tree_leaves(backward):
        if isinstance(value, torch.Tensor):
            value.requires_grad_(False)
    torch.library.opcheck(torch.ops.ordered_memory.native_backward.default, tuple(backward))


def test_fake_tensors_have_shapes_and_gradients():
    with FakeTensorMode():
        layer, x = make(), tokens()
        output = layer(x).output
        output.sum().backward()
        assert output.shape == (6, 5, 8)
        assert x.grad.shape == x.shape


def test_make_fx_sees_one_operator():
    layer = make()
    graph = make_fx(lambda x: layer(x).output)(tokens().detach())
    assert [str(node.target) for node in graph.graph.nodes].count("ordered_memory.native.default") == 1
    x = torch.randn(6, 5, 3, dtype=F64)
    assert_close(graph(x), layer(x).output)


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


def test_the_profiler_sees_the_operator_and_its_reverse():
    layer = make()
    with torch.profiler.profile() as profile:
        layer(tokens()).output.sum().backward()
    names = {event.key for event in profile.key_averages()}
    assert {"ordered_memory::native", "ordered_memory::native_backward"} <= names


def test_what_is_returned_is_allocated_for_it():
    out = make("native")(tokens())
    for tensor in (out.output, out.attention, *out.state):
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


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
