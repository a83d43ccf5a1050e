"""The backends as operators of PyTorch: tracing, transforms, devices, threads, what they return."""

import copy
import io
import math
import os
import signal
import threading

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from onlstm import ONLSTM, ONLSTMCell
from onlstm.backends import contract, native, sequence
from onlstm.functional import Weights, run_recurrence
from onlstm.language_model import LanguageModel
from ordered_memory.backends.registry import BackendError
from tests.equality import NEEDS_NATIVE
from tests.tolerances import assert_close
from tests.versions import SORTED_IN_GRAPHS
from tests.wrapped_weights import wrap_weight

OPERATOR_BACKENDS = {"native": native, "sequence": sequence}
pytestmark = NEEDS_NATIVE


def arguments(bias=True, requires_grad=True, keep=True, dtype=torch.float64, bfloat16=False):
    shapes = ((3, 3), (20, 3), (20, 4), (20,), (3, 4), (3, 4))
    tokens, *weights, hidden, cell = (
        torch.randn(shape, dtype=dtype, requires_grad=requires_grad) for shape in shapes
    )
    weights[2] = weights[2] if bias else None
    return tokens, torch.tensor([2, 1]), *weights, hidden, cell, 2, bfloat16, keep


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # opcheck of 2.15
@pytest.mark.parametrize("name", OPERATOR_BACKENDS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"requires_grad": False, "keep": False},
        {"dtype": torch.float32, "bfloat16": True},
    ],
    ids=str,
)
def test_opcheck(name, options):
    torch.library.opcheck(OPERATOR_BACKENDS[name].OPERATOR, arguments(**options))


