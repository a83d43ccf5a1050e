"""Finished runs side by side: what the table has is what the runs have."""

import itertools
import json
import re
import shutil
from pathlib import Path
from statistics import fmean, stdev

import pytest

from tasks.classifiers.comparison import CROSS, FinishedRun, accuracy_table
from tasks.listops.config import ListOpsConfig
from tasks.listops.data import Dataset, write_tsv
from tasks.listops.generator import generate
from tasks.logic.comparison import comparison_table
from tasks.logic.config import LogicConfig
from tasks.logic.task import LEFT_OUT
from tasks.runs.command_options import json_line
from tasks.runs.run_directory import RunDirectory
from tests.commands import MAIN, TINY
from tests.tasks.reporting.pages import embedded

NUMBERS = itertools.count()


def train(task, *options):
    assert MAIN[task](["train", *TINY[task].split(), *map(str, options)]) == 0


def table(out):
    """The cells of a text table, by name of the row, without notes and the path of the page."""
    header, *lines = out.split("\n\n")[0].splitlines()
    columns = [word for word in header.split("  ") if word]
    rows = {}
    for line in lines:
        name, *cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
        if len(cells) == len(columns) - 1:
            rows[name] = dict(zip((column.strip() for column in columns[1:]), cells, strict=True))
    return rows


def test_runs_have_a_row_each_and_seeds_have_one_for_their_mean(tmp_path, capsys):
    for seed in (1, 2):
        train("listops", "--seed", seed, "--data-seed", 1, "--run-dir", tmp_path / f"om-{seed}")
    train("listops", "--model", "lstm", "--run-dir", tmp_path / "lstm")
    capsys.readouterr()
    runs = [tmp_path / name for name in ("om-1", "om-2", "lstm")]
    assert MAIN["listops"](["report", *map(str, runs)]) == 0
    out = capsys.readouterr().out
    assert "different" not in out
    rows = table(out)
    names = ["ordered-memory --seed 1", "ordered-memory --seed 2", "lstm", "ordered-memory, mean of 2 seeds"]
    results = [json.loads((run / "results.json").read_text()) for run in runs]
    assert list(rows) == [names[0], names[1], names[3]]  # the LSTM has no trees, so fewer cells
    for name, result in zip(names[:2], results[:2], strict=True):
        assert float(rows[name]["all"]) == pytest.approx(result["accuracy"], abs=5e-5)
        for groups in result["accuracy_by"].values():
            for group, (accuracy, _) in groups.items():
                if CROSS not in group and not group.isdecimal():
                    assert float(rows[name][group]) == pytest.approx(accuracy, abs=5e-5)
    accuracies = [result["accuracy"] for result in results[:2]]
    mean, deviation = map(float, rows[names[3]]["all"].split(" ± "))
    assert mean == pytest.approx(fmean(accuracies), abs=5e-5)
    assert deviation == pytest.approx(stdev(accuracies), abs=5e-5)
    *validation, lstm = (RunDirectory(run).read_metrics()[0]["validation_accuracy"] for run in runs)
    assert [float(rows[name]["validation"]) for name in names[:2]] == pytest.approx(validation, abs=5e-5)
    assert rows[names[3]]["validation"].startswith(f"{fmean(validation):.4f} ± ")
    assert f"lstm {lstm:.4f} {results[2]['accuracy']:.4f}" in re.sub(" +", " ", out)
    page = (tmp_path / "report.html").read_text()
    captions = {trace["caption"] for trace in embedded(page)}
    assert captions == {"ordered-memory --seed 1", "ordered-memory --seed 2"}
    assert f"<td>{mean:.4f} ± {deviation:.4f}</td>" in page


