"""The logic task from the command line."""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from tasks.classifiers.comparison import FinishedRun
from tasks.classifiers.config import ModelName
from tasks.logic.__main__ import main
from tasks.logic.comparison import comparison_table
from tasks.logic.config import LogicConfig, presets_of
from tasks.logic.data import (
    MAX_OPERATIONS,
    OFFICIAL_SIZES,
    PATTERNS,
    file_names,
    make_pair,
    matches,
    read_directory,
    write_directory,
)
from tasks.logic.formulas import RELATION_NAMES, RELATIONS
from tasks.logic.generator import generate
from tasks.logic.task import LEFT_OUT, load_pairs
from tasks.runs.run_directory import RunDirectory
from tests import commands
from tests.tasks.reporting.pages import Page, embedded

ROOT = Path(__file__).parents[3]
TINY = commands.TINY["logic"].split()


def train(directory, *options):
    return main(["train", "--run-dir", str(directory), *TINY, *options])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("logic") / "run"
    assert train(directory, "--split", "C") == 0
    return directory


@pytest.mark.parametrize("model", [name for name in get_args(ModelName) if name != "ordered-memory"])
def test_every_model_trains_and_reports(model, tmp_path, capsys):
    assert train(tmp_path / "run", "--model", model) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    has_trees = model in ("crvnn", "gumbel-tree-lstm", "onlstm")
    assert bool(results["span_f1"]) == bool(results["valid_trees"]) == has_trees
    assert "<h1>Logic: " + model in (tmp_path / "run" / "report.html").read_text()
    assert "true class (rows)" in capsys.readouterr().out


def test_a_run_leaves_everything_and_resumes_to_the_same(run, tmp_path, capsys):
    results = json.loads((run / "results.json").read_text())
    left_out = "operations, pairs left out by C"
    assert set(results["accuracy_by"][left_out]) <= {"0–6", "7–12", "0–12"}
    assert len(results["span_f1"]) == 2
    assert all(list(scores) == list(results["valid_trees"]) for scores in results["span_f1"].values())
    assert '<th scope="col">valid trees</th>' in (run / "report.html").read_text()
    again = tmp_path / "run"
    assert train(again, "--split", "C") == 0
    assert json.loads((again / "results.json").read_text()) == results
    assert main(["train", "--run-dir", str(again), "--resume"]) == 0
    assert json.loads((again / "results.json").read_text()) == results
    assert train(again) == 2
    assert "already holds a run" in capsys.readouterr().err


def test_evaluate(run, tmp_path, capsys):
    checkpoint = ["--checkpoint", str(run / "best.safetensors")]
    target = tmp_path / "results.json"
    assert main(["evaluate", *checkpoint, "--json", str(target)]) == 0
    results = json.loads((run / "results.json").read_text())
    del results["data"]  # an evaluation does not know all data of the run
    assert json.loads(target.read_text()) == results
    assert main(["evaluate", *checkpoint, "--test", "longer", "--size", "2", "--json", str(target)]) == 0
    found = json.loads(target.read_text())["accuracy_by"]["operations"]
    assert {number: count for number, (_, count) in found.items()} == {str(n): 2 for n in range(13, 21)}
    path = tmp_path / "pairs"
    path.write_text("<\ta\t( a ( or b ) )\n")
    assert main(["evaluate", *checkpoint, "--file", str(path)]) == 0
    found = capsys.readouterr().out
    assert "on 1 pairs" in found
    assert found.rpartition("valid trees")[2].count("1.0000") == 5  # both trees over `a or b` are
    path.write_text("#\ta\tb\n")  # of one word, so that no tree is scored
    assert main(["evaluate", *checkpoint, "--file", str(path)]) == 0
    assert "span F1" not in capsys.readouterr().out
    assert main(["evaluate", *checkpoint, "--size", "0"]) == 2
    assert "--size must be at least 1, got 0" in capsys.readouterr().err


