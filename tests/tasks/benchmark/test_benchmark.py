"""The benchmark counts, maps weights and reports what it says it does; how fast anything is is not tested."""

import csv
import io
import json
import multiprocessing
import re
import signal
import sys
from concurrent.futures import Future
from functools import partial
from time import sleep
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import ordered_memory
from ordered_memory import OrderedMemory
from ordered_memory.cells import GatedRecursiveCell
from ordered_memory.memory import initial_state, step
from tasks.benchmark.__main__ import main
from tasks.benchmark.compare import _notes
from tasks.benchmark.contenders import (
    Entry,
    Setup,
    balanced_recompute_every,
    build,
    build_batches,
    build_layer,
)
from tasks.benchmark.figures import contender_figures, tables
from tasks.benchmark.floor import Counts, Floor, count, products
from tasks.benchmark.measure import Times, _clock, interleave
from tasks.benchmark.memory import peak_mib
from tasks.benchmark.released import FILE, REPOSITORY, execute, largest_difference, released_weights
from tasks.benchmark.workloads import (
    Batch,
    Sizes,
    build_single,
    build_workload,
    embed,
    nested_expression,
    pad,
    pad_left,
    random_formula,
    spread_batches,
)
from tasks.listops.config import ListOpsConfig
from tasks.listops.expressions import decode
from tasks.listops.expressions import parse as parse_expression
from tasks.listops.generator import generate
from tasks.listops.model import ListOpsModel
from tasks.logic.formulas import decode as decode_formula
from tasks.logic.formulas import parse
from tasks.runs.checkpoints import save_tensors
from tasks.runs.errors import UserError
from tasks.runs.saved_config import config_to_dict
from tests.commands import refusal

fails = partial(refusal, main)

SIZES = Sizes(slot_size=6, num_slots=4, cell_dropout=0.2, attention_dropout=0.2, input_size=5, vocabulary=9)

STAND_IN = '''
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


class OrderedMemory(nn.Module):
    """Takes and gives what the module of the authors does, and computes something else."""

    def __init__(self, input_size, slot_size, nslot, dropout=0.2, dropoutm=0.1, bidirection=False):
        super().__init__()
        self.scale = SCALE
        self.projection = nn.Linear(input_size, slot_size)
        self.seen = []

    def load_state_dict(self, state):
        self.names = sorted(state)

    def forward(self, X, mask, output_last=False):
        self.seen.append((mask, output_last))
        assert mask.dtype == torch.bool and mask.shape == X.shape[:2]
        outputs = self.projection(X) * self.scale
        return outputs[-1] if output_last else outputs[mask.sum(0) - 1, torch.arange(X.size(1))]
'''


@pytest.fixture
def checkout(tmp_path):
    """A checkout that holds a module of the same interface."""
    directory = tmp_path / "checkout"
    directory.mkdir()
    (directory / "ordered_memory.py").write_text(STAND_IN.replace("SCALE", "1.0"))
    return directory


def some_batches(*lengths):
    rng = np.random.default_rng(1)
    return [pad([rng.integers(1, 10, size=length).tolist() for length in batch]) for batch in lengths]


def count_by_stepping(layer, batch):
    """What the floor counts, read off the states of the definition one token at a time."""
    maps = layer.directions[0].recurrent_modules()
    projected = maps.norm(layer.directions[0].projection(batch.inputs))
    state = initial_state(projected.shape[1], layer.num_slots, projected)
    tokens = attended = active = 0
    for t, x in enumerate(projected):
        occupied = state.occupancy[:, 1:] >= layer.occupancy_threshold
        state, _ = step(x, state, maps)
        for b, length in enumerate(batch.lengths.tolist()):
            if t < length:
                tokens += 1
                attended += int(occupied[b].sum())
                active += int((state.occupancy[b, :-1] > 0).sum())
    return tokens, attended, active, tokens * layer.num_slots


@pytest.mark.parametrize("threshold", [1e-5, 0.3])
def test_the_floor_counts_the_pairs_that_matter(threshold):
    (tokens,) = some_batches([7, 1, 4, 2])
    layer = OrderedMemory(5, 6, 4, occupancy_threshold=threshold).eval()
    with torch.no_grad():
        # Scores so far apart that many slots get exactly nothing.
        layer.directions[0].score.output.weight.mul_(3000)
        batch = embed(tokens, torch.randn(10, 5), SIZES, seed=0)
        counts = count(layer(batch.inputs, lengths=batch.lengths).attention, batch.lengths, threshold)
        assert tuple(counts) == count_by_stepping(layer, batch)
    assert 0 < counts.active < counts.pairs
    assert 0 < counts.attended < counts.pairs


