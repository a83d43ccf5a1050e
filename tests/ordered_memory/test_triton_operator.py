"""The Triton kernels as an operator: what it checks, launches and compilers; when it cannot run."""

import importlib.util
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from onlstm.backends import triton_kernels as onlstm_kernels
from ordered_memory import OrderedMemory
from ordered_memory.backends import contract, operators, triton, triton_jit
from ordered_memory.backends.triton import call, kernels_backward, kernels_forward, kernels_shared, plan
from tests.kernels import ALL_KERNELS, DEVICE, RUNS
from tests.small_memory import BOTH_SCORES
from tests.tolerances import assert_close
from tests.triton_recurrences import Case

pytestmark = ALL_KERNELS


class Launches(TorchDispatchMode):
    """Counts PyTorch's operations that compute something; on a GPU each launches a kernel or more."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.count += not function.is_view
        return function(*arguments, **(options or {}))


@RUNS
@BOTH_SCORES
def test_the_number_of_launches_depends_on_neither_length_nor_slots(score, monkeypatch):
    kernels_run = []
    for module, name in ((kernels_forward, "forward_kernel"), (kernels_backward, "backward_kernel")):
        kernel = getattr(module, name)

        def get(grid, kernel=kernel, name=name):
            kernels_run.append(name)
            return kernel[grid]

        counted = type("Counted", (), {"__getitem__": lambda self, grid, get=get: get(grid)})
        monkeypatch.setattr(module, name, counted())
    counts = []
    for steps, slots in ((1, 2), (2, 3)):
        case = Case(score, slots=slots, batch=1, steps=steps, dropout=0.2)
        with Launches() as launches:
            case.run(triton.run_recurrence, masks=case.direction.dropout_sampler(case.inputs[0], slots))
        counts.append(launches.count)
    assert kernels_run == ["forward_kernel", "backward_kernel"] * 2
    assert counts[0] == counts[1]


@RUNS
def test_the_operator_takes_masks_with_any_strides():
    case = Case(slots=3, batch=3, steps=2, dropout=0.3)
    arguments = contract.prepare(case.inputs, case.state, case.modules, None, case.draw_masks())
    masks = {
        name: mask.contiguous(memory_format=torch.channels_last)
        for name, mask in arguments.dropout._asdict().items()
        if name.endswith("mask")
    }
    other = arguments._replace(dropout=arguments.dropout._replace(**masks))
    with torch.no_grad():
        expected, actual = (
            triton.OPERATOR(*operators.flatten(each), False)[0] for each in (arguments, other)
        )
    assert_close(actual, expected)


def of_operator(arguments):
    """Results of the operator, and the gradient of its first result with respect to the key map."""
    key = arguments.weights.key.detach().requires_grad_()
    arguments = arguments._replace(weights=arguments.weights._replace(key=key))
    *results, _ = triton.OPERATOR(*operators.flatten(arguments), True)
    return *results, *torch.autograd.grad(results[0].square().sum(), key)


@RUNS
def test_the_operator_draws_only_the_masks_that_are_not_given():
    case = Case(size=12, slots=2, batch=2, steps=2, dropout=0.4)
    arguments = contract.prepare(case.inputs, case.state, case.modules, None, case.draw_masks())
    draws = {"seed": torch.tensor(5), "cell_drop_below": 0, "score_drop_below": 0}  # half of all entries
    other = arguments._replace(dropout=arguments.dropout._replace(**draws))
    for actual, expected in zip(of_operator(other), of_operator(arguments), strict=True):
        assert torch.equal(actual, expected)
    feature_mask = arguments.dropout.feature_mask
    key, feature, *of_cell = call._masks(
        contract.Dropout(feature_mask=feature_mask, **draws), (*case.shape, 12), 16, case.inputs.device
    )
    assert torch.equal(feature[..., :12], feature_mask)
    assert all(0.3 < mask.float().mean() < 0.7 for mask in (key, *of_cell))


@RUNS
def test_a_threshold_that_is_below_all_noise_drops_nothing():
    case = Case(slots=2, batch=1, steps=2)
    arguments = contract.prepare(case.inputs, case.state, case.modules, None, None)
    dropout = contract.Dropout(cell_drop_below=-(1 << 15), score_drop_below=-(1 << 15))
    actual, expected = (of_operator(arguments._replace(dropout=d)) for d in (dropout, arguments.dropout))
    for one, other in zip(actual, expected, strict=True):
        assert torch.equal(one, other)


@RUNS
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_compiled_layer_is_one_graph(dropout):
    torch.compiler.reset()
    layer = OrderedMemory(4, 16, 2, backend="triton", cell_dropout=dropout, attention_dropout=dropout)
    layer.to(DEVICE)
    x = torch.randn(3, 2, 4, device=DEVICE, requires_grad=True)
    found = []
    for function in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        torch.manual_seed(3)
        output = function(x, lengths=torch.tensor([3, 2])).output
        found.append([output, *torch.autograd.grad(output.square().sum(), [x, *layer.parameters()])])
    for expected, actual in zip(*found, strict=True):
        assert_close(actual, expected)


@RUNS
@BOTH_SCORES
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # opcheck of 2.15
@pytest.mark.parametrize(("size", "dropout"), [(16, 0.0), (12, 0.4)])
def test_the_operators_do_what_they_declare(score, size, dropout, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "new_empty", torch.Tensor.new_zeros)  # two calls leave the same there
    case = Case(score, size, slots=2, batch=2, steps=1, dropout=dropout)
    masks = case.direction.dropout_sampler(case.inputs[0], 2)
    arguments = contract.prepare(case.inputs, case.state, case.modules, None, masks)
    given = [one.detach() if isinstance(one, torch.Tensor) else one for one in operators.flatten(arguments)]
    differentiable = [
        one.clone().requires_grad_() if isinstance(one, torch.Tensor) and one.is_floating_point() else one
        for one in given
    ]
    forward, backward = torch.ops.ordered_memory.triton, torch.ops.ordered_memory.triton_backward
    torch.library.opcheck(forward.default, (*differentiable, True))
    with torch.no_grad():
        *results, saved = forward(*given, True)
    inputs = dict(zip(operators._fields(contract.Arguments), given, strict=True))
    wanted = [inputs[name] is not None for name in contract.Implementation.differentiable]
    upstream = [torch.randn_like(result) for result in results]
    torch.library.opcheck(backward.default, (*upstream, results[-1], saved, *given, wanted))


@RUNS
def test_the_operator_refuses_what_the_kernels_cannot_read():
    case = Case(slots=2, batch=2, steps=2)
    arguments = contract.prepare(case.inputs, case.state, case.modules, None, None)
    operator = torch.ops.ordered_memory.triton
    double = arguments._replace(inputs=arguments.inputs.double())
    plain = arguments._replace(weights=arguments.weights._replace(w_out=None, b_out=None))
    for wrong in (double, plain):
        with pytest.raises(ValueError, match="takes float32 inputs and the weights of the gated cell"):
            operator(*operators.flatten(wrong), False)
    with torch.no_grad():
        expected = operator(*operators.flatten(arguments), False)[0]
        longer = arguments._replace(lengths=torch.tensor([7, 2]))  # than the sequences are
        assert torch.equal(operator(*operators.flatten(longer), False)[0], expected)


def test_a_sequence_has_no_more_tokens_than_the_programs_can_count():
    case = Case(slots=21, batch=1, device="cpu")
    arguments = contract.prepare(case.inputs, case.state, case.modules, None, None)
    tokens = torch.zeros(1, 1, 16).expand(plan.longest_sequence(21) + 1, 1, 16)
    longer = arguments._replace(inputs=tokens, queries=tokens)
    with pytest.raises(ValueError, match="at most 2097151 tokens of a sequence in a call, got 2097152: read"):
        triton.TritonImplementation().check(longer)


def test_it_says_why_it_cannot_run(monkeypatch):
    case = Case(device="cpu")
    inputs, modules = case.inputs, case.modules
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert triton.why_not(inputs, modules) is None
    reasons = {
        "torch.float64": (inputs.double(), modules),
        "slot_size": (torch.zeros(1, 1, 513), modules),
        "TreeRNNCell": (inputs, OrderedMemory(4, 16, 3, cell="tree-rnn").directions[0].recurrent_modules()),
        "norm must be a torch.nn.LayerNorm": (inputs, modules._replace(norm=torch.nn.Identity())),
        "score Linear": (inputs, modules._replace(score=torch.nn.Linear(16, 16))),
    }
    for word, arguments in reasons.items():
        assert word in triton.why_not(*arguments)
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert "GPU" in triton.why_not(inputs, modules)


def test_without_triton_the_modules_can_be_imported_and_say_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    case = Case(device="cpu")
    assert triton.why_not(case.inputs, case.modules) == "Triton is not installed"
    with pytest.raises(RuntimeError, match="backend 'triton' cannot run here: Triton is not installed"):
        triton.run_recurrence(case.inputs, case.state, case.modules)
    for module in (triton_jit, kernels_shared, kernels_forward, kernels_backward, onlstm_kernels):
        spec = importlib.util.spec_from_file_location(module.__name__, module.__file__)
        again = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, module.__name__, again)
        spec.loader.exec_module(again)
        assert again.tl is None