def test_the_validation_accuracy_is_that_of_the_weights_that_were_tested(small_runs, tmp_path, capsys):
    run, page = Path(shutil.copytree(small_runs["listops_run"], tmp_path / "run")), tmp_path / "page.html"
    row = RunDirectory(run).read_metrics()[0]
    epochs = [(0.25, True), (0.375, True), (0.5, False)]  # the last one: with averaged weights, for instance
    rows = [row | {"epoch": i, "validation_accuracy": x, "best": best} for i, (x, best) in enumerate(epochs)]
    (run / "metrics.jsonl").write_text("".join(map(json_line, rows)))
    assert MAIN["listops"](["report", str(run), "--output", str(page)]) == 0
    header, cells = (re.split(" {2,}", line) for line in capsys.readouterr().out.splitlines()[:2])
    assert (header[1], cells[1]) == ("validation", "0.3750")
    (run / "metrics.jsonl").write_text(json_line(row | {"validation_accuracy": None}))
    assert MAIN["listops"](["report", str(run), "--output", str(page)]) == 2
    assert "metrics.jsonl, line 1: expected validation_accuracy to be a number" in capsys.readouterr().err
    (run / "metrics.jsonl").unlink()
    assert MAIN["listops"](["report", str(run), "--output", str(page)]) == 0
    assert "validation" not in capsys.readouterr().out.splitlines()[0]


def test_seeds_are_of_one_configuration_and_have_trees_where_data_have_moved_since(tmp_path, capsys):
    data = tmp_path / "data"
    data.mkdir()
    for name, size in (("train", 60), ("test", 20)):
        write_tsv(data / f"{name}_d20s.tsv", Dataset(generate(size, seed=size, max_length=12)))
    for seed in (1, 2):
        options = ("--data-dir", data, "--validation-size", 6, "--data-seed", 1)
        train("listops", "--seed", seed, *options, "--run-dir", tmp_path / str(seed))
        data = data.rename(tmp_path / f"moved-{seed}")
    capsys.readouterr()
    page = tmp_path / "report.html"
    assert MAIN["listops"](["report", str(tmp_path / "1"), str(tmp_path / "2"), "--output", str(page)]) == 0
    captured = capsys.readouterr()
    assert "mean of 2 seeds" in captured.out
    assert "warning: no trees of these test data: " in captured.err
    assert embedded(page.read_text()) == []
    data.rename(tmp_path / "moved-1")  # where the second run had them
    assert MAIN["listops"](["report", str(tmp_path / "1"), str(tmp_path / "2"), "--output", str(page)]) == 0
    assert len(embedded(page.read_text())) > 1


def test_the_page_never_takes_the_place_of_the_report_of_a_run(small_runs, tmp_path, monkeypatch, capsys):
    run = Path(shutil.copytree(small_runs["listops_run"], tmp_path / "run"))
    before = (run / "report.html").read_bytes()
    monkeypatch.chdir(run)
    assert MAIN["listops"](["report", "."]) == 0
    assert (tmp_path / "report.html").exists()
    assert MAIN["listops"](["report", ".", "--output", "report.html"]) == 2
    assert "--output report.html: is the report of a run" in capsys.readouterr().err
    assert (run / "report.html").read_bytes() == before


def test_a_table_is_as_wide_as_the_terminal_where_there_is_one(small_runs, tmp_path, monkeypatch, capsys):
    command = ["report", str(small_runs["listops_run"]), "--output", str(tmp_path / "page.html")]
    assert MAIN["listops"](command) == 0
    whole = capsys.readouterr().out.split("\n")[:2]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "50")
    assert MAIN["listops"](command) == 0
    *blocks, last = capsys.readouterr().out.split("\n\n")
    parts = [block.split("\n") for block in (*blocks, "\n".join(last.split("\n")[:2]))]
    assert len(parts) > 1
    assert max(len(line) for part in parts for line in part) <= 50 < len(whole[0])
    for i, line in enumerate(whole):
        first, *cells = re.split(" {2,}", line)
        pieces = [re.split(" {2,}", part[i]) for part in parts]
        assert [piece[0] for piece in pieces] == [first] * len(parts)
        assert [cell for piece in pieces for cell in piece[1:]] == cells