def test_the_floor_has_one_product_for_each_map():
    layer = OrderedMemory(5, 6, 4)
    counts = Counts(tokens=3, attended=4, active=5, pairs=12)
    work = [(tuple(weight.shape), rows) for weight, rows in products(layer, counts)]
    assert work == [((6, 5), 3), ((6, 6), 3), ((6, 6), 4), ((24, 6), 5), ((24, 6), 5), ((24, 24), 5)]
    assert len(products(OrderedMemory(5, 6, 4, cell="tree-rnn"), counts)) == 5


def test_an_occupancy_exactly_at_the_threshold_is_attended():
    attention = torch.tensor([[[0.0, 0.0, 0.0]], [[0.0, 0.5, 0.5]], [[0.0, 0.0, 1.0]]])
    attended = [count(attention, torch.tensor([3]), threshold).attended for threshold in (0.5, 0.51)]
    assert attended == [1 + 3, 1 + 2]


def test_the_floor_counts_with_dropout_in_training_only_and_with_the_threshold_of_the_layer():
    torch.manual_seed(0)
    layer = OrderedMemory(5, 6, 4, cell_dropout=0.5, attention_dropout=0.5, occupancy_threshold=0.3)
    batches = build_batches(Setup(SIZES, 0, "cpu"), some_batches([9] * 20))
    torch.manual_seed(1)
    floor = Floor(layer, batches)
    torch.manual_seed(1)
    expected = []
    for training in (True, False):
        with torch.no_grad():
            layer.train(training)
            attention = layer(batches[0].inputs, lengths=batches[0].lengths).attention
        expected.append(count(attention, batches[0].lengths, 0.3))
        assert expected[-1] != count(attention, batches[0].lengths)
    assert [*floor.train_counts, *floor.infer_counts] == expected
    assert expected[0] != expected[1]


def test_the_floor_does_as_many_operations_as_it_counts(monkeypatch):
    monkeypatch.setattr("tasks.benchmark.floor.CHUNK", 7)
    batches = build_batches(Setup(SIZES, 0, "cpu"), some_batches([9, 9, 3]))
    floor = Floor(build_layer(Setup(SIZES, 0, "cpu")), batches)
    expected = {
        kind: sum(2 * rows * weight.numel() for weight, rows in products(floor.layer, counts[0]))
        for kind, counts in (("train", floor.train_counts), ("infer", floor.infer_counts))
    }
    for run, operations in (
        (floor.evaluation(0), expected["infer"]),
        (floor.training_step(0), 3 * expected["train"]),
    ):
        with FlopCounterMode(display=False) as counter:
            run()
        assert counter.get_total_flops() == operations


def test_their_cell_with_the_mapped_weights_composes_as_ours():
    """By the formula of the authors' cell: [candidate; memory] in, gates of candidate, memory, update."""
    layer = OrderedMemory(5, 6, 4, dtype=torch.float64)
    theirs = {name.removeprefix("OM_forward.cell."): w for name, w in released_weights(layer).items()}
    memory, candidate = torch.randn(2, 3, 6, dtype=torch.float64)
    hidden = torch.cat([candidate, memory], -1) @ theirs["input_t.1.weight"].T + theirs["input_t.1.bias"]
    units = hidden.relu() @ theirs["input_t.4.weight"].T + theirs["input_t.4.bias"]
    of_candidate, of_memory, of_update = units[:, :18].sigmoid().chunk(3, dim=-1)
    composed = of_candidate * candidate + of_memory * memory + of_update * units[:, 18:]
    cell = layer.directions[0].cell
    assert isinstance(cell, GatedRecursiveCell)
    torch.testing.assert_close(composed, cell(memory, candidate), rtol=1e-12, atol=1e-12)


def test_every_parameter_is_handed_over():
    layer = OrderedMemory(5, 6, 4)
    # Their shared LayerNorm has three names; count it under one.
    handed = {name: w for name, w in released_weights(layer).items() if "activation" not in name}
    assert all(name.startswith("OM_forward.") for name in handed)
    assert sum(w.numel() for w in handed.values()) == sum(w.numel() for w in layer.parameters())


def test_nothing_is_written_to_a_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    (tmp_path / "first.py").write_text("from second_of_checkout import NUMBER")
    (tmp_path / "second_of_checkout.py").write_text("NUMBER = 3")
    assert execute(tmp_path, "first.py", REPOSITORY).NUMBER == 3
    assert {path.name for path in tmp_path.iterdir()} == {"first.py", "second_of_checkout.py"}
    assert not sys.dont_write_bytecode


def test_their_module_comes_from_its_source_and_stays_private(checkout):
    module = execute(checkout, FILE, REPOSITORY)
    assert module.OrderedMemory is not OrderedMemory
    assert module.__name__ not in sys.modules
    assert sys.modules["ordered_memory"] is ordered_memory
    assert [path.name for path in checkout.iterdir()] == ["ordered_memory.py"]


