"""The numbers of a tiny table and the notes below it, and files of its runs that are damaged."""

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tasks.formatting.summary import Published
from tasks.reproduce.config import ReproduceConfig, runs_of
from tasks.reproduce.output import text, write
from tasks.reproduce.results import Summary, _option_notes, collect
from tasks.runs.errors import UserError
from tests.tasks.reproduce.tiny import HARD, TINY_TABLE, asked, row


def test_the_numbers_of_a_table_are_those_of_its_runs(finished):
    directory, results = finished
    runs = runs_of(TINY_TABLE, ReproduceConfig(directory=directory, seeds=2))
    scores = [max(row["validation_accuracy"] for row in run.files.read_metrics()) for run in runs]
    for column, evaluation in (("100", None), ("200", HARD)):
        values = [100 * json.loads(run.results_of(evaluation).read_text())["accuracy"] for run in runs]
        cell = results["rows"][0]["cells"][column]
        assert list(cell["values"].values()) == values
        np.testing.assert_allclose(cell["mean"], np.mean(values))
        np.testing.assert_allclose(cell["deviation"], np.std(values, ddof=1))
        assert cell["best"] == values[int(np.argmax(scores))]
    assert [row["ours"] for row in results["rows"]] == [True, False]
    assert results["rows"][1]["cells"]["200"]["published"] == {"mean": 1.5, "deviation": None}
    page = (directory / "tiny-paper.md").read_text()
    assert "(n 2) |" in page
    assert "| LSTM, best | " in page
    assert "| LSTM, published | 99 ± 0.5 | – |" in page
    assert "| Other (literature) | – | 1.5 |" in page
    plot = ElementTree.parse(directory / "tiny-paper.svg").getroot()
    assert plot.get("aria-label").startswith("accuracy by ")
    names = {"LSTM", "LSTM, published", "Other (literature), published"}
    assert names <= {element.text for element in plot.iter()}


@pytest.mark.parametrize(("percent", "scale"), [(True, 100.0), (False, 1.0)])
def test_numbers_are_of_the_runs_of_their_model_and_fractions_are_shown_in_percent(again, percent, scale):
    table = replace(TINY_TABLE, rows=(row("lstm"), row("mean")), percent=percent)
    config = ReproduceConfig(directory=again, seeds=2)
    runs = runs_of(table, config)
    for run, accuracy in zip([run for run in runs if run.state().is_tested], (0.25, 0.75), strict=True):
        run.files.results.write_text(json.dumps({"accuracy": accuracy}))
    finished, missing = collect("tiny", table, config, runs).models
    assert finished.summaries["100"].values == {1: 0.25 * scale, 2: 0.75 * scale}
    assert missing.summaries == {"100": Summary({}, published=Published(99, 0.5)), "200": Summary({})}


def test_a_plot_has_the_means_over_seeds_and_the_published_numbers(again, tmp_path, monkeypatch):
    config = ReproduceConfig(directory=again, seeds=2)
    runs = runs_of(TINY_TABLE, config)
    for run, accuracy in zip(runs, (0.25, 0.75), strict=True):
        for evaluation in (None, HARD):
            run.results_of(evaluation).write_text(json.dumps({"accuracy": accuracy}))
    drawn = []
    monkeypatch.setattr("tasks.reproduce.output.curve_svg", lambda curve: drawn.append(curve) or "")
    write(collect("tiny", TINY_TABLE, config, runs), tmp_path / "page")
    assert [curve.series for curve in drawn] == [
        {
            "LSTM": [(100.0, 50.0), (200.0, 50.0)],
            "LSTM, published": [(100.0, 99)],
            "Other (literature), published": [(200.0, 1.5)],
        }
    ]


@pytest.mark.parametrize(("percent", "unit"), [(True, "%"), (False, "")])
def test_a_table_without_runs_has_its_unit_and_the_published_numbers(percent, unit):
    results = collect("tiny", replace(TINY_TABLE, percent=percent), ReproduceConfig(), [])
    assert results.as_json()["unit"] == unit
    assert (", in %." in results.notes()[0]) == percent
    assert results.models[0].summaries == {
        "100": Summary({}, published=Published(99, 0.5)),
        "200": Summary({}),
    }


