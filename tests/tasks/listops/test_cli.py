"""The command line of tasks.listops: subcommands, and every kind of bad input as one line with status 2."""

import json
import re
import shutil
from functools import partial

import pooch
import pytest

from tasks.listops import download
from tasks.listops.__main__ import main
from tasks.listops.commands import TestName
from tasks.listops.data import Dataset, read_tsv, write_tsv
from tasks.listops.expressions import parse
from tasks.listops.generator import HARD_TESTS, generate
from tasks.listops.model import ListOpsModel
from tests import commands
from tests.served import served
from tests.tasks.reporting.pages import Page, embedded

fails = partial(commands.refusal, main)

TINY = commands.TINY["listops"].split()
SIZES = TINY[TINY.index("--validation-size") :]  # for data of files


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "om"
    assert main(["--run-dir", str(directory), *TINY]) == 0
    return directory


def test_a_run_directory_holds_everything(run):
    names = {path.name for path in run.iterdir()}
    assert names == {
        *("config.json", "record.json", "metrics.jsonl", "tensorboard", "last.safetensors"),
        *("best.safetensors", "results.json", "report.html", ".lock"),
    }
    assert json.loads((run / "config.json").read_text())["slot_size"] == 6


def test_the_report_of_a_run_has_examples_of_the_test_data(run):
    text = (run / "report.html").read_text()
    page = Page(text)
    assert page.open == page.external == []
    traces = embedded(text)
    assert len(traces) == 4
    for trace in traces:
        assert trace["memory"]["num_slots"] == 3
        assert trace["answer"]["true"] == parse(trace["tokens"]).value


def test_an_lstm_trains_by_the_same_command_and_has_no_trees(tmp_path, capsys):
    assert main(["--run-dir", str(tmp_path / "lstm"), *TINY, "--model", "lstm"]) == 0
    assert "span F1" not in capsys.readouterr().out
    traces = embedded((tmp_path / "lstm" / "report.html").read_text())
    assert len(traces) == 4
    assert not any({"memory", "nodes"} & trace.keys() for trace in traces)
    checkpoint = str(tmp_path / "lstm" / "best.safetensors")
    assert main(["predict", "[MAX 2 9 ]", "--checkpoint", checkpoint]) == 0
    assert "induces no trees" in capsys.readouterr().out
    heat_map = str(tmp_path / "map.png")
    error = fails(capsys, "predict", "[MAX 2 9 ]", "--checkpoint", checkpoint, "--heat-map", heat_map)
    assert error == "--heat-map draws attention over slots, and lstm has none"


def test_the_trees_of_a_gumbel_tree_lstm_are_scored_and_drawn(tmp_path, capsys):
    assert main(["--run-dir", str(tmp_path / "run"), *TINY, "--model", "gumbel-tree-lstm"]) == 0
    assert "span F1" in capsys.readouterr().out
    traces = embedded((tmp_path / "run" / "report.html").read_text())
    assert len(traces) == 4
    assert all(len(trace["nodes"]) == len(trace["tokens"]) - 1 for trace in traces)
    checkpoint = str(tmp_path / "run" / "best.safetensors")
    assert main(["predict", "[MAX 2 9 ]", "--checkpoint", checkpoint]) == 0
    assert "the tree is" in capsys.readouterr().out


def test_a_model_that_is_given_trees_trains_and_answers_on_any_data(tmp_path, capsys):
    assert main(["--run-dir", str(tmp_path / "run"), *TINY, "--model", "gold-tree-cell"]) == 0
    checkpoint = ["--checkpoint", str(tmp_path / "run" / "best.safetensors")]
    assert main(["predict", "[MAX 2 9 ]", *checkpoint]) == 0
    assert main(["evaluate", "--test", "200-300", "--size", "3", *checkpoint]) == 0
    write_tsv(tmp_path / "file.tsv", Dataset.from_texts(["[MAX 2 9 ]", "3"]))
    lines = (tmp_path / "file.tsv").read_bytes().replace(b"\n", b"\r\n")
    (tmp_path / "file.tsv").write_bytes(b"\xef\xbb\xbf" + lines + b"\r\n\r\n")  # as some editors save it
    assert main(["evaluate", "--file", str(tmp_path / "file.tsv"), *checkpoint]) == 0
    assert "on 2 expressions" in capsys.readouterr().out