@pytest.mark.parametrize("left_padded", [True, False])
def test_their_module_reads_the_same_sequences_padded_on_its_side(checkout, left_padded):
    setup = Setup(SIZES, 0, "cpu", checkout, left_padded=left_padded)
    batches = build_batches(setup, some_batches([4, 1, 3]))
    contender = build(setup, Entry("released"), batches)
    contender.training_step(0)()
    contender.evaluation(0)()
    module = contender.module
    assert module.projection.weight.grad is None  # forgotten before an evaluation
    (mask, output_last), _ = module.seen
    assert output_last == left_padded
    assert mask.sum(0).tolist() == [4, 1, 3]
    assert mask[0].tolist() == [True, not left_padded, not left_padded]
    projected = module.projection(batches[0].inputs)[batches[0].lengths - 1, torch.arange(3)]
    torch.testing.assert_close(contender.forward(contender.batches[0]), projected)


def test_padding_moves_to_the_left_and_nothing_is_lost():
    batch = embed(pad([[1, 2, 3], [4]]), torch.arange(6.0).unsqueeze(1), SIZES, seed=0)
    moved = pad_left(batch)
    assert moved.inputs.squeeze(-1).T.tolist() == [[1, 2, 3], [0, 0, 4]]
    assert moved.mask.T.tolist() == [[True] * 3, [False, False, True]]


class _Same(nn.Module):
    """Computes what a layer of ours does, off by a little."""

    def __init__(self, layer, offset):
        super().__init__()
        self.layer, self.offset = layer, offset

    def forward(self, inputs, mask):
        assert mask.all()
        return self.layer(inputs).state.candidate[:, -1] + self.offset


def test_outputs_that_differ_are_no_basis_for_a_comparison():
    layer = OrderedMemory(5, 6, 4)
    batch: Batch = embed(some_batches([4, 2, 3])[0], torch.randn(10, 5), SIZES, seed=0)
    assert largest_difference(_Same(layer, 0.0), layer, batch) <= 1e-12
    with pytest.raises(UserError, match=r"differ from ours by 0\.01"):
        largest_difference(_Same(layer, 0.01), layer, batch)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "contains no ordered_memory.py; expected a checkout of yikangshen/Ordered-Memory"),
        ("1 +", "not the expected module: SyntaxError"),
        ("raise OSError('no')", "not the expected module: OSError: no"),
        ("OrderedMemory = 3", "not the expected module: TypeError"),
        ("from torch.nn import Linear as OrderedMemory", "not the expected module"),
    ],
)
def test_another_checkout_is_refused(tmp_path, capsys, content, complaint):
    if content is not None:
        (tmp_path / "ordered_memory.py").write_text(content)
    error = fails(capsys, "--quick", "--no-memory", "--released-code", tmp_path)
    assert str(tmp_path) in error
    assert complaint in error


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--repeats", 0], "--repeats must be at least 1, got 0"),
        (["--quick", "--repeats", 3], "--repeats 3 has no effect with --quick"),
        (["--quick", "--max-length", 50], "--max-length 50 has no effect with --quick"),
        (["onlstm", "--quick", "--sizes", "7x2x6x20"], "--sizes 7x2x6x20 has no effect with --quick"),
        (["logic", "--quick", "--pairs", 7], "--pairs 7 has no effect with --quick"),
        (["sst", "--quick", "--slot-size", 8], "--slot-size 8 has no effect with --quick"),
        (["--threads", 0], "--threads must be at least 1, got 0"),
        (["--seed", -1], "--seed must not be negative, got -1"),
        (["--batches", 0], "--batches must be at least 1, got 0"),
        (["--max-length", 0], "--max-length must be at least 1, got 0"),
        (["--num-slots", 0], "--num-slots must be at least 1, got 0"),
        (["--single", 20, 3], "--single must be between 4 and 1000000, got 3"),
        (["--quick", "--single", 10**19], f"between 4 and 1000000, got {10**19}"),
        (["sst", "--batches", 1, "--batch-size", 1, "--repeats", 2**63 - 1], "not enough memory for these"),
        (["language-model", "--vocabulary", 1], "--vocabulary must be at least 2, got 1"),
        (["--device", "abacus"], "--device 'abacus' cannot be used here"),
        (["--device", "meta"], "--device 'meta' cannot be used here"),
        (["--tf32"], "--tf32 has no effect on a CPU"),
        (["--json", "no/such/file.json"], "--json no/such/file.json: there is no directory no/such"),
        (["--checkpoint", "none.safetensors"], "none.safetensors: no such checkpoint"),
        (["--checkpoint", "x", "--config", "listops", "sst"], "it cannot read --config sst"),
        (["scaling", "--backend", "quick"], "--backend must be one of auto, "),
        (["scaling", "--nesting", 0], "--nesting must be at least 1, got 0"),
        (["scaling", "--directory", "pyproject.toml"], "--directory pyproject.toml: is not a directory"),
    ],
)
def test_bad_options_are_told_in_one_line(capsys, words, complaint):
    assert complaint in fails(capsys, *words)


