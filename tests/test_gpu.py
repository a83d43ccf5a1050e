"""On a GPU: the layers and models against the CPU, training runs, and the modes of PyTorch."""

import copy
import json

import pytest
import torch

from onlstm import ONLSTM
from ordered_memory import OrderedMemory
from ordered_memory.backends import explain
from tests import check_devices
from tests.commands import MAIN, TINY
from tests.outcome import outcome
from tests.tolerances import assert_close

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("group", check_devices.GROUPS)
def test_models_run_and_layers_give_the_same_as_on_a_cpu(group):
    failed = []
    for name, check in check_devices.GROUPS[group](check_devices.GPU).items():
        try:
            check()
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error}"[:600])
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("task", MAIN)
def test_a_resumed_run_equals_an_uninterrupted_one(task, tmp_path):
    words = [*TINY[task].split(), "--accelerator", "cuda", "--run-dir"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert MAIN[task](["train", *words, str(whole), "--epochs", "2"]) == 0
    assert MAIN[task](["train", *words, str(parts)]) == 0
    assert MAIN[task](["train", *words, str(parts), "--resume", "--epochs", "2"]) == 0
    assert outcome(parts) == outcome(whole)


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "64-true"])
@pytest.mark.parametrize("task", ["listops", "language_model"])
def test_the_precisions_of_training(task, precision, tmp_path):
    words = [*TINY[task].split(), "--accelerator", "cuda", "--precision", precision]
    assert MAIN[task](["train", *words, "--run-dir", str(tmp_path)]) == 0
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows


LAYERS = {
    "OrderedMemory": lambda **options: OrderedMemory(8, 16, 6, **options),
    "ONLSTM": lambda **options: ONLSTM(8, 16, num_layers=2, chunk_size=4, **options),
}


def step(layer, call, x):
    """The output, and all gradients of its weighted sum."""
    output = call(x)[0]
    wanted = [x, *layer.parameters()]
    upstream = torch.linspace(-1, 1, output.numel(), device=x.device).view_as(output).to(output.dtype)
    return output, *torch.autograd.grad(output, wanted, upstream, allow_unused=True)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of PyTorch, where a graph breaks
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")  # Inductor recommends them
@pytest.mark.parametrize("backend", ["reference", "sequence", "auto"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_compiled_layer(name, backend):
    torch.compiler.reset()
    layer = LAYERS[name](backend=backend).cuda()
    x = torch.randn(5, 3, 8, device="cuda", requires_grad=True)
    # Inductor also compiles for the CPU where ON-LSTM's lengths are, and unrolls the definition: minutes.
    compiler = "inductor" if (name, backend) == ("OrderedMemory", "auto") else "aot_eager"
    is_one_graph = (name, backend) != ("OrderedMemory", "sequence")
    compiled = torch.compile(layer, fullgraph=is_one_graph, backend=compiler)
    for expected, actual in zip(step(layer, layer, x), step(layer, compiled, x), strict=True):
        if expected is not None:
            assert_close(actual, expected)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of the compiler, about its own parts
def test_a_compiled_layer_has_the_dropout_of_eager_mode():
    torch.compiler.reset()
    layer = OrderedMemory(8, 16, 6, cell_dropout=0.2, attention_dropout=0.3).cuda()
    x = torch.randn(5, 3, 8, device="cuda", requires_grad=True)
    found = []
    for function in (
        layer,
        torch.compile(layer, options={"fallback_random": True}),
    ):  # the same random numbers
        torch.manual_seed(3)
        found.append(step(layer, function, x))
    for expected, actual in zip(*found, strict=True):
        if expected is not None:
            assert_close(actual, expected)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of the compiler, about its own parts
def test_the_compiler_records_no_call_in_a_cuda_graph():
    """The next call may have other lengths, and draws another dropout."""
    torch.compiler.reset()
    layer = OrderedMemory(8, 16, 6, cell_dropout=0.2).cuda()
    options = torch._inductor.list_mode_options("reduce-overhead") | {
        "fallback_random": True
    }  # the same seeds
    compiled = torch.compile(layer, options=options)
    x = torch.randn(5, 3, 8, device="cuda")
    for lengths in ([5, 2, 1], [3, 5, 4], [1, 1, 5], [2, 4, 5]):
        found = []
        for function in (layer, compiled):
            torch.manual_seed(7)
            found.append(function(x, lengths=torch.tensor(lengths)).output.clone())
        assert_close(*found)


def test_auto_selects_the_triton_kernels():
    layer = OrderedMemory(8, 16, 6).cuda()
    assert "triton: runs, selected by backend='auto'" in explain(layer, torch.randn(5, 3, 8).cuda())
    layer = ONLSTM(8, 16, chunk_size=4).cuda()
    assert "triton: runs, selected by backend='auto'" in explain(layer, torch.randn(5, 3, 8).cuda())


# PyTorch's own warm-up is on another stream, and its graph is still there when it captures.
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
@pytest.mark.parametrize("backend", ["sequence", "triton"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_cuda_graph_of_a_training_step(name, backend):
    """`torch.cuda.make_graphed_callables` captures both passes, without lengths and dropout."""
    layer = LAYERS[name](backend=backend).cuda()
    x = torch.randn(5, 3, 8, device="cuda", requires_grad=True)

    class Output(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return (self.layer(x)[0],)

    plain = copy.deepcopy(layer)  # gradients of the layer itself may not be computed before its capture
    expected = [step(plain, plain, one) for one in (x, 2 * x)]
    graphed = torch.cuda.make_graphed_callables(Output(), (x.detach().clone().requires_grad_(),))
    for one, wanted in zip((x, 2 * x), expected, strict=True):
        for left, right in zip(step(layer, graphed, one), wanted, strict=True):
            if right is not None:
                assert_close(left, right)


@pytest.mark.parametrize("backend", ["reference", "sequence", "triton"])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(name, backend, dtype):
    layer = LAYERS[name](backend=backend).cuda()
    x = torch.randn(5, 3, 8, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype):
        found = step(layer, layer, x)
    layer.backend = "reference"
    for actual, expected in zip(found, step(layer, layer, x), strict=True):
        if expected is not None:
            assert actual.shape == expected.shape
            difference = (actual.float() - expected.float()).norm()
            assert difference < 0.1 * expected.norm() + 1e-3


@pytest.mark.parametrize("name", LAYERS)
def test_long_and_wide_batches(name):
    """Sizes beyond one program: as on the CPU, in float64."""
    layer = OrderedMemory(20, 48, 9) if name == "OrderedMemory" else ONLSTM(20, 48, chunk_size=3)
    lengths = torch.randint(1, 41, (200,)).tolist()
    lengths[0] = 40
    x = torch.randn(40, 200, 20, requires_grad=True)
    layer.double()
    layer.backend = "reference"
    expected = step(layer, lambda x: layer(x.double(), lengths=lengths), x)
    layer.float().cuda()
    x = x.detach().cuda().requires_grad_()
    for backend in ("sequence", "triton"):
        layer.backend = backend
        found = step(layer, lambda x: layer(x, lengths=lengths), x)
        for actual, wanted in zip(found, expected, strict=True):
            if wanted is not None:
                difference = (actual.cpu() - wanted.float()).norm()
                assert difference <= 1e-3 * wanted.norm() + 1e-6