def test_runs_of_one_model_have_names_of_their_own_wherever_they_are(
    small_runs, tmp_path, monkeypatch, capsys
):
    for name in ("first", "x/seed-1", "seed-1"):
        shutil.copytree(small_runs["listops_run"], tmp_path / name)
    monkeypatch.chdir(tmp_path)
    runs = ["first", "x/seed-1", "seed-1", "x/../seed-1"]
    assert MAIN["listops"](["report", *runs, "--output", str(tmp_path / "page.html")]) == 0
    rows = capsys.readouterr().out.splitlines()[1:5]
    model = "ordered-memory"
    for row, name in zip(
        rows,
        [model, f"{model}, seed-1", f"{model}, {tmp_path / 'seed-1'}", f"{model}, x/../seed-1"],
        strict=True,
    ):
        assert row.startswith(f"{name}  ")
    monkeypatch.chdir("seed-1")
    assert MAIN["listops"](["report", "../first", ".", "--output", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith(f"{model}, seed-1  ")


def test_runs_of_one_model_are_named_after_the_options_in_which_they_differ(small_runs, tmp_path, capsys):
    def copy(name, **options):
        shutil.copytree(small_runs["listops_run"], tmp_path / name)
        path = tmp_path / name / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | options))
        return str(tmp_path / name)

    def names(runs):
        assert MAIN["listops"](["report", *runs]) == 0
        rows = capsys.readouterr().out.splitlines()[1:]
        return [re.split("  +", row)[0] for row in rows if row.startswith("ordered-memory")]

    model = "ordered-memory"
    runs = [
        copy(f"{dropout}-{seed}", cell_dropout=dropout, seed=seed)
        for dropout in (0.0, 0.3)
        for seed in (1, 2)
    ]
    assert names(runs[1:]) == [
        f"{model} --cell-dropout 0.0 --seed 2",
        f"{model} --cell-dropout 0.3 --seed 1",
        f"{model} --cell-dropout 0.3 --seed 2",
        f"{model} --cell-dropout 0.3, mean of 2 seeds",
    ]
    assert names(runs[::2])[:2] == [f"{model} --cell-dropout 0.0", f"{model} --cell-dropout 0.3"]
    assert names([copy("short", max_minutes=2.0, seed=1, cell_dropout=0.0), runs[0]])[:2] == [
        f"{model} --max-minutes 2.0",
        model,
    ]
    assert names(runs[:1])[0] == model
    same = [*runs[:1], copy("again", cell_dropout=0.0, seed=1, threads=7)]
    assert names(same)[:2] == [model, f"{model}, again"]
    twice = [*runs[:2], f"{tmp_path}/short/../0.0-2"]
    assert names(twice)[3:] == [f"{model}, mean of 2 seeds"]
    decay = copy("decay", cell_dropout=0.0, weight_decay=0.5, seed=2)
    for name, seed in zip(names([runs[0], decay])[:2], (1, 2), strict=True):
        assert re.fullmatch(rf"{model} --weight-decay \S+ --seed {seed}", name)
    many = {"cell_dropout": 0.1, "patience": 9, "gradient_clip": 2.0, "weight_decay": 0.1}
    others = [copy(f"other-{seed}", **many, seed=seed) for seed in (3, 4)]
    assert names([*runs[:1], others[0]])[:2] == [model, f"{model}, other-3"]
    assert names([*others, runs[0], runs[1]])[4:] == [
        f"{model}, mean of 2 seeds",
        f"{model}, 0.0-1, mean of 2 seeds",
    ]
    assert names([runs[0], *others])[3:] == [f"{model}, mean of 2 seeds"]
    for option, first, second in (("precision", "32-true", "bf16-mixed"), ("devices", 1, 2)):
        different = copy(option, cell_dropout=0.0, seed=2, **{option: second})
        assert set(names([runs[0], different])) == {
            f"{model} --{option} {first} --seed 1",
            f"{model} --{option} {second} --seed 2",
        }