RATIOS = {
    "train_speedup_vs_released": ("train_ms", "released", None),
    "infer_speedup_vs_released": ("infer_ms", "released", None),
    "train_vs_floor": ("train_ms", None, "floor"),
    "infer_vs_floor": ("infer_ms", None, "floor"),
    "train_vs_lstm": ("train_ms", None, "nn.LSTM"),
    "infer_vs_lstm": ("infer_ms", None, "nn.LSTM"),
}


def assert_consistent(result):
    """Sums, rates and ratios follow from the medians, and active fractions from the counts."""
    tokens = sum(batch["tokens"] for batch in result["batches"])
    for values in result["contenders"].values():
        for kind in ("train", "infer"):
            assert len(values[f"{kind}_ms_per_batch"]) == len(result["batches"])
            assert values[f"{kind}_ms"] == pytest.approx(sum(values[f"{kind}_ms_per_batch"]))
            assert values[f"{kind}_tokens_per_s"] == pytest.approx(tokens / values[f"{kind}_ms"] * 1000)
    for kind in ("train", "infer"):
        counts = [batch[f"{kind}_counts"] for batch in result["batches"]]
        active, pairs = (sum(batch[name] for batch in counts) for name in ("active", "pairs"))
        assert result[f"active_fraction_{kind}"] == active / pairs
        assert pairs == tokens * result["sizes"]["num_slots"]
    for name, (time, above, below) in RATIOS.items():
        above, below = above or result["backend"], below or result["backend"]
        if above in result["contenders"] and below in result["contenders"]:
            expected = result["contenders"][above][time] / result["contenders"][below][time]
            assert result[name] == pytest.approx(expected)
        else:
            assert result[name] is None


def test_every_configuration_runs_and_is_written_down(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "tasks.benchmark.compare.peak_mib", lambda setup, entry, batch, threads: float(batch.lengths.max())
    )
    path = tmp_path / "times.json"
    words = ["--quick", "--config", "listops", "logic", "sst", "long", "--json", str(path)]
    assert main(words) == 0
    results = json.loads(path.read_text())
    assert [result["config"] for result in results] == ["listops", "logic", "sst", "long"]
    out = capsys.readouterr().out
    for result in results:
        assert_consistent(result)
        assert result["train_speedup_vs_released"] is None
        assert {"reference", "nn.LSTM", "floor"} <= result["contenders"].keys()
        assert {"threads", "torch", "device_name", "commit", "date", "seed", "sizes"} <= result.keys()
        longest = max(batch["T"] for batch in result["batches"])
        for name, values in result["contenders"].items():
            assert values["peak_mib"] == (None if name.startswith("floor") else longest)
        assert 0 < result["active_fraction_train"] <= 1
        assert 0 < result["active_fraction_infer"] <= 1
        assert f"{result['config']}: D=8 N=3" in out
    assert out.count("training step") == 4
    every = {values["recompute_every"] for values in results[-1]["contenders"].values()} - {None}
    (batch,) = results[-1]["batches"]
    assert every == {balanced_recompute_every(batch["T"])}


@pytest.mark.parametrize("words", [["--no-memory"], ["onlstm"]])
def test_some_of_the_backends(words, tmp_path):
    path = tmp_path / "times.json"
    command = [*words, "--quick", "--json", str(path), "--backends"]
    assert main([*command, "reference", "sequence"]) == 0
    (result,) = json.loads(path.read_text())
    others = {"nn.LSTM", "nn.LSTM, bfloat16", "floor", "floor, bfloat16"}
    assert result["contenders"].keys() - others == {"reference", "sequence"}
    assert main([*command, "triton"]) == 0  # which does not run here
    (result,) = json.loads(path.read_text())
    assert result["contenders"].keys() <= others
    assert result["skipped"].keys() >= {"triton"}
    assert result["backend"] is result["train_vs_lstm"] is None


def test_one_example_by_itself(tmp_path):
    path = tmp_path / "times.json"
    words = ["--quick", "--no-memory", "--repeats", "1", "--json", str(path), "--single", "8", "15"]
    assert main([*words, "--config", "listops", "sst"]) == 0
    results = json.loads(path.read_text())
    assert [result["config"] for result in results] == [
        f"{name}, one of {length} tokens" for name in ("listops", "sst") for length in (8, 15)
    ]
    assert [(batch["B"], batch["T"]) for result in results for batch in result["batches"]] == [
        (1, 8),
        (1, 15),
    ] * 2
    assert np.abs(build_single("logic", 2_000).batches[0].lengths - 2_000).max() <= 20
    pair = build_single("logic", 20).batches[0]
    assert np.abs(pair.lengths - 20).max() <= 2
    for formula, length in zip(pair.tokens.T, pair.lengths, strict=True):
        parse(decode_formula(formula[:length].tolist()))


