"""Which backend runs and why, for both models, and what is said where the fastest cannot."""

import contextlib
import inspect
import logging
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from onlstm import ONLSTM
from ordered_memory import OrderedMemory
from ordered_memory.backends import BACKENDS, Backend, explain, registry, select_backend, triton_support
from ordered_memory.backends.runtime import build
from ordered_memory.memory import run_recurrence
from tests.recurrences import EVERY_BACKEND, Case
from tests.wrapped_weights import wrap_weight

BOTH = pytest.mark.parametrize("make", [OrderedMemory, ONLSTM])


def layer(make, **options):
    sizes = (3, 4, 2) if make is OrderedMemory else (3, 4)
    return make(*sizes, **options)


@pytest.fixture
def no_compiler(own_cache, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")


@BOTH
def test_a_line_for_each_backend_says_whether_it_runs(make, no_compiler):
    lines = dict(line.split(": ", 1) for line in explain(layer(make), torch.zeros(5, 2, 3)).splitlines())
    assert list(lines) == list(BACKENDS)
    assert lines["native"].startswith("does not run: there is no C compiler")
    assert lines["sequence"] == "runs, selected by backend='auto'"
    assert lines["reference"] == "runs"
    assert sum("selected" in line for line in lines.values()) == 1


@BOTH
def test_a_backend_that_was_asked_for_and_cannot_run(make, no_compiler):
    line = explain(layer(make, backend="native"), torch.zeros(5, 2, 3)).splitlines()[0]
    assert line.startswith("native: does not run: there is no C compiler")
    assert line.endswith(", selected by backend='native'")


@BOTH
def test_an_exported_program_says_why_it_cannot_run_without_what_it_was_exported_with(make, request):
    x = torch.zeros(5, 2, 3)
    fastest = layer(make).eval()
    if "native: runs" not in explain(fastest, x):
        pytest.skip("native cannot run here")
    program = torch.export.export(fastest, (x,)).module()
    request.getfixturevalue("no_compiler")
    with pytest.raises(RuntimeError, match="backend 'native' cannot run here: there is no C compiler"):
        program(x)


def test_directions_that_differ_have_lines_each():
    both = layer(OrderedMemory, bidirectional=True, backend="sequence")
    assert len(explain(both, torch.zeros(5, 2, 3)).splitlines()) == 4
    both.directions[1].norm.register_forward_hook(lambda *arguments: None)
    both.backend = "auto"
    first, second = explain(both, torch.zeros(5, 2, 3)).split("\n\n")
    assert "hooks" not in first
    assert "sequence: does not run: it does not call the hooks of norm\n" in second
    assert "reference: runs, selected by backend='auto'" in second


def test_a_layer_inside_a_model_is_found_and_nothing_else_is():
    model = nn.Sequential(nn.Linear(6, 3), layer(OrderedMemory, backend="reference"))
    assert "reference: runs, selected by backend='reference'" in explain(model, torch.zeros(5, 2, 6))
    with pytest.raises(TypeError, match="expected an OrderedMemory or ONLSTM, got Linear"):
        explain(nn.Linear(3, 3), torch.zeros(5, 2, 3))


@BOTH
def test_a_compiled_layer_is_explained_as_the_layer_in_it(make):
    whole = layer(make)
    x = torch.zeros(5, 2, 3)
    expected = explain(whole, x)
    assert explain(torch.compile(whole, backend="eager"), x) == expected
    assert explain(nn.Sequential(torch.compile(whole, backend="eager")), x) == expected
    whole.compile(backend="eager")
    assert explain(whole, x) == expected


@BOTH
@pytest.mark.parametrize(("kind", "expected"), [("cpu", "cuda"), ("mps", "mps"), ("cuda", "cuda")])
def test_the_generator_of_the_device_is_restored(make, monkeypatch, kind, expected):
    """On devices that are not here; PyTorch 2.12 takes them for GPUs of CUDA unless it is told."""
    forked = []

    @contextlib.contextmanager
    def fork_rng(devices, device_type):
        forked.append(({device.type for device in devices}, device_type))
        yield

    class Elsewhere(nn.Module):
        def parameters(self, recurse=True):
            return iter([SimpleNamespace(device=torch.device(kind))])

        def forward(self, x):
            return layer(make)(x)

    monkeypatch.setattr(torch.random, "fork_rng", fork_rng)
    explain(Elsewhere(), torch.zeros(5, 2, 3))
    assert forked == [({kind} - {"cpu"}, expected)]


@BOTH
def test_asking_changes_nothing(make):
    dropout = {"cell_dropout": 0.5} if make is OrderedMemory else {"weight_dropout": 0.5}
    asked = layer(make, backend="reference", **dropout)
    before = torch.get_rng_state()
    explain(asked, torch.zeros(5, 2, 3))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in asked.parameters())


def test_after_an_explanation_none_is_collected():
    explain(layer(OrderedMemory), torch.zeros(5, 2, 3))
    assert registry._explanations.get() is None


