"""`python -m tasks.benchmark`: configurations, options, checkpoints."""

import io
import json
import re
import sys

import numpy as np
import pytest
import torch

from tasks.benchmark.__main__ import main
from tasks.benchmark.contenders import Setup, balanced_recompute_every, build_batches, build_layer
from tasks.benchmark.workloads import Sizes, build_single
from tasks.listops.config import ListOpsConfig
from tasks.listops.model import ListOpsModel
from tasks.logic.formulas import decode as decode_formula
from tasks.logic.formulas import parse
from tasks.runs.checkpoints import save_tensors
from tasks.runs.saved_config import config_to_dict
from tests.tasks.benchmark.tiny import fails, some_batches


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


def test_help_explains_both_subcommands(capsys):
    for words, option in ((["--help"], "--released-code"), (["scaling", "--help"], "--nesting")):
        with pytest.raises(SystemExit) as done:
            main(words)
        assert done.value.code == 0
        assert option in capsys.readouterr().out


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