def test_the_language_model_beside_its_parts(tmp_path, capsys):
    path = tmp_path / "times.json"
    words = ["language-model", "--quick", "--vocabulary", "50", "--json", str(path)]
    assert main(words) == 0
    parts = {"of both: output layer, loss", "with nn.LSTM: clipping, SGD"}
    results = json.loads(path.read_text())
    assert set(results["contenders"]) == {"ON-LSTM", "nn.LSTM"} | parts
    out = capsys.readouterr().out
    assert "× LSTM" in out
    assert "20 → 20, 3 layers, 50 words, T=6 B=2\n" in out
    sizes = {"embedding_size": 20, "hidden_size": 20, "num_layers": 3, "bptt": 6, "batch_size": 2}
    assert results.items() >= {**sizes, "vocabulary": 50, "preset": "paper", "quick": True}.items()


def test_a_score_that_the_authors_lack_is_said_to_differ(checkout, tmp_path, capsys):
    path = tmp_path / "times.json"
    words = ["--quick", "--no-memory", "--score", "additive", "--released-code", str(checkout)]
    assert main([*words, "--json", str(path)]) == 0
    assert "run with its own score and cell and random weights" in capsys.readouterr().out
    (result,) = json.loads(path.read_text())
    assert_consistent(result)
    assert result["train_speedup_vs_released"] > 0
    assert result["released_difference"] is None


def test_a_checkpoint_brings_its_weights_sizes_and_score(tmp_path, capsys):
    config = ListOpsConfig(slot_size=6, num_slots=4, embedding_size=5, score="additive", cell="tree-rnn")
    model, path = ListOpsModel(config), tmp_path / "best.safetensors"
    save_tensors(path, model.state_dict(), config_to_dict(config))
    report = tmp_path / "times.json"
    words = ["--quick", "--no-memory", "--checkpoint", str(path), "--json", str(report)]
    assert main([*words, "--num-slots", "5", "--occupancy-threshold", "0.25"]) == 0
    (result,) = json.loads(report.read_text())
    expected = {"slot_size": 6, "num_slots": 5, "input_size": 5, "score": "additive", "cell": "tree-rnn"}
    assert (expected | {"occupancy_threshold": 0.25}).items() <= result["sizes"].items()
    assert_consistent(result)
    assert result["active_fraction_train"] != result["active_fraction_infer"]  # by dropout
    out = capsys.readouterr().out
    assert "score additive, occupancy threshold 0.25, weights of" in out
    active = "active pairs: training {active_fraction_train:.1%}, evaluation {active_fraction_infer:.1%}\n"
    assert active.format(**result) in out

    setup = Setup(Sizes(**{**result["sizes"], "num_slots": 4}), 0, "cpu", checkpoint=path)
    weights = build_layer(setup).state_dict()
    assert all(torch.equal(weights[name], tensor) for name, tensor in model.encoder.state_dict().items())
    (batch,) = build_batches(setup, some_batches([3]))
    assert batch.inputs.shape == (3, 1, 5)


def test_an_lstm_has_no_slots_to_compare(tmp_path, capsys):
    config = ListOpsConfig(slot_size=6, embedding_size=5, model="lstm")
    save_tensors(tmp_path / "best.safetensors", ListOpsModel(config).state_dict(), config_to_dict(config))
    assert "expected an Ordered Memory" in fails(
        capsys, "--quick", "--checkpoint", tmp_path / "best.safetensors"
    )


def test_a_model_of_two_directions_is_not_compared(tmp_path, capsys):
    config = ListOpsConfig(slot_size=6, embedding_size=5, num_slots=3, bidirectional=True)
    save_tensors(tmp_path / "best.safetensors", ListOpsModel(config).state_dict(), config_to_dict(config))
    assert "expected one direction, got a bidirectional model" in fails(
        capsys, "--quick", "--checkpoint", tmp_path / "best.safetensors"
    )


@pytest.mark.parametrize(
    ("sizes", "difference", "said"),
    [
        ({}, 1e-12, "same weights; on sequences of one length its outputs differ by at most 1.0e-12"),
        ({"occupancy_threshold": 0.01}, None, "same weights; its outputs are not compared"),
        ({"score": "additive"}, None, "random weights on the same shapes, because it has no additive score"),
    ],
)
def test_the_note_on_the_released_code_says_which_weights_it_has(sizes, difference, said):
    values = SIZES._replace(score="normalized", cell="gated")._asdict() | sizes
    result = {
        "skipped": {},
        "contenders": {"released": {}},
        "released_difference": difference,
        "sizes": values,
    }
    assert said in _notes(result)[-1]


