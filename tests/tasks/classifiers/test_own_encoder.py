"""`--model module:Class`: an encoder that is not part of the project."""

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch

from tasks.classifiers.config import ClassifierConfig
from tasks.classifiers.encoders import build_encoder, encode
from tasks.listops.model import ListOpsModel
from tasks.runs.checkpoints import read_state
from tasks.runs.errors import UserError
from tests.commands import MAIN, TINY, refusal

EXAMPLES = Path(__file__).parents[3] / "examples"
GRU = ("--model", "own_encoder:GRU")


@pytest.fixture(autouse=True)
def directory(monkeypatch, tmp_path):
    """A directory to work in, as `python -m` adds it to the path of modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    return tmp_path


@pytest.mark.parametrize("task", ["listops", "logic", "sst"])
def test_it_trains_resumes_and_has_trees_in_every_task(task, directory):
    main = MAIN[task]
    train = ["train", *TINY[task].split(), *GRU, "--run-dir", "run"]
    assert main(train) == 0
    assert main([*train, "--resume", "--epochs", "2"]) == 0
    results = json.loads(Path("run", "results.json").read_text())
    assert {"model", "random"} <= results["span_f1"].popitem()[1].keys()
    evaluate = ["evaluate", "--checkpoint", "run/best.safetensors", "--json", "results.json"]
    assert main(evaluate) == 0
    assert json.loads(Path("results.json").read_text())["accuracy"] == results["accuracy"]


WITH_A_MASK = """
import torch

class Encoder(torch.nn.Module):
    def __init__(self, config, input_size):
        super().__init__()
        self.first, self.second = (torch.nn.Linear(input_size, config.slot_size) for _ in range(2))
        self.second.weight = self.first.weight
        self.register_buffer("mask", torch.full((9, 9), -torch.inf).triu(1))

    def forward(self, embedded, lengths):
        return (self.first(embedded) + self.second(embedded)).mean(1)
"""


def test_it_may_share_weights_and_have_infinite_values_in_a_mask(directory):
    (directory / "with_a_mask.py").write_text(WITH_A_MASK)
    importlib.invalidate_caches()
    train = ["train", *TINY["listops"].split(), "--model", "with_a_mask:Encoder", "--run-dir", "run"]
    assert MAIN["listops"](train) == 0
    assert MAIN["listops"]([*train, "--resume", "--epochs", "2"]) == 0


WITH_BUFFERS = """
import torch

class Encoder(torch.nn.Module):
    def __init__(self, config, input_size):
        super().__init__()
        linear = torch.nn.Linear(input_size, config.slot_size)
        self.linear = torch.nn.utils.parametrizations.spectral_norm(linear)
        self.norm = torch.nn.BatchNorm1d(config.slot_size)
        self.register_buffer("mask", torch.ones(9, 9, dtype=torch.bool).triu())
        self.register_buffer("positions", torch.arange(9) + 0)

    def forward(self, embedded, lengths):
        return self.norm(self.linear(embedded).mean(1))