def test_evaluating_the_run_again_gives_its_results(run, tmp_path, capsys):
    options = ["--checkpoint", str(run / "best.safetensors"), "--json", str(tmp_path / "again.json")]
    assert main(["evaluate", *options, "--batch-size", "7"]) == 0
    results = json.loads((run / "results.json").read_text())
    del results["data"]  # an evaluation does not know all data of the run
    assert json.loads((tmp_path / "again.json").read_text()) == results
    assert "right-branching" in capsys.readouterr().out


def test_evaluating_a_harder_test_with_more_slots(run, tmp_path, capsys):
    checkpoint, path = run / "best.safetensors", tmp_path / "predictions.jsonl"
    options = ["--test", "200-300", "--size", "5", "--num-slots", "6", "--predictions", str(path)]
    assert main(["evaluate", "--checkpoint", str(checkpoint), *options]) == 0
    assert "on 5 expressions" in capsys.readouterr().out
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    model = ListOpsModel.from_pretrained(checkpoint)
    with_three = model.answers([row["texts"] for row in rows])
    model.set_num_slots(6)
    with_six = model.answers([row["texts"] for row in rows])
    for row, answer, other in zip(rows, with_six, with_three, strict=True):
        assert row["probabilities"] == pytest.approx(answer.probabilities, abs=1e-5)
        assert row["probabilities"] != pytest.approx(other.probabilities, abs=1e-5)


def test_accuracy_by_operator_and_number_of_arguments_is_one_table(run, tmp_path, capsys):
    target = tmp_path / "operators.json"
    options = ["--test", "operators", "--size", "700", "--json", str(target)]
    assert main(["evaluate", "--checkpoint", str(run / "best.safetensors"), *options]) == 0
    cells = json.loads(target.read_text())["accuracy_by"]["arguments × operator, flat expressions"]
    assert sum(count for _, count in cells.values()) == 700
    text = capsys.readouterr().out.split("flat expressions")[1].split("\n\n")[0].splitlines()
    assert text[0].split() == ["MIN", "MAX", "MED", "SM", "count"]
    assert [line.split() for line in text[1:]] == [
        [
            str(number),
            *(f"{cells[f'{number} × {operator}'][0]:.4f}" for operator in text[0].split()[:-1]),
            str(sum(cells[f"{number} × {operator}"][1] for operator in text[0].split()[:-1])),
        ]
        for number in range(2, 16)
    ]


def test_the_test_file_alone_is_enough_to_evaluate(run, tmp_path, capsys):
    write_tsv(tmp_path / "test_d20s.tsv", Dataset.from_texts(["[MAX 2 9 ]", "3"]))
    checkpoint = ["--checkpoint", str(run / "best.safetensors")]
    assert main(["evaluate", *checkpoint, "--data-dir", str(tmp_path)]) == 0
    assert "on 2 expressions" in capsys.readouterr().out


def test_output_files_must_differ_from_each_other_and_from_the_input(run, tmp_path, capsys):
    path = tmp_path / "file.tsv"
    write_tsv(path, Dataset.from_texts(["[MAX 2 9 ]", "3"]))
    before = path.read_bytes()
    words = ["evaluate", "--checkpoint", run / "best.safetensors", "--file", path]
    assert "--predictions and --file must be different" in fails(capsys, *words, "--predictions", path)
    both = ["--json", tmp_path / "x", "--predictions", tmp_path / "." / "x"]
    assert "--json and --predictions must be different" in fails(capsys, *words, *both)
    both = ["--json", tmp_path / "x", "--html", tmp_path / "x"]
    assert "--json and --html must be different files" in fails(capsys, "trace", "[MAX 2 9 ]", *both)
    assert "--json -: must name a file" in fails(capsys, *words, "--json", "-")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_options_of_generated_tests_are_refused_for_the_standard_test(capsys):
    assert fails(capsys, "evaluate", "--size", "3") == "--size 3 has no effect with --test standard"