def test_runs_on_other_data_have_no_common_mean(tmp_path, capsys):
    for name, size in (("few", 120), ("many", 200)):
        (tmp_path / name).mkdir()
        for part, number, seed in (("train", size, 1), ("test", 20, 2)):
            data = Dataset(generate(number, seed=seed, max_length=12))
            write_tsv(tmp_path / name / f"{part}_d20s.tsv", data)
    runs = []
    for data, seed in (("few", 1), ("few", 2), ("many", 1), ("many", 2)):
        runs.append(str(tmp_path / f"{data}-{seed}"))
        words = [*TINY["listops"].split(), "--model", "mean", "--run-dir", runs[-1], "--seed", str(seed)]
        assert MAIN["listops"](["train", *words, "--data-dir", str(tmp_path / data)]) == 0

    def means(runs):
        capsys.readouterr()
        assert MAIN["listops"](["report", *runs, "--output", str(tmp_path / "page.html")]) == 0
        rows = capsys.readouterr().out.splitlines()
        return [re.split("  +", row)[0].removeprefix("mean --data-dir ") for row in rows if "seeds" in row]

    expected = [f"{tmp_path / data}, mean of 2 seeds" for data in ("few", "many")]
    assert means(runs) == expected
    assert means([*runs[:2], runs[3]]) == expected[:1]
    path = tmp_path / "few-2" / "config.json"  # the same data in another place are the same
    path.write_text(json.dumps(json.loads(path.read_text()) | {"data_dir": "elsewhere"}))
    assert means(runs) == expected


def test_results_on_validation_data_are_called_so(small_runs, tmp_path, capsys):
    for name, part in (("a", "validation"), ("b", "test")):
        shutil.copytree(small_runs["listops_run"], tmp_path / name)
        path = tmp_path / name / "results.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"part": part, "span_f1": {}}))
    page = tmp_path / "page.html"
    assert MAIN["listops"](["report", str(tmp_path / "a"), "--output", str(page)]) == 0
    assert "Accuracy on the validation data." in page.read_text()
    assert "<h3>Validation accuracy, by" in page.read_text()
    capsys.readouterr()
    assert MAIN["listops"](["report", str(tmp_path / "a"), str(tmp_path / "b"), "--output", str(page)]) == 0
    assert "<h3>Validation and test accuracy, by" in page.read_text()
    assert "The models were tested on different expressions." in capsys.readouterr().out


def finished(config, accuracy, groups, f1=None, **baselines):
    span_f1 = {} if f1 is None else {"corpus level, with": {"model": f1, **baselines}}
    results = {"part": "test", "accuracy": accuracy, "accuracy_by": groups, "data": {}}
    trees = {"span_f1": span_f1, "scored_trees": 9, "punctuation": "none"}
    return FinishedRun(RunDirectory(Path(f"run-{next(NUMBERS)}")), config, results | trees)


def test_the_mean_of_seeds_has_the_columns_that_all_of_them_have():
    few, many = {"tokens": {"≤ 9": (0.5, 4)}}, {"tokens": {"≤ 9": (0.7, 4), "> 9": (0.1, 1)}}
    runs = {
        "lstm": finished(ListOpsConfig(model="lstm", seed=1), 0.5, few),
        "lstm, 2": finished(ListOpsConfig(model="lstm", seed=2), 0.7, many),
        "om": finished(ListOpsConfig(), 0.9, many, f1=1.0),
    }
    made = accuracy_table(runs)
    assert made.columns == ["model", "all", "≤ 9", "> 9", "F1, corpus level"]
    assert made.rows[3:] == [["lstm, mean of 2 seeds", "0.6000 ± 0.1414", "0.6000 ± 0.1414", None, None]]


def test_groups_of_one_name_have_a_column_each():
    groups = {"length": {"1–10": (0.5, 4)}, "nodes": {"all": (0.9, 30), "1–10": (0.7, 9)}}
    groups |= {"depth": {"1": (0.4, 2), "2": (0.3, 5)}, "operator": {f"MAX{CROSS}2": (0.2, 3)}}  # no columns
    made = accuracy_table({"sst": finished(ListOpsConfig(), 0.6, groups)})
    assert made.columns == ["model", "all", "1–10", "nodes all", "nodes 1–10"]
    assert made.rows == [["sst", 0.6, 0.5, 0.9, 0.7]]