def test_a_table_is_written_with_its_models_side_by_side_and_a_list_of_its_notes(tmp_path):
    table = replace(TINY_TABLE, models_side_by_side=True, notes=("One.", "Two."))
    results = collect("tiny", table, ReproduceConfig(), [])
    page, *_ = write(results, tmp_path / "new" / "directory")
    first, *notes = results.notes()
    assert notes == ["One.", "Two."]
    assert page.read_text().splitlines() == [
        *("## Tiny", ""),
        "|  | LSTM | LSTM, published | Other (literature) |",
        "|---|---|---|---|",
        "| 100 | – | 99 ± 0.5 | – |",
        "| 200 | – | – | 1.5 |",
        *("", f"- {first}", "- One.", "- Two."),
    ]
    lines = text(results).splitlines()
    assert [line.split() for line in lines[2:5]] == [
        ["LSTM", "LSTM,", "published", "Other", "(literature)"],
        ["100", "–", "99", "±", "0.5", "–"],
        ["200", "–", "–", "1.5"],
    ]
    assert (lines[:2], lines[5:]) == (["Tiny", ""], ["", first, *notes])


def test_the_best_seed_is_that_of_the_best_epoch_in_validation(again, commands):
    runs = runs_of(TINY_TABLE, ReproduceConfig(directory=again, seeds=2))
    for run, scores, accuracy in zip(runs, [(-0.2, -0.6), (-3.0, -0.5)], (0.25, 0.75), strict=True):
        run.files.write_metrics(
            [{"epoch": n, "fraction": 1.0, "selection_score": x} for n, x in enumerate(scores, start=1)]
        )
        run.files.results.write_text(json.dumps({"accuracy": accuracy}))
    cell = asked(again, seeds=2)["rows"][0]["cells"]["100"]
    assert (cell["best"], cell["mean"]) == (25.0, 50.0)
    assert cell["deviation"] == pytest.approx(2 * 25 / 2**0.5)
    best = next(line for line in (again / "tiny-paper.md").read_text().splitlines() if "LSTM, best" in line)
    assert best.startswith("| LSTM, best | 25.000 |")


def test_the_table_says_which_runs_were_not_trained_in_float32(tmp_path, commands):
    said = "Trained with --precision"
    notes = [note for note in asked(tmp_path, precision="64-true")["notes"] if note.startswith(said)]
    assert notes == [f"{said} 64-true: all."]
    both = asked(tmp_path, seeds=2)  # the first run stays as it is
    name, _ = (run.name for run in runs_of(TINY_TABLE, ReproduceConfig(directory=tmp_path, seeds=2)))
    assert [note for note in both["notes"] if note.startswith(said)] == [f"{said} 64-true: {name}."]
    assert commands == {"train": 2, "evaluate": 2}


def test_the_table_says_that_runs_were_trained_on_generated_data(finished):
    assert "Trained on generated data, which differ by seed: all." in finished[1]["notes"]


def test_generated_data_of_one_seed_do_not_differ(again):
    runs = runs_of(TINY_TABLE, ReproduceConfig(directory=again, seeds=2))
    for run in runs:
        values = json.loads(run.files.config.read_text())
        run.files.config.write_text(json.dumps(values | {"data_seed": 3}))
    assert "Trained on generated data of seed 3: all." in _option_notes(runs)


def test_the_table_says_which_runs_were_trained_on_data_of_another_directory(again):
    for config, path in zip(sorted(again.glob("listops/*/config.json")), ("here", "there"), strict=True):
        config.write_text(json.dumps(json.loads(config.read_text()) | {"data_dir": path}))
    runs = runs_of(TINY_TABLE, ReproduceConfig(directory=again, seeds=2, listops_data=Path("here")))
    notes = collect("tiny", TINY_TABLE, ReproduceConfig(), runs).notes()
    assert notes[1:] == [
        f"Trained with --data-dir there: {runs[1].name}.",
        f"Tested on other data than earlier seeds: {runs[1].name}.",
    ]