def test_generated_files_can_be_evaluated_and_trained_on(run, tmp_path):
    for name, size, seed in (("train_d20s.tsv", 300, 1), ("test_d20s.tsv", 50, 2)):
        assert main(["generate", str(tmp_path / name), "--size", str(size), "--seed", str(seed)]) == 0
        assert len(read_tsv(tmp_path / name)) == size
    checkpoint = str(run / "best.safetensors")
    assert main(["evaluate", "--checkpoint", checkpoint, "--file", str(tmp_path / "test_d20s.tsv")]) == 0
    options = ["--data-dir", str(tmp_path), "--run-dir", str(tmp_path / "run")]
    assert main(["train", *TINY, *options]) == 0


def test_generated_files_have_other_expressions_than_a_run_with_the_same_seed(tmp_path):
    assert main(["generate", str(tmp_path / "test.tsv"), "--size", "200"]) == 0
    write_tsv(tmp_path / "train.tsv", Dataset(generate(200, seed=1)))
    written, drawn = (
        {line for line in (tmp_path / name).read_text().splitlines() if len(line) > 80}
        for name in ("test.tsv", "train.tsv")
    )
    assert written
    assert not written & drawn


def test_predict_answers_draws_and_saves(run, tmp_path, capsys):
    words = ["predict", "[MAX 2 9 [MIN 4 7 ] 0 ]", "--checkpoint", str(run / "best.safetensors")]
    assert main([*words, "--heat-map", str(tmp_path / "new" / "map.png")]) == 0
    output = capsys.readouterr().out
    assert re.search(r"answer: \d \(probability 0\.\d+; (right|wrong, it is 9)\)", output)
    leaves = next(line for line in output.splitlines() if "[MAX" in line)
    assert leaves.split() == ["[MAX", "2", "9", "[MIN", "4", "7", "]", "0", "]"]
    assert (tmp_path / "new" / "map.png").read_bytes().startswith(b"\x89PNG")