@pytest.mark.parametrize("autocast", [False, True])
def test_an_operator_is_told_of_bfloat16_autocast(autocast):
    told = []

    def operator(*given):
        told.append(given[-2])
        return native.OPERATOR(*given)

    tokens, sizes, *weights, hidden, cell, chunk_size, _, _ = arguments(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        contract.run(operator, tokens, sizes, Weights(*weights), hidden, cell, chunk_size)
    assert told == [autocast]


def flat(results):
    """The tensors of a layer's results."""
    for result in results:
        if isinstance(result, Tensor := torch.Tensor):
            yield result
        elif isinstance(result, PackedSequence):
            yield result.data
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
        return output.data, hidden, cell


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


def test_fake_meta_and_default_devices():
    options = {"num_layers": 2, "bidirectional": True, "chunk_size": 2}
    with FakeTensorMode():
        layer = ONLSTM(3, 6, **options)
        layer(torch.randn(4, 2, 3))[0].sum().backward()
        assert layer.weight_hh_l0.grad.shape == (30, 6)
        order = torch.arange(2)
        packed = PackedSequence(torch.randn(3, 3), torch.tensor([2, 1]), order, order)
        assert layer(packed)[0].data.shape == (3, 12)
    layer = ONLSTM(3, 6, **options, device="meta")
    output, _ = layer(torch.randn(4, 2, 3, device="meta"))
    output.sum().backward()
    assert output.is_meta
    assert layer.weight_hh_l0.grad.is_meta
    layer, x, packed = ONLSTM(3, 6, **options), torch.randn(4, 2, 3), ragged(False)
    expected = layer(x)[0], layer(packed)[0].data
    with torch.device("meta"):  # set_default_device(None) of PyTorch 2.8 leaves get_default_device() broken
        found = layer(x)[0], layer(packed)[0].data
        (found[0].sum() + found[1].sum()).backward()
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("backend", ["auto", "native", "sequence", "reference"])
@pytest.mark.parametrize(
    "bad",
    [
        torch.zeros(1, 3, 6, device="meta"),
        torch.zeros(1, 3, 6, dtype=torch.complex64),
        torch.zeros(1, 3, 6, dtype=torch.int64),
        torch.zeros(1, 3, 6, dtype=torch.float64),
        torch.zeros(1, 3, 6, dtype=torch.bfloat16),
    ],
    ids=lambda tensor: f"{tensor.dtype}-{tensor.device}",
)
def test_a_state_of_another_device_or_dtype_is_refused(backend, bad):
    layer, x, good = ONLSTM(3, 6, backend=backend), torch.randn(4, 3, 3), torch.zeros(1, 3, 6)
    for state in ((bad, good), (good, bad)):
        with pytest.raises(RuntimeError, match=r"hx\[\d\] must"):
            layer(x, state)


@pytest.mark.parametrize("name", OPERATOR_BACKENDS)
def test_a_backend_refuses_what_it_cannot_read(name):
    run = OPERATOR_BACKENDS[name].run_recurrence
    tokens, weights = torch.zeros(3, 5), Weights(torch.zeros(20, 5), torch.zeros(20, 4), None)
    good, sizes = torch.zeros(2, 4), [2, 1]
    run(tokens, sizes, weights, good, good, 2)
    for bad, message in (
        (good.double(), "hidden must have dtype torch.float32, got torch.float64"),
        (good.long(), "hidden must have dtype"),
        (good.to("meta"), "hidden must be on cpu"),
    ):
        with pytest.raises(ValueError, match=message):
            run(tokens, sizes, weights, bad, good, 2)
    for sizes in ([1, 2], [2, 2], [2, 1, 0], [3], [], [4, -1]):
        with pytest.raises(ValueError, match=r"batch_sizes|tokens"):
            run(tokens, sizes, weights, good, good, 2)


@pytest.mark.parametrize("name", OPERATOR_BACKENDS)
@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("tokens", torch.zeros(3)),
        ("tokens", torch.zeros(3, 2)),
        ("tokens", torch.zeros(2, 3)),
        ("batch_sizes", torch.tensor([[2, 1]])),
        ("batch_sizes", torch.tensor(3)),
        ("batch_sizes", torch.tensor([3, 1])),
        ("weight_ih", torch.zeros(20, 2)),
        ("weight_ih", torch.zeros(18, 3)),
        ("weight_hh", torch.zeros(20)),
        ("weight_hh", torch.zeros(20, 3)),
        ("bias", torch.zeros(19)),
        ("hidden", torch.zeros(4)),
        ("hidden", torch.zeros(3, 3)),
        ("hidden", torch.zeros(1, 4)),
        ("cell", torch.zeros(1, 4)),
        ("cell", torch.zeros(3, 4, 1)),
        ("chunk_size", 4),
        ("chunk_size", 0),
        ("chunk_size", -1),
    ],
    ids=lambda value: value if isinstance(value, str) else str(list(getattr(value, "shape", [value]))),
)
def test_a_direct_call_of_an_operator_is_checked_before_memory_is_read(name, argument, wrong):
    forward, backward = (getattr(torch.ops.onlstm, f"{name}{end}") for end in ("", "_backward"))
    right = arguments(requires_grad=False)
    *results, saved = forward(*right)
    place = [field.name for field in forward.default._schema.arguments].index(argument)
    if isinstance(wrong, torch.Tensor):
        wrong = wrong.to(right[place].dtype)
    bad = [*right[:place], wrong, *right[place + 1 :]]
    with pytest.raises(ValueError, match=" must "):
        forward(*bad)
    with pytest.raises(ValueError, match=" must "):
        backward(*results, results[0], saved, *bad[:-1], [True] * 6)


def test_negative_and_conjugate_views_are_read_as_what_they_are():
    layer, x = ONLSTM(3, 6, chunk_size=2, backend="native"), torch.randn(4, 2, 3)
    assert torch.equal(layer(torch._neg_view(x))[0], layer(-x)[0])
    imaginary = torch.randn(4, 2, 3, dtype=torch.complex64).conj().imag
    assert imaginary.is_neg()
    assert torch.equal(layer(imaginary)[0], layer(imaginary.clone())[0])


@pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning"
)  # of PyTorch's own derivatives
def test_transforms_take_the_definition_or_are_refused():
    layer, x, tangent = ONLSTM(3, 4, chunk_size=2), torch.randn(3, 2, 3), torch.randn(3, 2, 3)
    plain = ONLSTM(3, 4, chunk_size=2, backend="reference")
    by_name = ONLSTM(3, 4, chunk_size=2, backend="native")
    plain.load_state_dict(layer.state_dict())

    def tangent_of(layer, through_state):
        with forward_ad.dual_level():
            state = forward_ad.make_dual(torch.zeros(1, 2, 4), torch.ones(1, 2, 4))
            dual = x if through_state else forward_ad.make_dual(x, tangent)
            output, _ = layer(dual, (state, state) if through_state else None)
            return forward_ad.unpack_dual(output).tangent

    transforms = (
        lambda layer: torch.func.jvp(lambda x: layer(x)[0], (x,), (tangent,))[1],
        lambda layer: torch.func.vmap(lambda x: layer(x)[0])(torch.stack([x, tangent])),
        lambda layer: torch.func.grad(lambda x: layer(x)[0].sum())(x),
        lambda layer: tangent_of(layer, False),
        lambda layer: tangent_of(layer, True),
    )
    for transform in transforms:
        assert_close(transform(layer), transform(plain))
        with pytest.raises(RuntimeError, match=r"'native' cannot run here: .* use backend='reference'"):
            transform(by_name)


@pytest.mark.filterwarnings(r"ignore:The \.grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("backend", ["auto", "sequence"])
@pytest.mark.parametrize("transform", ["jvp", "vmap", "grad"])
def test_a_compiled_transform_takes_the_definition_or_is_refused(backend, transform):
    layer, x = ONLSTM(3, 4, chunk_size=2, backend=backend), torch.randn(3, 2, 3)

    def run(x):
        if transform == "jvp":
            return torch.func.jvp(lambda x: layer(x)[0], (x,), (torch.ones_like(x),))[1]
        if transform == "vmap":
            return torch.func.vmap(lambda x: layer(x)[0], in_dims=1)(x)
        return torch.func.grad(lambda x: layer(x)[0].sum())(x)

    torch.compiler.reset()
    compiled = torch.compile(run, backend="eager")
    if backend == "auto":
        assert_close(compiled(x), run(x))
    else:
        with pytest.raises(Exception, match=r"'sequence' cannot run here: .* use backend='reference'"):
            compiled(x)


@pytest.mark.parametrize("name", OPERATOR_BACKENDS)
def test_a_jacobian_in_one_pass_names_the_definition(name):
    layer = ONLSTM(3, 4, chunk_size=2, backend=name, dtype=torch.float64)
    plain = ONLSTM(3, 4, chunk_size=2, backend="reference", dtype=torch.float64)
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(3, 2, 3, dtype=torch.float64)

    def jacobian(layer, vectorize):
        return torch.autograd.functional.jacobian(lambda x: layer(x)[0], x, vectorize=vectorize)

    assert_close(jacobian(plain, True), jacobian(layer, False))
    with pytest.raises(RuntimeError, match="does not support batched gradients: use backend='reference'"):
        jacobian(layer, True)


@pytest.mark.parametrize("name", OPERATOR_BACKENDS)
def test_a_call_that_saved_nothing_says_that_it_has_no_gradients(name):
    output, *_ = getattr(torch.ops.onlstm, name)(*arguments(keep=False))
    with pytest.raises(RuntimeError, match=f"'{name}' .* captured without gradients"):
        output.sum().backward()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", OPERATOR_BACKENDS)
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


@pytest.fixture
def small_work_is_shared(monkeypatch):
    """Threads are used however small the work is."""
    monkeypatch.setattr(native, "MIN_WORK_PER_THREAD", 1)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("forward", "backward"), [(2, 1), (1, 2), (3, 2), (2, 5)])
def test_the_reverse_pass_may_have_another_number_of_threads(small_work_is_shared, forward, backward):
    tokens, _, *weights, hidden, cell, chunk, _, _ = inputs = arguments()
    leaves = [tensor for tensor in inputs if isinstance(tensor, torch.Tensor) and tensor.requires_grad]
    call = (tokens, [2, 1], Weights(*weights), hidden, cell, chunk)
    wanted = torch.autograd.grad(run_recurrence(*call).output.sin().sum(), leaves)
    torch.set_num_threads(forward)
    output = native.run_recurrence(*call).output
    torch.set_num_threads(backward)
    found = []
    thread = threading.Thread(  # another one, too
        target=lambda: found.extend(torch.autograd.grad(output.sin().sum(), leaves))
    )
    thread.start()
    thread.join()
    for one, other in zip(found, wanted, strict=True):
        assert_close(one, other)