def test_a_training_step_reaches_every_parameter_and_the_inputs():
    setup = Setup(SIZES, 0, "cpu")
    for entry in (Entry("nn.LSTM"), Entry("reference", "reference")):
        contender = build(setup, entry, build_batches(setup, some_batches([4, 2])))
        contender.batches = [contender.prepare(contender.batches[0])]
        contender.prepare = lambda batch: batch  # it is prepared, and its inputs are at hand
        contender.training_step(0)()
        gradients = [parameter.grad for parameter in contender.module.parameters()]
        assert gradients
        assert all(gradient is not None for gradient in [*gradients, contender.batches[0].inputs.grad])


class Recorder:
    """Does nothing but say that it ran."""

    def __init__(self, name, ran):
        self.name, self.ran = name, ran

    def training_step(self, index):
        return lambda: self.ran.append((self.name, "train", index))

    def evaluation(self, index):
        return lambda: self.ran.append((self.name, "infer", index))


def test_contenders_take_turns_and_the_median_of_the_repeats_counts(monkeypatch):
    ran = []
    # The clock reads how many runs there were before.
    monkeypatch.setattr("tasks.benchmark.measure._clock", lambda run, device: (float(len(ran)), run())[0])
    contenders = {name: Recorder(name, ran) for name in "ab"}
    times = interleave(contenders, 1, repeats=3, device="cpu")
    assert [name for name, kind, _ in ran if kind == "train"] == list("baabbaab")
    assert times == {"a": Times([10.0], [11.0]), "b": Times([8.0], [9.0])}

    ran.clear()
    interleave(contenders, 2, repeats=1, device="cpu")
    assert len(ran) == len(set(ran)) * 2 == 2 * 2 * 2 * 2


def test_the_clock_is_read_after_all_work_of_the_device(monkeypatch):
    happened, seconds = [], iter([5.0, 5.25])
    monkeypatch.setattr("tasks.benchmark.measure.synchronize", lambda device: happened.append(device))
    monkeypatch.setattr("time.perf_counter", lambda: happened.append("clock") or next(seconds))
    assert _clock(lambda: happened.append("run"), "sync") == 250
    assert happened == ["sync", "clock", "run", "sync", "clock"]


def test_the_ratios_of_a_table_are_those_to_the_floor_and_to_the_lstm_and_of_the_released_code():
    times = {"released": 100.0, "ours": 50.0, "floor": 20.0, "floor, bfloat16": 12.5, "nn.LSTM": 40.0}
    figures = contender_figures({name: Times([ms], [ms]) for name, ms in times.items()}, "tokens", 7)
    for table in tables(figures, "tokens").split("evaluation"):
        (row,) = (line.split() for line in table.splitlines() if line.split()[:1] == ["ours"])
        assert "× floor  × bf16 floor  × LSTM  speedup\n" in table
        assert row[3:] == ["2.50", "4.00", "1.25", "2.00"]


def test_the_tables_fit_into_the_terminal(monkeypatch):
    times = {name: Times([1.0], [1.0]) for name in ("released", "ours", "floor", "nn.LSTM")}
    figures = contender_figures(times, "tokens", 7)
    assert max(map(len, tables(figures, "tokens").splitlines())) > 40
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    cut = tables(figures, "tokens")
    assert max(map(len, cut.splitlines())) <= 40
    assert all(cut.count(column) == 2 for column in ("ms", "tokens/s", "× floor", "× LSTM", "speedup"))


def test_the_peak_of_a_training_step_holds_at_least_what_it_must():
    """nn.LSTM keeps its output for the reverse pass."""
    setup = Setup(SIZES._replace(slot_size=64), 0, "cpu")
    batch = pad([[1] * 1000] * 64)
    peak = peak_mib(setup, Entry("nn.LSTM"), batch, threads=1)
    assert peak is not None
    assert peak > 1000 * 64 * 64 * 4 / 2**20