def test_predict(run, tmp_path, capsys):
    checkpoint = ["--checkpoint", str(run / "best.safetensors")]
    heat_map = tmp_path / "map.png"
    words = ["( a ( or b ) )", "( not ( c ) )", *checkpoint, "--heat-map", str(heat_map)]
    assert main(["predict", *words]) == 0
    out = capsys.readouterr().out
    relations = re.findall(r"^  (\S) ([a-z ]+?) +(0\.\d{4})$", out, re.MULTILINE)
    assert {(sign, name) for sign, name, _ in relations} == set(RELATION_NAMES.items())
    shares = [float(share) for *_, share in relations]
    assert shares == sorted(shares, reverse=True)
    assert out.count("the tree of the") == 2
    assert "None" not in out
    assert heat_map.exists()
    assert (tmp_path / "map-right.png").exists()
    assert main(["predict", "( a ( or b )", "c", *checkpoint]) == 2
    assert "error: left formula: 1 unmatched ( at the end" in capsys.readouterr().err
    assert main(["predict", "c", "( a ( or x ) )", *checkpoint]) == 2
    assert "error: right formula: unknown word 'x' at token 5" in capsys.readouterr().err


def test_predict_shows_the_true_tree_where_it_differs(run, capsys):
    words = ["( ( a ( or b ) ) ( and c ) )", "c", "--checkpoint", str(run / "best.safetensors")]
    assert main(["predict", *words]) == 0
    out = capsys.readouterr().out
    assert "the tree of the right formula is the true one" in out
    assert out.count("which is") == out.count("left formula is not the true one")


def test_a_formula_of_any_depth_is_answered(run, capsys):
    deep = "( not " * 2000 + "a" + " )" * 2000
    assert main(["predict", deep, "b", "--checkpoint", str(run / "best.safetensors")]) == 0
    assert "not drawn, since it has more than 60" in capsys.readouterr().out


def test_a_file_without_pairs_is_one_line(tmp_path, capsys):
    path = tmp_path / "empty"
    path.write_text("")
    assert main(["evaluate", "--file", str(path)]) == 2
    assert capsys.readouterr().err == f"python -m tasks.logic: error: {path}: the file is empty\n"


def test_files_without_test_pairs_cannot_be_evaluated(run, tmp_path, capsys):
    for name in file_names():
        (tmp_path / name).write_text("")
    words = ["--checkpoint", str(run / "best.safetensors"), "--data-dir", str(tmp_path)]
    assert main(["evaluate", *words]) == 2
    assert f"{tmp_path}: no pairs to evaluate on" in capsys.readouterr().err


def test_a_damaged_run_is_not_compared(run, tmp_path, capsys):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "results.json").write_text("{}")
    assert main(["report", str(tmp_path / "run"), "--output", str(tmp_path / "page.html")]) == 2
    assert "results.json: not the results of a run of this task" in capsys.readouterr().err


def test_stats_of_no_test_pairs(tmp_path, capsys):
    train, tests = generate(300, seed=1)
    write_directory(tmp_path, train, [[] for _ in tests])
    assert main(["stats", "--data-dir", str(tmp_path), "--split", "C"]) == 0
    assert "every pair" not in capsys.readouterr().out


def test_stats_counts_and_checks(tmp_path, capsys):
    assert main(["stats", "--generated", "600", "--split", "B"]) == 0
    out = capsys.readouterr().out
    assert "split B:" in out
    tests = load_pairs(LogicConfig(split="B", generated=600, seed=1)).tests
    left_out = [pair.label for group in tests for pair in group if matches(pair, PATTERNS["B"])]
    answer = Counter(pair.label for group in tests for pair in group).most_common(1)[0][0]
    assert f"0–12  {left_out.count(answer) / len(left_out):.4f}" in re.sub(" +", "  ", out)
    assert "The official data have 87,948 pairs with at most 6 operations." in out


def test_stats_of_official_size_do_not_compare_it(tmp_path, monkeypatch, capsys):
    write_directory(tmp_path, *generate(300, seed=1))
    size = sum(map(len, generate(300, seed=1)[0][:7]))
    for official, compared in ((size, False), (size + 1, True)):
        monkeypatch.setitem(OFFICIAL_SIZES, "full", official)
        assert main(["stats", "--data-dir", str(tmp_path)]) == 0
        assert (f"The official data have {official}" in capsys.readouterr().out) == compared