@BOTH
def test_an_explanation_takes_all_arguments_of_the_call(make):
    asked, x = layer(make, backend="reference"), torch.zeros(5, 2, 3)
    result = asked(x)
    state = result.state if make is OrderedMemory else result[1]
    assert explain(asked, x, state, lengths=[5, 3]) == explain(asked, x)
    with pytest.raises(ValueError, match="lengths must lie in"):
        explain(asked, x, lengths=[6, 3])


@pytest.fixture
def no_reasons_yet(monkeypatch):
    monkeypatch.setattr("ordered_memory.backends.registry._warned", set())


def test_falling_back_to_the_definition_is_logged_once_for_each_reason(no_reasons_yet, caplog):
    x = torch.zeros(5, 2, 3)
    hooked, normed = layer(OrderedMemory), layer(OrderedMemory)
    hooked.directions[0].norm.register_forward_hook(lambda *arguments: None)
    nn.utils.parametrizations.weight_norm(normed.directions[0].cell.output)
    for _ in range(2):
        hooked(x)
        normed(x)
    first, second = caplog.records
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    text = "backend='auto' selects 'reference', which is slow. Why a faster one cannot run: "
    assert first.getMessage() == f"{text}it does not call the hooks of norm"
    assert "its cell.output must be a torch.nn.Linear, got" in second.getMessage()


@pytest.mark.parametrize(("part", "called"), [("score", True), ("cell", False)])
def test_a_hook_that_the_definition_does_not_call_either_is_named(no_reasons_yet, caplog, part, called):
    hooked, calls = layer(OrderedMemory), []
    hooked.directions[0].get_submodule(part).register_forward_hook(lambda *arguments: calls.append(1))
    hooked(torch.zeros(5, 2, 3))
    (record,) = caplog.records
    assert f"it does not call the hooks of the {part}" in record.getMessage()
    assert bool(calls) == called
    assert ("no backend does" in record.getMessage()) == (not called)


@torch.no_grad()
def test_a_weight_of_onlstm_that_only_the_definition_reads_is_logged_once(no_reasons_yet, caplog):
    x, changed = torch.zeros(5, 2, 3), layer(ONLSTM, chunk_size=2)
    changed(x)
    wrap_weight(changed, "weight_hh_l0")
    changed.backend = "reference"
    changed(x)
    assert caplog.records == []
    changed.backend = "auto"
    changed(x)
    changed(x)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().endswith(
        "selects 'reference', which is slow. Why a faster one cannot run: it needs weights that are plain "
        "tensors, got Halved"
    )


def test_the_definition_by_name_for_no_sequences_and_for_transforms_is_not_logged(no_reasons_yet, caplog):
    x = torch.zeros(5, 2, 3)
    named, hooked = layer(OrderedMemory, backend="reference"), layer(OrderedMemory)
    for changed in (named, hooked):
        changed.directions[0].norm.register_forward_hook(lambda *arguments: None)
    named(x)
    hooked(x[:, :0])
    plain = layer(OrderedMemory)
    torch.func.jvp(lambda x: plain(x).output, (x,), (x,))
    assert caplog.records == []


@BOTH
def test_the_choice_is_logged(make, no_compiler, caplog):
    caplog.set_level(logging.DEBUG, "ordered_memory.backends.registry")
    run = layer(make)
    run(torch.zeros(5, 2, 3))
    (choice,) = (record for record in caplog.records if record.name == "ordered_memory.backends.registry")
    assert choice.getMessage() == "; ".join(explain(run, torch.zeros(5, 2, 3)).splitlines())


@BOTH
def test_what_is_wrong_is_said_once_and_what_is_by_design_is_not(make, no_compiler, caplog):
    caplog.set_level(logging.INFO, "ordered_memory")
    by_design = layer(make, dtype=torch.bfloat16)
    by_design(torch.zeros(5, 2, 3, dtype=torch.bfloat16))
    assert caplog.records == []
    for _ in range(2):
        layer(make)(torch.zeros(5, 2, 3))
    (record,) = caplog.records
    package = make.__module__.partition(".")[0]
    start = f"{package}: the fastest backend, 'native', cannot run: there is no C compiler"
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(start)


def test_where_there_is_no_native_by_design_nothing_is_logged(no_compiler, monkeypatch, caplog):
    monkeypatch.setattr(build.platform, "system", lambda: "Darwin")
    text = explain(layer(OrderedMemory), torch.zeros(5, 2, 3))
    assert text.startswith("native: does not run: its C runs on Linux, this is Darwin\n")
    assert caplog.records == []


def test_auto_leaves_out_what_is_slow_on_the_device():
    backends = {
        "elsewhere": registry.Backend(1, lambda x: None, device_type="cuda"),
        "here": registry.Backend(2, lambda x: None, device_type="cpu"),
    }
    x = torch.zeros(1)
    assert registry.select("auto", backends, x) == 2
    assert registry.select("elsewhere", backends, x) == 1


