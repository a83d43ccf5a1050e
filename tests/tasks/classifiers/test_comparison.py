"""Finished runs side by side: what the table has is what the runs have."""

import json
import re
import shutil
from statistics import fmean, stdev

import pytest

from tasks.classifiers.comparison import CROSS
from tests.hostile_files import MAIN, TINY
from tests.tasks.reporting.pages import embedded


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
    names = ["ordered-memory", "ordered-memory, om-2", "lstm", "ordered-memory, mean of 2 seeds"]
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
    assert f"lstm {results[2]['accuracy']:.4f}" in re.sub(" +", " ", out)
    page = (tmp_path / "report.html").read_text()
    captions = {trace["caption"] for trace in embedded(page)}
    assert captions == {"ordered-memory", "ordered-memory, om-2"}
    assert f"<td>{mean:.4f} ± {deviation:.4f}</td>" in page


def test_other_test_data_are_pointed_out(tmp_path, capsys):
    for seed in (1, 2):
        train("listops", "--seed", seed, "--run-dir", tmp_path / str(seed))
    assert MAIN["listops"](["report", str(tmp_path / "1"), str(tmp_path / "2")]) == 0
    assert "The models were tested on different expressions." in capsys.readouterr().out


@pytest.mark.parametrize("task", ["listops", "logic", "sst"])
def test_one_run_of_each_task_can_be_looked_at(task, small_runs, tmp_path, capsys):
    page = tmp_path / "new" / "page.html"
    assert MAIN[task](["report", small_runs[f"{task}_run"], "--output", str(page)]) == 0
    assert f"report: {page}" in capsys.readouterr().out
    assert page.exists()


def test_runs_of_another_task_and_unfinished_ones_are_refused(small_runs, tmp_path, capsys):
    shutil.copytree(small_runs["logic_run"], tmp_path / "logic")
    assert MAIN["listops"](["report", str(tmp_path / "logic")]) == 2
    assert "results.json: not the results of a run of this task" in capsys.readouterr().err
    (tmp_path / "logic" / "results.json").unlink()
    assert MAIN["logic"](["report", str(tmp_path / "logic")]) == 2
    assert "holds no finished run (no results.json)" in capsys.readouterr().err
    assert MAIN["listops"](["report"]) == 2
    assert "name the directories of one or more finished runs" in capsys.readouterr().err