def test_groups_that_only_some_runs_have_stand_among_the_others():
    groups = [("1–20", "51–100"), ("1–20", "21–50", "51–100", "201–500"), ("1–20", "101–200", "≥ 1001")]
    runs = {
        str(seed): finished(ListOpsConfig(seed=seed), 0.5, {"tokens": dict.fromkeys(names, (0.5, 4))}, f1=0.5)
        for seed, names in enumerate(groups)
    }
    tokens = ["1–20", "21–50", "51–100", "101–200", "201–500", "≥ 1001"]
    assert accuracy_table(runs).columns == ["model", "all", *tokens, "F1, corpus level"]


def test_f1_stands_beside_the_baselines_and_its_conventions():
    runs = {
        "lstm": finished(ListOpsConfig(model="lstm"), 0.5, {}),
        "om": finished(ListOpsConfig(), 0.9, {}, f1=1.0, balanced=0.4, random=0.2),
        "onlstm": finished(ListOpsConfig(model="onlstm"), 0.8, {}, f1=0.7, balanced=0.4, random=0.3),
        "crvnn": finished(ListOpsConfig(model="crvnn"), 0.8, {}, f1=0.6, balanced=0.4, random=0.2),
    }
    for name in ("om", "onlstm", "crvnn"):
        runs[name].results["scored_trees"] = 1_200
    made = accuracy_table(runs)
    assert made.rows[4:] == [["balanced", None, 0.4]]  # random trees of other data have another F1
    assert made.note.startswith("F1: corpus level, with. Trees scored: 1,200. None. Spans of one token never")
    runs["om"].results["scored_trees"] = 9
    assert "Trees" not in accuracy_table(runs).note
    assert accuracy_table({"lstm": runs["lstm"]}).note == ""


def test_both_decodings_of_distances_have_a_column_and_a_mean():
    runs = {"om": finished(ListOpsConfig(), 0.9, {}, f1=1.0, balanced=0.4)}
    for seed, f1 in ((1, 0.5), (2, 0.7)):
        config = ListOpsConfig(model="onlstm", seed=seed)
        runs[f"on {seed}"] = finished(config, 0.8, {}, f1=f1, **{"model, unbiased": f1 / 2}, balanced=0.4)
    made = accuracy_table(runs)
    assert made.columns == ["model", "all", "F1, corpus level", "F1, corpus level, unbiased"]
    assert [row[2:] for row in made.rows] == [
        [1.0, None],
        [0.5, 0.25],
        [0.7, 0.35],
        ["0.6000 ± 0.1414", "0.3000 ± 0.0707"],
        [0.4, None],
    ]
    assert '"prpn"' in made.note
    assert '"prpn"' not in accuracy_table({"om": runs["om"]}).note
    groups = {"operations": {"7": (0.8, 9)}}
    logic = finished(LogicConfig(model="onlstm"), 0.8, groups, f1=0.5, **{"model, unbiased": 0.2})
    made = comparison_table({"on": logic})
    assert made.columns == ["model", "7", "F1, corpus level", "F1, corpus level, unbiased"]
    assert made.rows[0] == ["on", 0.8, 0.5, 0.2]


def test_the_table_of_logic_has_the_mean_of_seeds_too():
    runs = {
        str(seed): finished(
            LogicConfig(split="C", seed=seed),
            accuracy,
            {
                "operations": {"6": (1.0, 9), "7": (accuracy, 9)},
                LEFT_OUT.format("C"): {"7–12": (accuracy / 2, 3)},
            },
        )
        for seed, accuracy in ((1, 0.8), (2, 0.6))
    }
    made = comparison_table(runs)
    assert made.columns == ["model", "7", "left out, 7–12"]
    assert made.rows[:2] == [["1", 0.8, 0.4], ["2", 0.6, 0.3]]
    assert made.rows[2] == ["Ordered Memory, published", None, 0.81]
    assert made.rows[3] == ["ordered-memory, mean of 2 seeds", "0.7000 ± 0.1414", "0.3500 ± 0.0707"]
    assert made.best == {(0, 1), (2, 2)}