@BOTH
def test_interpreted_kernels_run_only_by_name(make, monkeypatch, no_compiler):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    lines = explain(layer(make), torch.zeros(5, 2, 3)).splitlines()
    assert "triton: runs" in lines
    assert "sequence: runs, selected by backend='auto'" in lines


def test_the_definition_is_always_there_and_every_backend_takes_its_arguments():
    assert BACKENDS["reference"].run_recurrence is run_recurrence
    wanted = list(inspect.signature(run_recurrence).parameters)
    for name, backend in BACKENDS.items():
        assert list(inspect.signature(backend.run_recurrence).parameters)[: len(wanted)] == wanted, name


def test_auto_takes_the_first_that_can_run(monkeypatch):
    case = Case()
    broken = Backend(None, lambda inputs, modules, state: "it is broken")
    known = {"broken": broken, "reference": BACKENDS["reference"], "also broken": broken}
    monkeypatch.setattr("ordered_memory.backends.BACKENDS", known)
    assert select_backend("auto", case.inputs, case.modules) is run_recurrence
    with pytest.raises(RuntimeError, match="backend 'broken' cannot run here: it is broken"):
        select_backend("broken", case.inputs, case.modules)


@pytest.mark.usefixtures("backends")
@EVERY_BACKEND
def test_why_not_names_unsupported_scores_cells_and_norms(backend):
    case = Case()
    case.backend(backend)

    class Other(torch.nn.Module):
        pass

    why_not = BACKENDS[backend].why_not
    assert "score Other" in why_not(case.inputs, case.modules._replace(score=Other()))
    assert "cell Other" in why_not(case.inputs, case.modules._replace(cell=Other()))
    assert "LayerNorm" in why_not(case.inputs, case.modules._replace(norm=Other()))
    affine = torch.nn.LayerNorm(4, elementwise_affine=False)
    assert "LayerNorm" in why_not(case.inputs, case.modules._replace(norm=affine))


GPU = torch.device("cuda")


@pytest.fixture
def on_a_gpu(monkeypatch, tmp_path):
    """What the kernels need, all of it there."""
    (tmp_path / "Python.h").touch()
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(triton_support.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__="3.10.0"))
    monkeypatch.setattr(triton_support.shutil, "which", lambda name: "/bin/cc")
    monkeypatch.setattr(triton_support.sysconfig, "get_path", lambda *names: tmp_path)
    triton_support._why_not_compiled.cache_clear()
    yield
    triton_support._why_not_compiled.cache_clear()


def test_the_kernels_run_on_a_gpu_where_nothing_is_missing(on_a_gpu, caplog):
    assert triton_support.why_no_triton(GPU) is None
    assert not caplog.records


@pytest.mark.parametrize(
    ("owner", "name", "value", "reason"),
    [
        (torch.version, "hip", "6.4", "it needs an NVIDIA GPU, and this PyTorch is for AMD's"),
        (torch.cuda, "is_available", lambda: False, "it needs an NVIDIA GPU, and PyTorch finds none"),
        (
            torch.cuda,
            "get_device_capability",
            lambda device: (7, 5),
            "it needs a GPU of compute capability 8.0",
        ),
    ],
)
def test_gpus_without_the_kernels(owner, name, value, reason, on_a_gpu, monkeypatch, caplog):
    monkeypatch.setattr(owner, name, value)
    assert triton_support.why_no_triton(GPU).startswith(reason)
    assert not caplog.records


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (SimpleNamespace(__version__="3.5.1"), "it needs Triton 3.6 or newer, got 3.5.1"),
        (SimpleNamespace(), "Triton cannot be imported: "),
        (None, "Triton cannot be imported: "),
    ],
)
def test_a_triton_that_cannot_be_used(module, reason, on_a_gpu, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "triton", module)
    assert triton_support.why_no_triton(GPU).startswith(reason)
    assert triton_support.why_no_triton(GPU).startswith(reason)
    [record] = caplog.records
    assert record.getMessage().startswith(f"the fastest backend on a GPU, 'triton', cannot run: {reason}")


@pytest.mark.parametrize(
    ("owner", "name", "value", "reason"),
    [
        ("shutil", "which", lambda name: None, "Triton needs a C compiler, and finds no gcc or clang"),
        ("sysconfig", "get_path", lambda *names: "/nowhere", "Triton needs the header files of Python"),
    ],
)
def test_what_triton_needs_to_compile(owner, name, value, reason, on_a_gpu, monkeypatch):
    monkeypatch.setattr(getattr(triton_support, owner), name, value)
    assert triton_support.why_no_triton(GPU) == reason


def test_the_compiler_that_a_variable_names(on_a_gpu, monkeypatch):
    monkeypatch.setenv("CC", "mycc")
    monkeypatch.setattr(triton_support.shutil, "which", lambda name: name if name == "gcc" else None)
    assert triton_support.why_no_triton(GPU) == "Triton needs a C compiler, and finds no mycc"
