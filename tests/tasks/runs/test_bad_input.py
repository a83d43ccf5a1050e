"""Bad options, configurations and checkpoints are one line and status 2, and leave nothing behind."""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from tasks.language_model.__main__ import main as language_model
from tasks.listops.__main__ import main as listops
from tasks.listops.config import PRESETS
from tasks.listops.config import presets_of as listops_presets
from tasks.listops.task import LISTOPS
from tasks.logic.config import presets_of as logic_presets
from tasks.runs.checkpoints import read_metadata
from tasks.runs.command_line import parse
from tasks.runs.errors import UserError
from tasks.runs.run_directory import RunDirectory
from tasks.runs.saved_config import check_types, config_from_dict, config_to_dict
from tasks.sst.config import presets_of as sentiment_presets
from tests import commands

TINY = [*commands.TINY["listops"].split(), "--batch-size", "64"]


def message(capsys):
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return error


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--adam-betas", "2", "3"], "--adam-betas must lie in [0, 1), got (2.0, 3.0)"),
        (["--adam-betas", "0.5", "nan"], "--adam-betas must lie in [0, 1)"),
        (["--learning-rate-decay", "5"], "--learning-rate-decay must lie in [0, 1), got 5.0"),
        (["--learning-rate", "inf"], "--learning-rate must be finite, got inf"),
        (["--learning-rate", "nan"], "--learning-rate must be positive, got nan"),
        (
            ["--max-train-length", "1", "--validation-size", "260"],
            "the options leave no training expressions",
        ),
        (["--seed", "99999999999999999999"], "--seed must be at most 9223372036854775807"),
        (["--seed", "9223372036854775807", "--epochs", "0"], "--epochs must be at least 1, got 0"),
        (["--num-slots", "99999999999"], "memory"),
        (["--slot-size", "99999999999"], "memory"),
        (["--embedding-size", "9999999999999999"], "memory"),
        (["--num-slots", "9" * 30], "--num-slots must be at most 9223372036854775807"),
        (["--devices", "1000000"], "--devices must be at most"),
        (["--recompute-every", "0"], "--recompute-every must be at least 1, got 0"),
        (["--occupancy-threshold", "2"], "--occupancy-threshold must lie in [0, 1], got 2.0"),
        (["--validation-size", "500"], "--validation-size must be at least 0 and below 270, got 500"),
        (["--threads", "0"], "--threads must be at least 1, got 0"),
        (["--threads", "1000000"], "--threads must be at most"),
        (["--run-dir", "run\udcff"], "--run-dir: expected Unicode text, got '\\udcff' as character 4"),
    ],
)
def test_bad_options(tmp_path, capsys, words, expected):
    assert listops(["train", "--run-dir", str(tmp_path / "run"), *TINY, *words]) == 2
    assert expected in message(capsys)
    assert not (tmp_path / "run" / "last.safetensors").exists()
    RunDirectory(tmp_path / "run").check_free()


def test_after_bad_options_the_directory_can_be_trained_in(tmp_path, capsys):
    assert listops(["train", "--run-dir", str(tmp_path / "run"), *TINY, "--slot-size", "99999999999"]) == 2
    assert listops(["train", "--run-dir", str(tmp_path / "run"), *TINY]) == 0


@pytest.mark.parametrize("words", [["--occupancy-threshold", "2"], ["--expressions", "0"]])
def test_options_are_checked_before_data_are_loaded(tmp_path, capsys, monkeypatch, words):
    monkeypatch.setattr("tasks.listops.data.load", None)
    assert listops(["train", "--run-dir", str(tmp_path / "run"), *TINY, *words]) == 2
    assert words[0] in message(capsys)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "run"
    assert listops(["train", "--run-dir", str(directory), *TINY]) == 0
    return directory