def test_generated_files_differ_from_a_run_of_their_seed_and_replace_those_before(tmp_path, capsys):
    directory = tmp_path / "new" / "data"
    for seed in ("0", "1"):
        assert main(["generate", str(directory), "--size", "300", "--seed", seed]) == 0
    train, tests = generate(300, seed=1, stream="files")
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"{directory}: {sum(map(len, train))} training and {sum(map(len, tests))} test pairs"
    )
    assert read_directory(directory) == (train[:7], tests)
    assert (train, tests) != generate(300, seed=1)
    assert main(["generate", str(tmp_path / "one"), "--size", "1"]) == 0


def test_stats_by_hand(tmp_path, capsys):
    """Of ten training pairs of variables the last is for validation; split C leaves the eleventh out."""
    variables, left_out = make_pair("a", "b"), make_pair("( a ( and ( not b ) ) )", "a")
    train, tests = ([[] for _ in range(MAX_OPERATIONS + 1)] for _ in range(2))
    train[0], train[2] = [*[variables] * 9, make_pair("a", "a")], [left_out]
    tests[0], tests[2] = [variables], [left_out] * 2
    write_directory(tmp_path, train, tests)
    assert main(["stats", "--data-dir", str(tmp_path), "--split", "C"]) == 0
    out = capsys.readouterr().out
    assert [line.split() for line in out.splitlines() if "kept" in line] == [
        ["operations", "kept", "test", "test,", "left", "out"],
        ["relation", "kept", "test"],
    ]
    assert "split C: 10 pairs with at most 6 operations, 9 for training and 1 for validation\n" in out
    rows = {
        cells[0]: cells[1:]
        for line in out.partition("Test accuracy")[0].splitlines()
        if (cells := line.split())
    }
    kept, of_test, of_test_left_out = zip(*(map(int, rows[str(n)]) for n in range(13)), strict=True)
    assert kept == (10, *[0] * 12)
    assert of_test == (1, 0, 2, *[0] * 10)
    assert of_test_left_out == (0, 0, 2, *[0] * 10)
    counts = {sign: tuple(rows[sign][-2:]) for sign in RELATIONS}
    assert counts == dict.fromkeys(RELATIONS, ("0", "0")) | {
        "#": ("9", "1"),
        "=": ("1", "0"),
        "<": ("0", "2"),
    }
    assert "Test accuracy of answering < (forward entailment) to every pair:" in out