def test_the_table_says_which_seeds_were_tested_on_other_data(again):
    runs = runs_of(TINY_TABLE, ReproduceConfig(directory=again, seeds=2))
    notes = collect("tiny", TINY_TABLE, ReproduceConfig(), runs).notes()
    assert not any("Tested on other data" in note for note in notes)  # each seed generates its own
    for run in runs:
        values = json.loads(run.files.config.read_text())
        run.files.config.write_text(json.dumps(values | {"data_seed": 3}))
    notes = collect("tiny", TINY_TABLE, ReproduceConfig(), runs).notes()
    said = f"Tested on other data than earlier seeds: {runs[1].name}."
    assert notes.count(said) == 1


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("metrics.jsonl", "3\n", "line 1: expected a JSON object, got 3"),
        ("metrics.jsonl", "[" * 100_000, "line 1: not JSON"),
        ("metrics.jsonl", "", "has no epochs"),
        ("metrics.jsonl", '{"epoch": 1}\n', "line 1: expected fraction to be a number, got None"),
        (
            "metrics.jsonl",
            '{"epoch": 1, "fraction": 1}\n',
            "line 1: expected selection_score to be a number, got None",
        ),
        ("metrics.jsonl", '{"loss": 1}\n', "line 1: expected epoch to be a number, got None"),
        ("metrics.jsonl", '{"epoch": 1, "fraction": "a"}\n', "expected fraction to be a number, got 'a'"),
        (
            "metrics.jsonl",
            '{"epoch": 1, "fraction": 1, "selection_score": NaN}\n',
            "line 1: expected selection_score to be a number",
        ),
        (
            "metrics.jsonl",
            '{"epoch": 1, "fraction": 1, "selection_score": "a"}\n',
            "line 1: expected selection_score to be a number",
        ),
        ("results.json", "3", "expected the results of a run, with a number at ['accuracy']"),
        ("results.json", '{"accuracy": {}}', "expected the results of a run"),
        ("results.json", '{"accuracy": NaN}', "expected the results of a run"),
        ("results.json", '{"accuracy": true}', "expected the results of a run"),
        ("results.json", '{"accuracy": "0.5"}', "expected the results of a run"),
        ("diverged.json", "3", "expected the numbers step and epoch, got 3"),
        ("diverged.json", '{"step": "x", "epoch": 1}', "expected the numbers step and epoch"),
    ],
)
def test_a_damaged_file_of_a_run_is_named(again, commands, name, content, told):
    path = runs_of(TINY_TABLE, ReproduceConfig(directory=again, seeds=2))[0].files.path / name
    path.write_text(content)
    with pytest.raises(UserError, match=re.escape(str(path)) + ".*" + re.escape(told)):
        asked(again, seeds=2)
    assert commands == {"train": 0, "evaluate": 0}


def test_a_number_that_the_results_lack_is_left_out(again):
    runs = runs_of(TINY_TABLE, ReproduceConfig(directory=again, seeds=2))
    runs[0].files.results.write_text("{}")
    summaries = collect("tiny", TINY_TABLE, ReproduceConfig(), runs).models[0].summaries
    assert [list(summaries[column].values) for column in ("100", "200")] == [[2], [1, 2]]


def test_new_weights_are_evaluated_anew(again, commands):
    runs = runs_of(TINY_TABLE, ReproduceConfig(directory=again, seeds=2))
    run = runs[0]
    later = run.results_of(HARD).stat().st_mtime + 1
    os.utime(run.files.best, (later, later))
    summaries = collect("tiny", TINY_TABLE, ReproduceConfig(), runs).models[0].summaries
    assert [list(summaries[column].values) for column in ("100", "200")] == [[1, 2], [2]]
    asked(again, seeds=2)
    assert commands == {"train": 0, "evaluate": 1}


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_new_data_are_evaluated_anew(again, tmp_path, kind):
    run = runs_of(TINY_TABLE, ReproduceConfig(directory=again, seeds=2))[0]
    data = file = tmp_path / "data"
    if kind == "directory":
        data.mkdir()
        file = data / "trees.mrg"
    file.write_text("old")
    run = replace(run, evaluations={HARD: (*run.evaluations[HARD], "--treebank", str(data))})
    results, past = run.results_of(HARD), file.stat().st_ctime - 3600
    results.touch()
    assert run.is_evaluated(HARD)
    os.utime(results, (past + 1, past + 1))
    os.utime(run.files.best, (past, past))
    (tmp_path / "new").write_text("new")
    os.utime(tmp_path / "new", (past, past))
    (tmp_path / "new").replace(file)  # which keeps the time of the file
    assert not run.is_evaluated(HARD)
    results.touch()
    assert run.is_evaluated(HARD)
    shutil.rmtree(data) if kind == "directory" else data.unlink()
    assert run.is_evaluated(HARD)