@pytest.fixture
def run(finished, tmp_path):
    for name in ("config.json", "last.safetensors", "best.safetensors", "metrics.jsonl"):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xff\xfe\x00", "config.json, line 1: not UTF-8 text"),
        (b"[1]", "config.json: expected a JSON object, got [1]"),
        (b"{", "config.json, line 1: not JSON"),
        (b"[" * 100_000, "config.json: not JSON that can be read"),
        ({"nothing": 1}, "config.json: unknown option 'nothing': from another task or a newer version"),
        ({"model": "rnn"}, "config.json: --model must be one of ordered-memory, lstm, onlstm"),
        ({"model": "rnn:RNN"}, "config.json: --model rnn:RNN: Python finds no module rnn"),
        ({"precision": "8"}, "config.json: precision: expected '32-true' or"),
        ({"batch_size": "64"}, "config.json: batch_size: expected int, got '64'"),
        ({"batch_size": 64.0}, "config.json: batch_size: expected int, got 64.0"),
        ({"batch_size": True}, "config.json: batch_size: expected int, got True"),
        ({"batch_size": None}, "config.json: batch_size: expected int, got None"),
        ({"learning_rate": "fast"}, "config.json: learning_rate: expected float, got 'fast'"),
        ({"max_minutes": []}, "config.json: max_minutes: expected float | None, got []"),
        ({"adam_betas": [0.9]}, "config.json: adam_betas: expected tuple[float, float], got [0.9]"),
        ({"resume": 1}, "config.json: resume: expected bool, got 1"),
        ({"data_dir": 3}, "config.json: data_dir: expected pathlib"),
    ],
)
def test_bad_configurations(run, capsys, content, expected):
    if isinstance(content, dict):
        content = json.dumps(json.loads((run / "config.json").read_text()) | content).encode()
    (run / "config.json").write_bytes(content)
    assert listops(["train", "--run-dir", str(run), "--resume"]) == 2
    assert expected in message(capsys)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"slot_size": "6"}, "best.safetensors: slot_size: expected int, got '6'"),
        ({"slot_size": 0}, "best.safetensors: --slot-size must be at least 1, got 0"),
        ({"slot_size": 8}, "best.safetensors: the checkpoint does not fit the model"),
        ({"cell": "lstm"}, "best.safetensors: cell: expected 'gated' or 'tree-rnn', got 'lstm'"),
        ({"other": 0}, "best.safetensors: unknown option 'other'"),
    ],
)
def test_bad_metadata(run, capsys, changes, expected):
    path = run / "best.safetensors"
    save_file(load_file(path), path, {"json": json.dumps(read_metadata(path) | changes)})
    assert listops(["evaluate", "--checkpoint", str(path)]) == 2
    assert expected in message(capsys)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite(run, capsys, value):
    path = run / "best.safetensors"
    weights, metadata = load_file(path), read_metadata(path)
    weights["output.bias"][0] = value
    save_file(weights, path, {"json": json.dumps(metadata)})
    assert listops(["evaluate", "--checkpoint", str(path)]) == 2
    assert "best.safetensors: output.bias has values that are not finite" in message(capsys)


def test_weights_in_place_of_a_state_and_the_reverse(run, capsys):
    assert listops(["evaluate", "--checkpoint", str(run / "last.safetensors")]) == 2
    assert "its trained weights are in best.safetensors" in message(capsys)
    (run / "last.safetensors").write_bytes((run / "best.safetensors").read_bytes())
    assert listops(["train", "--run-dir", str(run), "--resume"]) == 2
    assert "last.safetensors: not the training state of a run, which --resume needs" in message(capsys)


@pytest.mark.parametrize(
    "key", ["progress", "random_states", "optimizer", "optimization", "batches", "task", "digests"]
)
def test_a_state_without_one_of_its_parts_or_with_another(run, capsys, key):
    path = run / "last.safetensors"
    # Copies, as the file in which the tensors may lie is written again.
    tensors, header = {name: tensor.clone() for name, tensor in load_file(path).items()}, read_header(path)
    kept = [pair for pair in header["dict"] if pair[0] != key]
    for pairs in (kept, [*kept, [key, "text"]], [*kept, [key, {"tensor": "nowhere"}]]):
        save_file(tensors, path, {"json": json.dumps({"dict": pairs})})
        assert listops(["train", "--run-dir", str(run), "--resume"]) == 2
        assert "last.safetensors: not a checkpoint" in message(capsys) or key == "progress"


def read_header(path):
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["json"])