def test_the_first_reverse_pass_is_as_the_second(small_work_is_shared):
    layer, x = ONLSTM(3, 6, chunk_size=2, backend="native"), torch.randn(9, 4, 3)
    torch.set_num_threads(3)
    outcomes = [torch.autograd.grad(layer(x)[0].sum(), list(layer.parameters())) for _ in range(3)]
    for other in outcomes[1:]:
        for one, two in zip(outcomes[0], other, strict=True):
            assert torch.equal(one, two)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_while_another_thread_is_inside(small_work_is_shared):
    layer, x, stop = ONLSTM(3, 6, chunk_size=2, backend="native"), torch.randn(9, 2, 3), threading.Event()
    torch.set_num_threads(3)
    expected = layer(x)[0].detach()
    # PyTorch locks a parameter while it is read. In the child nobody would unlock those of the other thread.
    own_layer = copy.deepcopy(layer)

    def work():
        while not stop.is_set():
            layer(x)

    caller = threading.Thread(target=work)
    caller.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:  # nothing but the layer: much else in a process does not survive a fork
                signal.alarm(30)
                difference = math.inf
                try:
                    with torch.no_grad():
                        difference = float((own_layer(x)[0] - expected).abs().max())
                finally:  # an error must not go on into a copy of pytest
                    os._exit(0 if difference < 1e-6 else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        caller.join()


def test_what_is_returned_has_memory_of_its_own():
    layer, file = ONLSTM(3, 6, chunk_size=2), io.BytesIO()
    output, state, distances = layer(torch.randn(9, 2, 3), distances=True)
    for tensor in (output, *state, *distances):
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.itemsize
    torch.save(output.detach(), file)
    assert file.tell() < 3000


def test_nothing_is_kept_where_there_is_no_reverse_pass():
    *tensors, _ = arguments(requires_grad=False)
    assert native.OPERATOR(*tensors, False)[5] == []


class Halved(nn.Module):
    def forward(self, weight):
        return weight / 2


def halved(layer):
    parametrize.register_parametrization(layer, "weight_hh_l0", Halved())
    return layer


def weight_normed(layer):
    parametrizations.weight_norm(layer, "weight_hh_l0")
    with torch.no_grad():
        layer.parametrizations.weight_hh_l0.original0.mul_(2)
    return layer


def hooked(layer):
    layer.register_forward_pre_hook(lambda module, inputs: (2 * inputs[0],))
    return layer


def doubled_output(layer):
    layer.register_forward_hook(lambda module, inputs, result: (2 * result[0], result[1]))
    return layer


@pytest.mark.parametrize("change", [halved, weight_normed, hooked, doubled_output], ids=lambda c: c.__name__)
def test_hooks_and_parametrizations_act(change):
    layer, plain, unchanged = (
        ONLSTM(3, 6, chunk_size=2, backend=name) for name in ("native", "reference", "native")
    )
    for other in (plain, unchanged):
        other.load_state_dict(layer.state_dict())
    x = torch.randn(5, 2, 3)
    outcomes = []
    for one in (change(layer), change(plain)):
        output = one(x)[0]
        outcomes.append([output, *torch.autograd.grad(output.sin().sum(), list(one.parameters()))])
    for one, other in zip(*outcomes, strict=True):
        assert_close(one, other)
    assert not torch.equal(outcomes[0][0], unchanged(x)[0])


@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0", "bias_hh_l0"])
def test_a_weight_may_wrap_another_tensor(name):
    layer, x = ONLSTM(3, 6, chunk_size=2), torch.randn(5, 2, 3)
    with torch.no_grad():
        expected = layer(x)[0]
        wrap_weight(layer, name)
        assert_close(layer(x)[0], expected)
        layer.backend = "native"
        if name.startswith("weight"):  # the sum of both biases is a plain tensor
            with pytest.raises(BackendError, match="it needs weights that are plain tensors, got Halved"):
                layer(x)