def test_the_table_of_logic_has_the_f1_of_models_that_return_trees():
    groups = {"operations": {"7": (0.8, 9)}}
    runs = {
        "lstm": finished(LogicConfig(model="lstm"), 0.8, groups),
        "om 1": finished(LogicConfig(seed=1), 0.8, groups, f1=0.9),
        "om 2": finished(LogicConfig(seed=2), 0.8, groups, f1=0.7),
    }
    made = comparison_table(runs)
    assert made.columns == ["model", "7", "F1, corpus level"]
    assert [row[2] for row in made.rows] == [None, 0.9, 0.7, None, "0.8000 ± 0.1414"]


def test_other_test_data_are_pointed_out(tmp_path, capsys):
    for seed in (1, 2):
        train("listops", "--seed", seed, "--run-dir", tmp_path / str(seed))
    assert MAIN["listops"](["report", str(tmp_path / "1"), str(tmp_path / "2")]) == 0
    assert "The models were tested on different expressions." in capsys.readouterr().out


def test_results_that_do_not_say_what_was_tested_are_refused(small_runs, tmp_path, capsys):
    run = Path(shutil.copytree(small_runs["listops_run"], tmp_path / "run"))
    results = json.loads((run / "results.json").read_text())
    del results["data"]
    (run / "results.json").write_text(json.dumps(results))
    assert MAIN["listops"](["report", str(run)]) == 2
    assert "results.json: does not say which data the run was tested on; --resume" in capsys.readouterr().err


@pytest.mark.parametrize("digest", ["same", "other"])
def test_tests_differ_in_their_digest(small_runs, tmp_path, capsys, digest):
    for name, data in (("a", "same"), ("b", digest)):
        shutil.copytree(small_runs["listops_run"], tmp_path / name)
        path = tmp_path / name / "results.json"
        results = json.loads(path.read_text()) | {"span_f1": {}}
        path.write_text(json.dumps(results | {"data": results["data"] | {"test": data}}))
    assert MAIN["listops"](["report", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert ("tested on different expressions" in capsys.readouterr().out) == (digest == "other")


@pytest.mark.parametrize("task", ["listops", "logic", "sst"])
def test_one_run_of_each_task_can_be_looked_at(task, small_runs, tmp_path, capsys):
    page = tmp_path / "new" / "page.html"
    assert MAIN[task](["report", small_runs[f"{task}_run"], "--output", str(page)]) == 0
    assert f"report: {page}" in capsys.readouterr().out
    assert page.exists()


def test_the_summary_that_seeds_write_beside_their_runs_is_skipped(small_runs, tmp_path, capsys):
    run, summary = tmp_path / "ordered-memory-1", tmp_path / "ordered-memory-1-to-2.json"
    shutil.copytree(small_runs["listops_run"], run)
    summary.write_text("{}")
    assert MAIN["listops"](["report", *sorted(map(str, tmp_path.glob("ordered-memory-*")))]) == 0
    assert f"report: {tmp_path / 'report.html'}" in capsys.readouterr().out
    assert MAIN["listops"](["report", str(summary)]) == 2
    assert "name the directories of one or more finished runs" in capsys.readouterr().err


def test_runs_of_another_task_and_unfinished_ones_are_refused(small_runs, tmp_path, capsys):
    shutil.copytree(small_runs["logic_run"], tmp_path / "logic")
    assert MAIN["listops"](["report", str(tmp_path / "logic")]) == 2
    assert "results.json: not the results of a run of this task" in capsys.readouterr().err
    (tmp_path / "logic" / "results.json").unlink()
    assert MAIN["logic"](["report", str(tmp_path / "logic")]) == 2
    assert "holds no finished run (no results.json)" in capsys.readouterr().err
    (tmp_path / "logic" / "diverged.json").write_text('{"epoch": 1, "step": 2}')
    assert MAIN["logic"](["report", str(tmp_path / "logic")]) == 2
    assert "holds a run that has diverged (diverged.json)" in capsys.readouterr().err
    assert MAIN["logic"](["report", str(tmp_path / "logics")]) == 2
    assert f"{tmp_path / 'logics'}: no such directory\n" in capsys.readouterr().err
    assert MAIN["listops"](["report"]) == 2
    assert "name the directories of one or more finished runs" in capsys.readouterr().err