"""


@pytest.mark.parametrize("options", ["", "--average-decay 0.9 --restore-best"])
def test_buffers_that_training_changes_are_resumed_and_constant_ones_compared(
    directory, capsys, monkeypatch, options
):
    (directory / "with_buffers.py").write_text(WITH_BUFFERS)
    monkeypatch.delitem(sys.modules, "with_buffers", raising=False)
    importlib.invalidate_caches()
    train = ["train", *TINY["listops"].split(), "--model", "with_buffers:Encoder", *options.split()]
    for run, *epochs in (("once", "3"), ("resumed", "1", "2", "3")):
        for number in epochs:
            assert MAIN["listops"]([*train, "--run-dir", run, "--resume", "--epochs", number]) == 0
    once, resumed = (read_state(Path(run, "last.safetensors"))["model"] for run in ("once", "resumed"))
    assert once["encoder.norm.num_batches_tracked"] > 0
    for name, tensor in once.items():
        assert torch.equal(tensor, resumed[name])
    module = sys.modules["with_buffers"]
    for before, after, name in (("triu", "tril", "mask"), ("+ 0", "+ 1", "positions")):
        exec(WITH_BUFFERS.replace(before, after), module.__dict__)
        capsys.readouterr()
        assert MAIN["listops"]([*train, "--run-dir", "once", "--resume", "--epochs", "4"]) == 2
        assert f"this run was started with another encoder.{name}: " in capsys.readouterr().err


def test_the_run_is_named_after_the_class_and_no_option_is_unused(capsys):
    config = ClassifierConfig(model="own_encoder:GRU", slot_size=6)
    config.check()
    assert config.model_name == "GRU"
    assert "heads" not in config.unused
    assert config.may_leave_parameters_unused
    message = refusal(MAIN["listops"], capsys, *TINY["listops"].split(), *GRU, "--bidirectional")
    assert message.endswith("got --model own_encoder:GRU")


def test_the_example_does_not_depend_on_padding():
    torch.manual_seed(0)
    encoder = build_encoder(ClassifierConfig(model="own_encoder:GRU", slot_size=6), 4)
    embedded, lengths = torch.randn(3, 7, 4), torch.tensor([7, 1, 4])
    together = encode(encoder, embedded, lengths)
    for i, length in enumerate(lengths):
        alone = encode(encoder, embedded[i : i + 1, :length], lengths[i : i + 1])
        torch.testing.assert_close(alone.summary[0], together.summary[i])
        torch.testing.assert_close(alone.distances[0], together.distances[i, :length])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("gru", "--model must be one of ordered-memory, lstm"),
        (".own:GRU", "--model must be one of ordered-memory, lstm"),
        ("own:GRU", "--model own:GRU: Python finds no module own"),
        ("own.b:GRU", "--model own.b:GRU: Python finds no module own"),
        ("own_encoder.b:GRU", "--model own_encoder.b:GRU: Python finds no module own_encoder.b"),
        ("own_encoder:GR", "--model own_encoder:GR: own_encoder has no class GR that is a torch.nn.Module"),
        ("os:system", "--model os:system: os has no class system that is a torch.nn.Module"),
        ("json:JSONDecoder", "--model json:JSONDecoder: json has no class JSONDecoder that is"),
    ],
)
def test_what_is_no_encoder_is_named(model, message, capsys):
    words = [*TINY["listops"].split(), "--model", model]
    assert refusal(MAIN["listops"], capsys, *words).startswith(message)


def test_an_error_in_the_module_is_not_hidden(directory):
    (directory / "broken.py").write_text("import no_such_module\n")
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        ClassifierConfig(model="broken:GRU").check()


def test_a_checkpoint_needs_the_module(directory, monkeypatch):
    copy = directory / "copied_encoder.py"
    copy.write_bytes((EXAMPLES / "own_encoder.py").read_bytes())
    importlib.invalidate_caches()
    train = ["train", *TINY["listops"].split(), "--model", "copied_encoder:GRU", "--run-dir", "run"]
    assert MAIN["listops"](train) == 0
    assert ListOpsModel.from_pretrained("run/best.safetensors").answer("[MAX 2 9 ]").trees is not None
    copy.unlink()
    monkeypatch.delitem(sys.modules, "copied_encoder")
    importlib.invalidate_caches()
    with pytest.raises(ValueError, match=r"run/best\.safetensors: --model copied_encoder:GRU: Python finds"):
        ListOpsModel.from_pretrained("run/best.safetensors")


@pytest.mark.parametrize(
    ("result", "got"),
    [
        ("embedded.new_zeros(len(lengths), 9)", r"got shape \(2, 9\)"),
        ("embedded", r"got shape \(2, 3, 6\)"),
        ("(embedded, lengths)", "got tuple"),
    ],
)
def test_a_summary_of_another_size_is_told(result, got, directory):
    config = an_encoder_that_returns(result, directory)
    with pytest.raises(UserError, match=rf"expected shape \(2, 8\) for two sequences, {got}"):
        build_encoder(config, 6)


@pytest.mark.parametrize(
    ("field", "shape", "message"),
    [
        ("distances", (3, 2), r"distances of Encoded must be \(B, T\) or \(L, B, T\), got shape \(3, 2\)"),
        ("distances", (4, 3, 2), r"distances of Encoded must be .*, got shape \(4, 3, 2\)"),
        ("distances", (2,), r"distances of Encoded must be .*, got shape \(2,\)"),
        ("attention", (3, 2, 5), r"attention of Encoded must be \(B, T, N\), got shape \(3, 2, 5\)"),
        ("attention", (2, 3), r"attention of Encoded must be \(B, T, N\), got shape \(2, 3\)"),
        (
            "backward_attention",
            (2, 3),
            r"backward_attention of Encoded must be \(B, T, N\), got shape \(2, 3\)",
        ),
        ("backward_distances", (2,), r"backward_distances of Encoded must be .*, got shape \(2,\)"),
        ("merges", (2, 3), r"merges of Encoded must be \(B, T - 1\), got shape \(2, 3\)"),
    ],
)
def test_what_trees_are_read_from_in_another_layout_is_told_before_training(field, shape, message, directory):
    config = an_encoder_that_returns(
        f"Encoded(embedded.new_zeros(len(lengths), 8), {field}=torch.zeros({shape}))", directory
    )
    with pytest.raises(UserError, match=rf"--model encoder_of_test:Other: {message} for two sequences"):
        build_encoder(config, 6)


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.bool"])
def test_merges_that_are_no_integers_are_told_before_training(dtype, directory):
    merges = f"embedded.new_zeros(len(lengths), embedded.shape[1] - 1, dtype={dtype})"
    config = an_encoder_that_returns(
        f"Encoded(embedded.new_zeros(len(lengths), 8), merges={merges})", directory
    )
    with pytest.raises(UserError, match=f"merges of Encoded must be integers, got {dtype}"):
        build_encoder(config, 6)


def an_encoder_that_returns(result, directory):
    """The configuration of an encoder whose `forward` returns the value of an expression."""
    lines = (
        "import torch",
        "from tasks.classifiers.encoded import Encoded",
        "class Other(torch.nn.Module):",
        "    def __init__(self, config, input_size):",
        "        super().__init__()",
        "    def forward(self, embedded, lengths):",
        f"        return {result}",
    )
    (directory / "encoder_of_test.py").write_text("\n".join(lines))
    sys.modules.pop("encoder_of_test", None)
    importlib.invalidate_caches()
    return ClassifierConfig(model="encoder_of_test:Other", slot_size=8)