class Called:
    """An argument that calls a function where it arrives, in another process."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def test_ctrl_c_is_not_for_the_process_whose_memory_is_measured():
    """A terminal sends it to every process. This one would print where it was."""
    with pytest.raises(AttributeError, match="NoneType"):  # what the call returns is no setup
        peak_mib(Called(signal.raise_signal, signal.SIGINT), Entry("nn.LSTM"), pad([[1, 1]]), threads=1)


def test_ctrl_c_ends_the_process_whose_memory_is_measured(monkeypatch):
    monkeypatch.setattr(Future, "result", lambda future: signal.raise_signal(signal.SIGINT))
    before = multiprocessing.active_children()
    with pytest.raises(KeyboardInterrupt):
        peak_mib(Called(sleep, 1_000), Entry("nn.LSTM"), pad([[1, 1]]), threads=1)
    assert multiprocessing.active_children() == before


@given(st.integers(1, 400).filter(lambda length: length != 2), st.integers(1, 6), st.integers(0, 99))
def test_nested_expressions_have_the_length_asked_for_and_nest_no_deeper(length, depth, seed):
    words = decode(nested_expression(np.random.default_rng(seed), length, depth))
    assert parse_expression(words).depth <= depth
    assert len(words) == length


@given(st.integers(0, 12), st.integers(0, 99))
def test_random_formulas_are_those_of_the_logic_task(operators, seed):
    formula = decode_formula(random_formula(np.random.default_rng(seed), operators))
    assert parse(formula).operations == operators
    binary = operators - formula.count("not")
    assert len(formula) == 1 + 3 * formula.count("not") + 6 * binary


def test_the_configurations_have_the_sizes_of_the_papers():
    workloads = {name: build_workload(name, batches=2) for name in ("logic", "sst")}
    slots = [(workload.sizes.slot_size, workload.sizes.num_slots) for workload in workloads.values()]
    assert slots == [(200, 12), (300, 15)]
    assert [batch.tokens.shape[1] for batch in workloads["logic"].batches] == [256, 256]
    for workload in workloads.values():
        lengths = [len(batch.tokens) for batch in workload.batches]
        assert lengths == sorted(lengths)


@pytest.mark.parametrize(
    ("count", "expected"), [(2, [{3, 4}, {9, 10}]), (3, [{3, 4}, {7, 8}, {11, 12}]), (1, [{7, 8}])]
)
def test_batches_are_from_the_middle_of_equal_parts_of_an_epoch(count, expected):
    lengths = [7, 1, 13, 4, 10, 2, 12, 5, 9, 3, 11, 6, 8]  # the longest makes a batch of one: it is left out
    chosen = spread_batches(lengths, 2, count, seed=1)
    assert [{lengths[i] for i in batch} for batch in chosen] == expected


def test_expressions_have_at_most_the_maximum_length(monkeypatch):
    drawn = SimpleNamespace(train=generate(800, seed=1))
    monkeypatch.setattr("tasks.benchmark.workloads.standard", lambda seed: drawn)
    workload = build_workload("listops", batches=2, max_length=30)
    assert all(batch.lengths.shape == (128,) for batch in workload.batches)
    assert max(batch.lengths.max() for batch in workload.batches) <= 30


@pytest.mark.slow
def test_the_long_configuration_has_a_thousand_tokens():
    workload = build_workload("long", batches=2)
    assert (workload.sizes.slot_size, workload.sizes.num_slots) == (128, 21)
    (batch,) = workload.batches
    assert batch.lengths.shape == (8,)
    assert batch.lengths.min() > 980
    assert batch.lengths.max() in range(990, 1001)


def test_scaling_writes_a_table_and_plots(tmp_path, capsys):
    options = ["--directory", str(tmp_path / "new" / "scaling"), "--json", str(tmp_path / "speed.json")]
    assert main(["scaling", "--quick", "--no-memory", *options]) == 0
    directory = tmp_path / "new" / "scaling" / "quick"  # where it replaces no real measurement
    assert {path.name for path in directory.iterdir()} == {
        "scaling.csv",
        *(f"scaling_{axis}.png" for axis in "TBND"),
    }
    with (directory / "scaling.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["sweep"] for row in rows if row["recompute_every"] == ""] == list("TTBBNNDD")
    for row in rows:
        steps = int(row["T"]) * int(row["B"])
        assert float(row["train_us_per_token"]) == pytest.approx(float(row["train_ms"]) * 1000 / steps)
    assert "peak MiB" in capsys.readouterr().out
    results = json.loads((tmp_path / "speed.json").read_text())
    assert results.items() >= {"device": "cpu", "threads": 1, "nesting": 5, "quick": True}.items()
    assert [str(row["train_ms"]) for row in results["rows"]] == [row["train_ms"] for row in rows]


def test_each_point_of_a_sweep_has_its_sizes_and_its_times(tmp_path, monkeypatch, capsys):
    timed = []

    def known_times(contenders, batches, **options):
        timed.append(contenders)
        first = 6.0 * len(timed)
        return {name: Times([first + i], [first / 2 + i]) for i, name in enumerate(contenders)}

    monkeypatch.setattr("tasks.benchmark.scaling.interleave", known_times)
    monkeypatch.setattr("tasks.benchmark.scaling.figure_png", lambda figure: b"")
    path = tmp_path / "speed.json"
    options = ["--directory", str(tmp_path), "--json", str(path)]
    assert main(["scaling", "--quick", "--no-memory", *options]) == 0
    rows = json.loads(path.read_text())["rows"]
    printed = re.findall(r"^auto.*", capsys.readouterr().out, re.MULTILINE)
    full = (12, 2, 3, 8)
    points = [(6, 2, 3, 8), full, (12, 1, 3, 8), full, (12, 2, 2, 8), full, (12, 2, 3, 4), full]
    for i, ((T, B, N, D), contenders) in enumerate(zip(points, timed, strict=True)):
        for j, recompute_every in enumerate((None, {6: 3, 12: 4}[T])):  # about √T segments
            name, row = ("auto", "auto, checkpoints")[j], rows[2 * i + j]
            layer, (batch,) = contenders[name].module, contenders[name].batches
            assert batch.lengths.tolist() == [T] * B
            assert batch.inputs.shape == (T, B, D)
            assert (layer.num_slots, layer.slot_size, layer.recompute_every) == (N, D, recompute_every)
            train, infer = 6.0 * (i + 1) + j, 3.0 * (i + 1) + j
            per_token = [1000 * ms / (T * B) for ms in (train, infer)]
            times = (train, infer, *map(pytest.approx, per_token))
            assert tuple(row.values()) == ("TBND"[i // 2], T, B, N, D, name, recompute_every, *times, None)
            cells = [f"{value:,.1f}" for value in (train, infer)] + [f"{value:,.2f}" for value in per_token]
            swept = str((T, B, N, D)[i // 2])
            assert re.split("  +", printed[2 * i + j].strip()) == [name, swept, *cells, "–"]


def test_help_explains_both_subcommands(capsys):
    for words, option in ((["--help"], "--released-code"), (["scaling", "--help"], "--nesting")):
        with pytest.raises(SystemExit) as done:
            main(words)
        assert done.value.code == 0
        assert option in capsys.readouterr().out


def test_scaling_shows_and_saves_what_was_measured_before_ctrl_c(tmp_path, monkeypatch, capsys):
    measured = []

    def interleave_until_ctrl_c(*arguments, **options):
        measured.append(interleave(*arguments, **options))
        if len(measured) == 4:
            raise KeyboardInterrupt
        return measured[-1]

    monkeypatch.setattr("tasks.benchmark.scaling.interleave", interleave_until_ctrl_c)
    options = ["--axes", "T", "B", "D", "--directory", str(tmp_path), "--json", str(tmp_path / "speed.json")]
    assert main(["scaling", "--quick", "--no-memory", *options]) == 130
    rows = json.loads((tmp_path / "speed.json").read_text())["rows"]
    points = [(row["sweep"], row[row["sweep"]]) for row in rows]  # each without and with checkpoints
    assert points == [("T", 6), ("T", 6), ("T", 12), ("T", 12), ("B", 1), ("B", 1)]
    with (tmp_path / "quick" / "scaling.csv").open() as file:
        assert [row["train_ms"] for row in csv.DictReader(file)] == [str(row["train_ms"]) for row in rows]
    assert {path.stem for path in (tmp_path / "quick").glob("*.png")} == {"scaling_T", "scaling_B"}
    _, tokens, sequences = capsys.readouterr().out.split("\n\n")
    assert (tokens.count("\nauto"), sequences.count("\nauto")) == (4, 2)


def test_a_directory_that_cannot_be_written_is_told_before_scaling(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tasks.benchmark.scaling.interleave", lambda *arguments, **options: 1 / 0)
    (tmp_path / "quick").mkdir()
    monkeypatch.setattr("os.access", lambda path, mode: "quick" not in str(path))
    complaint = f"--directory {tmp_path}/quick: no permission to write"
    assert fails(capsys, "scaling", "--quick", "--directory", tmp_path) == complaint


@pytest.mark.parametrize(
    "words",
    [
        ["--no-memory"],
        ["onlstm"],
        ["logic", "--models", "lstm"],
        ["language-model"],
        ["scaling", "--no-memory", "--axes", "D"],
    ],
    ids=lambda words: words[0],
)
def test_results_are_saved_before_they_are_printed(tmp_path, monkeypatch, words):
    """What reads them, such as `head`, may have ended."""
    saved = tmp_path / "speed.json"
    directory = ["--directory", str(tmp_path)] if "scaling" in words else []

    class Output(io.StringIO):
        def write(self, text):
            assert saved.exists() or not re.search("train.* ms", text)
            return super().write(text)

    monkeypatch.setattr(sys, "stdout", Output())
    assert main([*words, "--quick", "--json", str(saved), *directory]) == 0
    assert re.search("train.* ms", sys.stdout.getvalue())