def test_a_file_where_a_directory_is_written_is_named_before_pairs_are_generated(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("tasks.logic.commands.generate", None)
    (tmp_path / "file").touch()
    assert main(["generate", str(tmp_path / "file")]) == 2
    assert f"{tmp_path}/file: File exists" in capsys.readouterr().err


def test_files_can_be_trained_on(tmp_path):
    write_directory(tmp_path / "data", *generate(600, seed=1))
    # The data given are used, although --generated or a preset would draw some.
    options = ["--data-dir", str(tmp_path / "data"), "--model", "lstm"]
    assert train(tmp_path / "run", *options) == 0
    tiny = [word for word in TINY if word not in ("--generated", "600")]
    demo = ["--preset", "demo", "--run-dir", str(tmp_path / "demo"), *options, *tiny]
    assert main(["train", *demo]) == 0
    results = json.loads((tmp_path / "demo" / "results.json").read_text())
    assert results["examples"] == json.loads((tmp_path / "run" / "results.json").read_text())["examples"]
    # The seed of the generator is that of the run, so the same pairs are drawn.
    assert train(tmp_path / "other", "--model", "lstm") == 0
    assert (tmp_path / "run" / "results.json").read_text() == (
        tmp_path / "other" / "results.json"
    ).read_text()


def test_seeds_give_mean_and_deviation_and_report_puts_runs_side_by_side(tmp_path, capsys):
    assert train(tmp_path / "runs", "--seeds", "2") == 0
    out = capsys.readouterr().out
    assert "2 seeds: mean ± sample standard deviation (test results of each)" in out
    assert "F1, corpus level" in out
    assert train(tmp_path / "runs", "--seeds", "2", "--resume") == 0
    assert capsys.readouterr().out == out[out.index("2 seeds") :]
    runs = [str(tmp_path / "runs" / f"seed-{seed}") for seed in (1, 2)]
    page = tmp_path / "report.html"
    assert main(["report", *runs, "--output", str(page)]) == 0
    assert "Ordered Memory, published" in capsys.readouterr().out
    captions = [trace["caption"] for trace in embedded(page.read_text())]
    names = ("ordered-memory --seed 1", "ordered-memory --seed 2")
    assert captions == 2 * [name for name in names for side in range(2)]
    assert "ordered-memory --seed 2Command: " in Page(page.read_text()).words
    same_name = tmp_path / "again" / "seed-2"
    shutil.copytree(runs[1], same_name)
    (same_name / "record.json").unlink()
    assert main(["report", *runs, str(same_name), runs[0], "--output", str(page)]) == 0
    assert page.read_text().count("<dt>ordered-memory") == 2
    title = f"True class (rows) and predicted class (columns): ordered-memory --seed 2, {same_name.name}"
    assert f"<h3>{title}</h3>" in re.sub('<span class="option">(.*?)</span>', r"\1", page.read_text())
    few = tmp_path / "few"
    assert train(few, "--generated", "40") == 0
    capsys.readouterr()
    for order in ([runs[0], str(few)], [str(few), runs[0]]):
        assert main(["report", *order, "--output", str(page)]) == 0
        header, *rows = capsys.readouterr().out.splitlines()
        scores = ["F1, corpus level", "F1, sentence level"]
        assert re.split("  +", header) == ["model", "validation", "7", "8", "9", "10", "11", "12", *scores]
        assert "The models were tested on different pairs." in " ".join(rows)
        assert "The models were tested on different pairs." in page.read_text()
    assert main(["report", runs[0], "--output", str(page)]) == 0
    assert "different pairs" not in page.read_text()
    assert main(["report", str(tmp_path)]) == 2
    assert "holds no finished run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--split", "full", "--num-slots", "0"], "--num-slots must be at least 1, got 0"),
        (["--input-dropout", "1.5"], "--input-dropout must lie in [0, 1], got 1.5"),
        (["--model", "transformer", "--heads", "3"], "--slot-size must be even and a multiple of --heads"),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--generated", "5"], "the options leave no validation pairs"),
        (["--generated", "-1"], "--generated must not be negative, got -1"),
    ],
)
def test_bad_options_are_told_in_one_line(options, message, tmp_path, capsys):
    assert train(tmp_path / "run", *options) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_each_paper_has_its_preset():
    ours, theirs = presets_of(None)["paper"], presets_of("onlstm")["paper"]
    assert (ours.slot_size, ours.embedding_size) == (200, 200)
    assert (theirs.slot_size, theirs.embedding_size, theirs.input_dropout) == (400, 128, 0.2)
    assert (ours.adam_betas, theirs.adam_betas) == ((0.0, 0.999), (0.9, 0.999))
    crvnn = presets_of("crvnn")["paper"]
    assert (crvnn.slot_size, crvnn.cell_dropout, crvnn.adam_betas) == (200, 0.1, (0.9, 0.999))
    assert (ours.optimizer, theirs.optimizer, crvnn.optimizer) == ("adam", "adam", "radam")
    curriculum = presets_of("onlstm")["curriculum"]
    assert (curriculum.slot_size, curriculum.adam_betas) == (400, (0.9, 0.999))
    assert (curriculum.curriculum_epochs, curriculum.curriculum_length) == (5, 17)
    assert (curriculum.average_decay, curriculum.restore_best) == (0.998, True)
    for model in get_args(ModelName):
        for preset in presets_of(model).values():
            replace(preset, model=model).check()


def test_a_reader_that_has_seen_enough_is_no_error():
    command = [sys.executable, "-m", "tasks.logic", "stats", "--generated", "100"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_published_numbers_of_a_split_stand_beside_pairs_of_7_to_12_operations():
    groups = {"operations": {"7": [0.9, 5]}, LEFT_OUT.format("C"): {"0–6": [0.8, 4], "7–12": [0.7, 5]}}
    results = {"accuracy_by": groups, "span_f1": {}}
    run = FinishedRun(RunDirectory(Path("lstm")), LogicConfig(split="C"), results)
    table = comparison_table({"lstm": run})
    assert table.columns == ["model", "7", "left out, 0–6", "left out, 7–12"]
    assert table.rows == [["lstm", 0.9, 0.8, 0.7], ["Ordered Memory, published", None, None, 0.81]]