def test_a_heat_map_that_cannot_be_written_is_refused_before_the_answer(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert main(["predict", "3", "--heat-map", str(tmp_path / "map.png")]) == 2
    captured = capsys.readouterr()
    assert "map.png: no permission to write" in captured.err
    assert captured.out == ""


def test_predict_shows_the_true_tree_where_it_differs_and_writes_no_file_unasked(
    run, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    words = ["predict", "[MAX 2 9 [MIN 4 7 ] 0 ]"]
    assert main(words) == 0
    right = capsys.readouterr().out
    assert "the tree is the true one" in right
    assert main([*words, "--checkpoint", str(run / "best.safetensors")]) == 0
    wrong = capsys.readouterr().out
    assert "the tree is not the true one, which is" in wrong
    drawn = right.split("\n\n")[1].removesuffix("the tree is the true one\n")
    assert drawn.strip("\n") in wrong.split("which is")[1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "expression", [f"[MAX {'1 ' * 1000}]", "[MAX " * 2000 + "1" + " ]" * 2000], ids=["wide", "deep"]
)
def test_an_expression_of_any_size_is_answered(run, capsys, expression):
    assert main(["predict", expression, "--checkpoint", str(run / "best.safetensors")]) == 0
    assert "not drawn, since it has more than 60" in capsys.readouterr().out


def test_data_of_which_nothing_is_left(tmp_path, capsys):
    for name in ("train_d20s.tsv", "test_d20s.tsv"):
        write_tsv(tmp_path / name, Dataset.from_texts(["[MAX 2 9 [MIN 4 7 ] 0 ]"] * 30))
    options = ["--data-dir", tmp_path, "--run-dir", tmp_path / "run", "--validation-size", "5"]
    error = fails(capsys, *SIZES, *options, "--max-train-length", "5")
    assert error == "the options leave no training expressions: too few are given, or all are too long"
    assert not (tmp_path / "run" / "config.json").exists()


def test_the_files_of_another_directory_can_be_evaluated(run, tmp_path, capsys):
    for name, size in (("train_d20s.tsv", 60), ("test_d20s.tsv", 7)):
        write_tsv(tmp_path / name, Dataset.from_texts(["[MAX 2 9 ]"] * size))
    options = ["--checkpoint", str(run / "best.safetensors"), "--data-dir", str(tmp_path)]
    assert main(["evaluate", *options]) == 0
    assert "on 7 expressions" in capsys.readouterr().out


def test_the_official_test_file_is_downloaded_once_and_checked(run, tmp_path, monkeypatch, capsys):
    home = tmp_path / "home"
    home.mkdir()
    write_tsv(home / "test_d20s.tsv", Dataset.from_texts(["[MAX 2 9 ]"] * 7))
    monkeypatch.setattr(download, "CHECKSUM", f"sha256:{pooch.file_hash(str(home / 'test_d20s.tsv'))}")
    monkeypatch.setattr(download, "cache_directory", lambda name: tmp_path / "cache" / name)
    words = ["evaluate", "--checkpoint", str(run / "best.safetensors"), "--test", "official"]
    with served(home) as url:
        monkeypatch.setattr(download, "URL", f"{url}test_d20s.tsv")
        assert main(words) == 0
    assert main(words) == 0
    assert capsys.readouterr().out.count("on 7 expressions") == 2
    (tmp_path / "cache" / "listops" / "test_d20s.tsv").write_text("changed")
    assert main(words) == 2
    assert "use --file to name the file, or another --test" in capsys.readouterr().err


def test_every_hard_test_can_be_named():
    assert set(HARD_TESTS) < set(TestName.__args__)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fly"], "unknown subcommand 'fly': expected one of train, evaluate, predict, predict-file, trace"),
        (["--preset", "huge"], "--preset must be one of paper, demo, curriculum, got 'huge'"),
        (["--num-slots", "0"], "--num-slots must be at least 1, got 0"),
        (["--slot-size", "-3"], "--slot-size must be at least 1, got -3"),
        (["--batch-size", "0"], "--batch-size must be at least 1, got 0"),
        (["--learning-rate", "0"], "--learning-rate must be positive, got 0.0"),
        (["--cell-dropout", "2"], "--cell-dropout must lie in [0, 1], got 2.0"),
        (["--input-dropout", "2"], "--input-dropout must lie in [0, 1], got 2.0"),
        (["--max-minutes", "0"], "--max-minutes must be positive"),
        (["--backend", "fast"], "--backend must be one of"),
        (["--validation-size", "300"], "--validation-size must be at least 0 and below 270, got 300"),
        (["--max-train-length", "0"], "--max-train-length must be at least 1, got 0"),
        (["--backend", "magic"], "got 'magic'"),
        (["--data-dir", "/nowhere"], "/nowhere: no such directory; it should hold train_d20s.tsv"),
        (["predict", "[MAX 2 q ]"], "unknown token 'q' at position 2"),
        (["predict", "[MAX 2 9"], "'[MAX' at position 0"),
        (["predict", "2 ]"], "']' at position 1"),
        (["predict", ""], "the expression is empty"),
        (["predict", "3", "--checkpoint", "/no.safetensors"], "/no.safetensors: no such checkpoint"),
        (["evaluate", "--checkpoint", "/nowhere.safetensors"], "/nowhere.safetensors: no such checkpoint"),
        (["evaluate", "--checkpoint", "."], ".: this directory has no model.safetensors; for a run"),
        (["evaluate", "--file", "a", "--data-dir", "b"], "--file a and --data-dir b: give one of them"),
        (["evaluate", "--file", "a", "--test", "lra"], "--test lra has its own data: leave out --file"),
        (["evaluate", "--test", "official", "--size", "9"], "--size 9 has no effect with --test official"),
        (["predict", "3", "--heat-map", ""], "--heat-map .: is a directory"),
        (["predict", "3", "--heat-map", "-"], "--heat-map -: must name a file"),
        (["predict", f"[MAX {'1 ' * 60}]", "--heat-map", "a.png"], "--heat-map draws at most 60 tokens"),
        (["evaluate", "--test", "200-300", "--size", "1", "--num-slots", "99999999999"], "not enough memory"),
        (["evaluate", "--data-dir", "/nowhere"], "/nowhere: no such directory"),
        (["generate", "/nowhere/file.tsv"], "OUTPUT /nowhere/file.tsv: there is no directory /nowhere"),
        (["generate", "file.tsv", "--size", "0"], "--size must be at least 1, got 0"),
    ],
)  # fmt: skip
def test_bad_options_are_one_line(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    if words[0].startswith("--"):
        words = [*(SIZES if "--data-dir" in words else TINY), *words]
    assert message in fails(capsys, *words)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("3\t3\n4 4\n", "line 2: expected 2 columns"),
        ("3\t3\n3\t3\t3\n", "line 2: expected 2 columns, label TAB expression, not 3"),
        ("9\t( ( ( [MAX 2 ) 9 ) ] )\nx\t3\n", "line 2: the label must be one of 0..9"),
        ("9\t[MAX 2 9 ]\n9\t[MAX 2 9\n", "line 2: "),
        ("9\t[MAX 2 9 ]\n9\t[TOP 2 9 ]\n", "line 2: unknown token '[TOP' at position 0"),
        ("8\t[MAX 2 9 ]\n", "line 1: the label is 8 but the expression evaluates to 9"),
    ],
)
def test_bad_files_are_one_line_with_the_line_number(run, tmp_path, capsys, content, message):
    path = tmp_path / "data.tsv"
    path.write_text(content)
    error = fails(capsys, "evaluate", "--checkpoint", run / "best.safetensors", "--file", path)
    assert error.startswith(f"{path}")
    assert message in error