def test_a_missing_checkpoint_names_the_command_that_makes_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert language_model(["evaluate"]) == 2
    directory = "runs/language_model/demo-onlstm-1"
    error = message(capsys)
    assert f"{directory}/best.safetensors: no such checkpoint; python -m tasks.language_model train" in error
    assert f"--preset demo --run-dir {directory} --resume creates it" in error
    for run in (
        "language_model/small-lstm-1",
        "language_model/small-onlstm-2",
        "logic/paper-C-ordered-memory-1",
    ):
        assert language_model(["evaluate", "--checkpoint", f"runs/{run}/best.safetensors"]) == 2
        error = message(capsys)
        assert "no such checkpoint" in error
        assert "creates it" not in error, "--preset alone would create another model"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (None, "not a checkpoint of a language model"),
        (["<eos>", 3], "not a checkpoint of a language model"),
        ("text", "not a checkpoint of a language model"),
        ({"a": 1}, "not a checkpoint of a language model"),
        (["a", "b"], "its vocabulary must begin with <eos> and have no duplicates"),
        (["<eos>", "a", "a"], "its vocabulary must begin with <eos> and have no duplicates"),
    ],
)
def test_vocabularies(small_runs, tmp_path, capsys, words, expected):
    source, path = Path(small_runs["language_model"]), tmp_path / "best.safetensors"
    save_file(load_file(source), path, {"json": json.dumps(read_metadata(source) | {"vocabulary": words})})
    assert language_model(["evaluate", "--checkpoint", str(path)]) == 2
    assert f"best.safetensors: {expected}" in message(capsys)


INTERRUPTED_IMPORT = """
import importlib.abc, os, runpy, signal, sys
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *rest):
        if name == "torch":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
sys.argv = ["-m"]  # as `python -m` has it while it looks for the module
runpy.run_module("tasks.listops", run_name="__main__")
"""


def test_ctrl_c_while_modules_are_imported_is_silent():
    root = str(Path(__file__).parents[3])
    result = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT],
        cwd=root,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (-signal.SIGINT, b"")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "lsmt"}, "--model must be one of ordered-memory, lstm, .*, got 'lsmt'"),
        ({"epochs": 1.5}, "--epochs must be int, got 1.5"),
        ({"epochs": "2"}, "--epochs must be int, got '2'"),
        ({"learning_rate": np.float32(0.001)}, "--learning-rate must be float, got"),
        ({"run_dir": "run"}, "--run-dir must be .*, got 'run'"),
        ({"adam_betas": [0.9, 0.99]}, "--adam-betas must be .*, got"),
        ({"epochs": None}, "--epochs must be int, got None"),
        ({"bidirectional": 1}, "--bidirectional must be bool, got 1"),
        ({"bidirectional": np.nan}, "--bidirectional must be bool, got nan"),  # missing in a table
        ({"data_dir": np.nan}, "--data-dir must be .*, got nan"),
        ({"learning_rate": np.nan}, "--learning-rate must be .*nan"),
        ({"adam_betas": np.array([0.9, 0.99])}, "--adam-betas must be .*, got array"),
    ],
)
@pytest.mark.parametrize("seeds", [1, 2])
def test_options_of_another_type_from_python(changes, message, seeds):
    with pytest.raises(UserError, match=message):
        LISTOPS.train(replace(PRESETS["demo"], seeds=seeds, **changes))


def test_presets_have_the_declared_types():
    for presets in (listops_presets, logic_presets, sentiment_presets):
        for model in (None, "onlstm", "crvnn"):
            for config in presets(model).values():
                check_types(config)


@dataclasses.dataclass
class Files:
    """Options."""

    files: tuple[Path, ...] = ()
    """Files."""
    names: list[str] = dataclasses.field(default_factory=list)
    """Names."""


def test_options_may_be_lists_and_files():
    config = parse(Files, ["--names", "a", "b"], "program", Files((Path("x"),)))
    assert config == Files((Path("x"),), ["a", "b"])
    assert config_from_dict(Files, config_to_dict(config), Path("config.json")) == config
    check_types(config)


READS_PATH = """
from pathlib import Path
from tasks.runs.config import RunConfig
from tasks.runs.saved_config import config_from_dict
assert config_from_dict(RunConfig, {"run_dir": "l\\xe4uf"}, Path("config.json")).run_dir == Path("l\\xe4uf")
"""


def test_a_run_whose_directory_has_a_name_that_this_locale_lacks_is_read():
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-X", "utf8=0", "-c", READS_PATH]
    result = subprocess.run(command, env={**os.environ, **ascii_only}, capture_output=True, check=False)
    assert result.returncode == 0, result.stderr.decode()


def test_a_damaged_history_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1, "fraction": 1}\n{"epo')
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 2: not JSON"):
        RunDirectory(tmp_path).read_metrics()
    for rows in ([], [{"epoch": 1, "fraction": 1.0, "best": False}]):
        RunDirectory(tmp_path).write_metrics(rows)
        with pytest.raises(UserError, match=f"^{tmp_path}/metrics.jsonl: marks no epoch as the best one$"):
            RunDirectory(tmp_path).read_history()
    (tmp_path / "results.json").write_text('{"a": 1')
    assert RunDirectory(tmp_path).results_text(str) is None