def test_a_data_directory_without_files(tmp_path, capsys):
    error = fails(capsys, *SIZES, "--data-dir", tmp_path, "--run-dir", tmp_path / "run")
    assert error == f"{tmp_path}: no train_d20s.tsv, test_d20s.tsv in this directory"


def test_a_directory_that_holds_a_run_is_left_alone(run, capsys):
    before = (run / "last.safetensors").read_bytes()
    assert "use --resume to continue it" in fails(capsys, *TINY, "--run-dir", run)
    assert (run / "last.safetensors").read_bytes() == before


def test_a_checkpoint_of_another_shape(run, tmp_path, capsys):
    resume = ["--run-dir", run, "--resume", "--epochs", "2"]
    for option in ("--slot-size", "--embedding-size"):
        error = fails(capsys, *resume, option, "8")
        assert error.startswith(f"{option} 8: {run} resumes a model with {option} 6;")
    config = tmp_path / "config.json"
    shutil.copytree(run, tmp_path, dirs_exist_ok=True)
    config.write_text(config.read_text().replace('"slot_size": 6', '"slot_size": 8'))
    error = fails(capsys, "--run-dir", tmp_path, "--resume", "--epochs", "2")
    assert "last.safetensors: the checkpoint does not fit the model: " in error
    assert re.search(r": encoder\.\S+ is \(.*\) in the file, \(.*\) in the model$", error)


def test_a_file_that_is_no_checkpoint(run, capsys):
    assert "not a checkpoint of this project" in fails(
        capsys, "evaluate", "--checkpoint", run / "config.json"
    )


def test_a_wrong_number_of_slots_for_a_call(run, capsys):
    words = ["predict", "[MAX 2 9 ]", "--checkpoint", run / "best.safetensors", "--num-slots", "0"]
    assert fails(capsys, *words) == "--num-slots must be at least 1, got 0"


def test_an_option_that_does_not_exist_is_named(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["--no-such-option", "1"])
    assert exit_.value.code == 2
    assert "no-such-option" in capsys.readouterr().err


def test_help_documents_every_option(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    for fact in ("--num-slots", "memory slots", "--max-minutes", "--strategy"):
        assert fact in text


def test_a_run_may_learn_from_fewer_expressions(tmp_path, capsys):
    assert main(["--run-dir", str(tmp_path / "few"), *TINY, "--model", "lstm", "--train-size", "30"]) == 0
    assert "ListOps: lstm, at most 12 tokens in training; 30 training," in capsys.readouterr().out
    assert "--train-size must be at most" in fails(
        capsys, "--run-dir", tmp_path / "more", *TINY, "--train-size", "500"
    )
