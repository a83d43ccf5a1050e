"""A tiny table from nothing to its end: interrupted, diverged, failed, asked for again."""

import json
import os
import re
import shutil
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tasks.formatting.summary import Published
from tasks.language_model.config import LanguageModelConfig
from tasks.reproduce.commands import TABLES, _time_of_all, run_table
from tasks.reproduce.config import ReproduceConfig, runs_of
from tasks.reproduce.estimate import PREPARE, SMALL_DATA, Estimator, _measure
from tasks.reproduce.execution import Workers
from tasks.reproduce.results import Summary, _option_notes, collect
from tasks.reproduce.table import Cell, EvaluationSpec, RowSpec, TableSpec, TrainingSpec
from tasks.runs.errors import Interrupted, UserError
from tasks.runs.trainer import Trainer
from tasks.sst.config import SentimentConfig
from tests.commands import TINY

OPTIONS = (*TINY["listops"].replace("--epochs 1", "--epochs 2").split(), "--threads", "1")
HARD = EvaluationSpec("listops", ("--test", "10-args", "--size", "3"))


def row(model, *options):
    training = TrainingSpec("listops", (*OPTIONS, "--model", model, *options))
    cells = {"100": Cell(training, ("accuracy",)), "200": Cell(training, ("accuracy",), HARD)}
    return RowSpec(model.upper(), model, cells, {"100": Published(99, 0.5)})


TINY_TABLE = TableSpec(
    title="Tiny",
    columns=("100", "200"),
    rows=(
        row("lstm"),
        RowSpec("Other (literature)", "other", {}, {"200": Published(1.5)}),
    ),
    digits=3,
    axis="tokens",
)


@contextmanager
def commands_in_this_process():
    """Commands run in this process, and are counted by their subcommands."""
    counts = {"train": 0, "evaluate": 0}

    def command(self, words, log):
        module, subcommand, *rest = words
        counts[subcommand] += 1
        return import_module(f"{module}.__main__").main([subcommand, *rest])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workers, "_command", command)
        patch.setitem(TABLES, "tiny", TINY_TABLE)
        yield counts


@pytest.fixture
def commands():
    with commands_in_this_process() as counts:
        yield counts


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A directory with the finished table of two seeds, and its results."""
    directory = tmp_path_factory.mktemp("finished")
    with commands_in_this_process() as counts:
        results = asked(directory, seeds=2)
    assert counts == {"train": 2, "evaluate": 2}
    return directory, results


@pytest.fixture
def again(finished, tmp_path):
    """A copy of that directory."""
    return Path(shutil.copytree(finished[0], tmp_path / "again"))


def asked(directory, **options):
    """Ask for the table; its JSON."""
    run_table("tiny", ReproduceConfig(directory=directory, **options))
    return json.loads((directory / "tiny-paper.json").read_text())


def numbers(results):
    """Values of every cell, by name of the row and column."""
    return {
        row["name"]: {name: cell["values"] for name, cell in row["cells"].items()} for row in results["rows"]
    }


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
    assert results["rows"][1]["cells"]["200"]["published"] == {"mean": 1.5, "deviation": None}
    page = (directory / "tiny-paper.md").read_text()
    assert "(n 2) |" in page
    assert "| LSTM, best | " in page
    assert "| LSTM, published | 99 ± 0.5 | – |" in page
    assert "| Other (literature) | – | 1.5 |" in page
    assert (
        ElementTree.parse(directory / "tiny-paper.svg").getroot().get("aria-label").startswith("accuracy by ")
    )


@pytest.mark.parametrize(("percent", "unit"), [(True, "%"), (False, "")])
def test_a_table_without_runs_has_its_unit_and_the_published_numbers(percent, unit):
    results = collect("tiny", replace(TINY_TABLE, percent=percent), ReproduceConfig(), [])
    assert results.as_json()["unit"] == unit
    assert (", in %." in results.notes()[0]) == percent
    assert results.models[0].summaries == {
        "100": Summary({}, published=Published(99, 0.5)),
        "200": Summary({}),
    }


@pytest.mark.parametrize(
    ("measure", "epochs"),
    [
        ("selection_score", [(-0.2, -0.6), (-3.0, -0.5)]),
        # Older versions did not write it.
        ("validation_accuracy", [(0.9, 0.1), (0.5, 0.6)]),
        ("validation_loss", [(0.2, 0.6), (3.0, 0.5)]),
    ],
)
def test_the_best_seed_is_that_of_the_best_epoch_in_validation(again, commands, measure, epochs):
    runs = runs_of(TINY_TABLE, ReproduceConfig(directory=again, seeds=2))
    for run, scores, accuracy in zip(runs, epochs, (0.25, 0.75), strict=True):
        run.files.write_metrics([{"epoch": n, measure: score} for n, score in enumerate(scores, start=1)])
        run.files.results.write_text(json.dumps({"accuracy": accuracy}))
    cell = asked(again, seeds=2)["rows"][0]["cells"]["100"]
    assert (cell["best"], cell["mean"]) == (25.0, 50.0)
    assert cell["deviation"] == pytest.approx(2 * 25 / 2**0.5)
    best = next(line for line in (again / "tiny-paper.md").read_text().splitlines() if "LSTM, best" in line)
    assert best.startswith("| LSTM, best | 25.000 |")


def test_asked_again_a_table_does_only_what_is_missing(again, finished, commands, capsys):
    found = asked(again, seeds=2)
    assert found["rows"] == finished[1]["rows"]
    assert commands == {"train": 0, "evaluate": 0}
    runs = runs_of(TINY_TABLE, ReproduceConfig(directory=again, seeds=2))
    runs[1].results_of(HARD).unlink()
    states = collect("tiny", TINY_TABLE, ReproduceConfig(), runs).as_json()["runs"]
    assert [state["kind"] for state in json.loads(json.dumps(states))] == ["finished", "trained"]
    run_table("tiny", ReproduceConfig(directory=again, seeds=2, dry_run=True))
    assert "trained after 2 of 2 epochs, 1 of 1 tests left" in capsys.readouterr().out
    assert asked(again, seeds=2)["rows"] == finished[1]["rows"]
    assert commands == {"train": 0, "evaluate": 1}


def test_an_interrupted_run_is_shown_as_such_and_goes_on_to_the_same_numbers(
    tmp_path, finished, commands, capsys
):
    train_batch = Trainer.train_batch

    def stopping(self, batch):
        if self.progress.epoch == 2:
            raise KeyboardInterrupt
        return train_batch(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "train_batch", stopping)
        cut = asked(tmp_path)
    assert numbers(cut)["LSTM"] == {"100": {}, "200": {}}
    (run,) = cut["runs"]
    assert (run["kind"], run["text"]) == ("unfinished", "unfinished after 1 of 2 epochs")
    assert "Not included: listops/" in capsys.readouterr().out
    whole = numbers(finished[1])["LSTM"]
    assert numbers(asked(tmp_path))["LSTM"] == {column: {"1": of["1"]} for column, of in whole.items()}
    assert commands == {"train": 2, "evaluate": 1}


def test_a_higher_time_limit_continues_the_runs_that_a_lower_one_stopped(tmp_path, commands):
    (run,) = runs_of(TINY_TABLE, ReproduceConfig(directory=tmp_path))
    for _ in range(2):
        stopped = asked(tmp_path, max_minutes=1e-6)
        assert f"Ended early: {run.name}, finished after 1 of 2 epochs." in stopped["notes"]
        assert [run["text"] for run in stopped["runs"]] == ["finished after 1 of 2 epochs"]
        assert any(note == "Trained for at most 1e-06 minutes: all." for note in stopped["notes"])
        assert commands == {"train": 1, "evaluate": 1}
    assert Estimator(1).seconds_left(run) == 0
    demo = collect("tiny", TINY_TABLE, ReproduceConfig(), [run])
    assert not any("Ended early" in note for note in replace(demo, preset="demo").notes())
    (longer,) = runs_of(TINY_TABLE, ReproduceConfig(directory=tmp_path, max_minutes=5))
    assert longer.state().text == "unfinished after 1 of 2 epochs"
    finished = asked(tmp_path, max_minutes=5)
    assert [run["text"] for run in finished["runs"]] == ["finished after 2 of 2 epochs"]
    assert not any("Ended early" in note for note in finished["notes"])
    assert commands == {"train": 2, "evaluate": 2}  # the weights that were evaluated may be replaced
    assert list(finished["rows"][0]["cells"]["200"]["values"]) == ["1"]
    assert "Trained for at most 5 minutes: all." in asked(tmp_path, max_minutes=1)["notes"]


def test_a_last_epoch_that_was_cut_short_is_continued(tmp_path, commands):
    asked(tmp_path, max_minutes=1e-6)
    (run,) = runs_of(TINY_TABLE, ReproduceConfig(directory=tmp_path))
    score = {"validation_loss": 1.0}
    run.files.write_metrics([{"epoch": 1} | score, {"epoch": 2, "fraction": 0.253} | score])
    assert run.state().text == "finished after 1.25 of 2 epochs"
    assert (
        f"Ended early: {run.name}, {run.state().text}."
        in collect("tiny", TINY_TABLE, ReproduceConfig(), [run]).notes()
    )
    (longer,) = runs_of(TINY_TABLE, ReproduceConfig(directory=tmp_path, max_minutes=5))
    assert longer.state().text == "unfinished after 1.25 of 2 epochs"


def test_a_limit_that_the_user_has_not_given_continues_no_run(tmp_path, commands):
    asked(tmp_path, max_minutes=1e-6)
    (run,) = runs_of(TINY_TABLE, ReproduceConfig(directory=tmp_path, max_minutes=5))
    assert run.state().needs_training
    assert replace(run, extends=False).state().text == "finished after 1 of 2 epochs"  # as in another demo
    demo = runs_of(TABLES["om-table-3a"], ReproduceConfig(directory=tmp_path, preset="demo"))
    assert not any(run.extends for run in demo)


def test_the_table_says_which_runs_were_not_trained_in_float32(tmp_path, commands):
    said = "Trained with --precision"
    notes = [note for note in asked(tmp_path, precision="64-true")["notes"] if note.startswith(said)]
    assert notes == [f"{said} 64-true: all."]
    both = asked(tmp_path, seeds=2)  # the first run stays as it is
    name, _ = (run.name for run in runs_of(TINY_TABLE, ReproduceConfig(directory=tmp_path, seeds=2)))
    assert [note for note in both["notes"] if note.startswith(said)] == [f"{said} 64-true: {name}."]
    assert commands == {"train": 2, "evaluate": 2}


def test_own_options_of_training_have_runs_and_a_table_of_their_own(again, commands):
    options = ("average-decay=0.5", "adam-betas=0.5 0.9", "restore-best")
    before = (again / "tiny-paper.json").read_text()
    run_table("tiny", ReproduceConfig(directory=again, train_options=options))
    assert (again / "tiny-paper.json").read_text() == before
    name = "average-decay-0.5-adam-betas-0.5-0.9-restore-best"
    results = json.loads((again / f"tiny-paper-{name}.json").read_text())
    assert (
        "All runs were trained with --average-decay 0.5 --adam-betas 0.5 0.9 --restore-best."
        in results["notes"]
    )
    (run,) = results["runs"]
    config = json.loads((Path(run["directory"]) / "config.json").read_text())
    assert (config["average_decay"], config["adam_betas"], config["restore_best"]) == (0.5, [0.5, 0.9], True)
    assert run["directory"].endswith(f"-{name}-seed-1")
    assert (again / f"tiny-paper-{name}.md").exists()
    assert (again / f"tiny-paper-{name}.svg").exists()
    assert commands == {"train": 1, "evaluate": 1}
    asked(again, seeds=2)
    run_table("tiny", ReproduceConfig(directory=again, train_options=options))
    assert commands == {"train": 1, "evaluate": 1}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("seed=2", "must not contain seed, which"),
        ("no-resume", "must not contain no-resume, which"),
        ("run_dir=here", "must not contain run-dir, which"),
        ("model=onlstm", "must not contain model, which"),
        ("precision=64-true", "must not contain precision, which"),
        ("--restore-best", "of the form NAME or NAME=VALUE, got '--restore-best'"),
        ("=2", "of the form NAME or NAME=VALUE, got '=2'"),
        ("adam-betas='0.9", "No closing quotation"),
        ("average-decay=2", r"--average-decay must lie in \[0, 1\), got 2.0"),
        (f"initial-weights={'x' * 300}", "too long for the name of a directory: paper-.*xxx"),
    ],
)
def test_own_options_that_cannot_be_are_refused(tmp_path, option, message):
    with pytest.raises(UserError, match=message):
        runs_of(TINY_TABLE, ReproduceConfig(directory=tmp_path, train_options=(option,)))


def test_the_table_says_that_runs_were_trained_on_generated_data(finished):
    assert "Trained on generated data, which differ by seed: all." in finished[1]["notes"]


def test_a_part_of_a_table_has_files_of_its_own(again, commands):
    before = (again / "tiny-paper.json").read_text()
    run_table("tiny", ReproduceConfig(directory=again, columns=("100",)))
    assert (again / "tiny-paper.json").read_text() == before
    assert json.loads((again / "tiny-paper-100.json").read_text())["columns"] == ["100"]


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


def test_a_run_that_diverges_is_counted_as_such_and_not_tried_again(tmp_path, commands, monkeypatch):
    table = TableSpec("Wild", ("100", "200"), (row("lstm", "--learning-rate", "1e30"),))
    monkeypatch.setitem(TABLES, "tiny", table)
    for _ in range(2):
        results = asked(tmp_path)
        assert results["runs"][0]["kind"] == "diverged"
        assert results["rows"][0]["cells"]["100"]["n"] == 0
    assert commands == {"train": 1, "evaluate": 0}


def test_a_failure_is_named_after_the_table_is_written(tmp_path, commands):
    config = {"listops_data": tmp_path / "nothing"}
    with pytest.raises(UserError, match="1 of 1 runs failed: listops/paper-"):
        asked(tmp_path, **config)
    assert json.loads((tmp_path / "tiny-paper.json").read_text())["runs"][0]["kind"] == "missing"


def test_a_directory_with_a_run_of_other_options_is_refused(again, commands):
    config = next(again.glob("listops/*/config.json"))
    values = json.loads(config.read_text())
    config.write_text(json.dumps(values | {"epochs": 7}))  # how long it may train does not set it apart
    asked(again, seeds=2)
    config.write_text(json.dumps(values | {"slot_size": 7}))
    with pytest.raises(UserError, match="its run has slot_size 7, but the table needs 6"):
        asked(again, seeds=2)


def test_the_data_of_a_run_may_have_moved(again):
    run = runs_of(TINY_TABLE, ReproduceConfig(directory=again, seeds=2))[0]
    run = replace(run, options=(*run.options, "--data-dir", "/here/data"))
    values = json.loads(run.files.config.read_text())
    run.files.config.write_text(json.dumps(values | {"data_dir": "data"}))
    run.check()
    run.files.config.write_text(json.dumps(values))  # its data were drawn
    with pytest.raises(UserError, match="its run has data_dir None, but the table needs /here/data"):
        run.check()


def test_the_plan_of_a_cluster_counts_no_runs_at_a_time(again, monkeypatch, capsys):
    monkeypatch.setattr("tasks.reproduce.estimate._measure", lambda config, task, of_token: 1.0)
    config = ReproduceConfig(directory=again / "none", dry_run=True, executor="slurm")
    run_table("om-figure-3b", replace(config, only=("lstm",)))
    assert "of training left in all, timed on this machine's CPU" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("metrics.jsonl", "3\n", "line 1: expected a JSON object, got 3"),
        ("metrics.jsonl", "[" * 100_000, "line 1: not JSON"),
        ("metrics.jsonl", "", "has no epochs"),
        ("metrics.jsonl", '{"epoch": 1}\n', "line 1: expected validation_loss to be a number, got None"),
        ("metrics.jsonl", '{"loss": 1}\n', "line 1: expected epoch to be a number, got None"),
        ("metrics.jsonl", '{"epoch": 1, "fraction": "a"}\n', "expected fraction to be a number, got 'a'"),
        (
            "metrics.jsonl",
            '{"epoch": 1, "validation_accuracy": NaN}\n',
            "expected validation_accuracy to be a number",
        ),
        (
            "metrics.jsonl",
            '{"epoch": 1, "selection_score": "a"}\n',
            "line 1: expected selection_score to be a number",
        ),
        ("results.json", "3", "expected the results of a run, with a number at ['accuracy']"),
        ("results.json", '{"accuracy": {}}', "expected the results of a run"),
        ("results.json", '{"accuracy": NaN}', "expected the results of a run"),
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


def test_metrics_without_times_give_no_estimate(again):
    (run,) = runs_of(TINY_TABLE, ReproduceConfig(directory=again))
    run.files.results.unlink()
    run.files.write_metrics([{"epoch": 1}])
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 1: expected seconds to be a number"):
        Estimator(1).seconds_left(run)


def test_new_weights_are_evaluated_anew(again, commands):
    runs = runs_of(TINY_TABLE, ReproduceConfig(directory=again, seeds=2))
    run = runs[0]
    later = run.results_of(HARD).stat().st_mtime + 1
    os.utime(run.files.best, (later, later))
    summaries = collect("tiny", TINY_TABLE, ReproduceConfig(), runs).models[0].summaries
    assert [list(summaries[column].values) for column in ("100", "200")] == [[1, 2], [2]]
    asked(again, seeds=2)
    assert commands == {"train": 0, "evaluate": 1}


def test_a_dry_run_of_nothing_measures_each_configuration_once(tmp_path, commands, capsys, monkeypatch):
    steps = []
    train_batch = Trainer.train_batch

    def record(self, batch):
        steps.append(self)
        assert self.unwrapped_model.training  # dropout takes time, too
        return train_batch(self, batch)

    monkeypatch.setattr(Trainer, "train_batch", record)
    config = ReproduceConfig(directory=tmp_path / "runs", seeds=2, dry_run=True)
    run_table("tiny", config)
    assert capsys.readouterr().out.count("missing") == 2
    assert len(set(map(id, steps))) == 1
    assert not (tmp_path / "runs").exists()
    assert commands == {"train": 0, "evaluate": 0}
    (first, _) = runs_of(TINY_TABLE, config)
    assert Estimator(None).seconds_left(first) > 0


def test_estimates_say_once_what_takes_the_time(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tasks.reproduce.estimate._measure", lambda config, task, of_token: 1.0)
    monkeypatch.setattr("tasks.runs.threads._load_average", lambda: 9.0)
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    estimator = Estimator(None)
    runs = runs_of(TABLES["om-table-1"], ReproduceConfig(directory=tmp_path))
    for run in runs:
        assert estimator.seconds_left(run) > 0
    timing, *lines = capsys.readouterr().err.splitlines()
    assert timing.split()[0] == "timing"
    assert [line.split()[0] for line in lines if not line.startswith("  ")] == ["warning:"]
    timed = [line.strip() for line in lines if line.startswith("  ")]
    assert len(set(timed)) == len(timed) > 1
    assert set(timed) <= {run.name for run in runs}


def test_a_dry_run_whose_data_cannot_be_read_says_why(tmp_path, capsys):
    config = ReproduceConfig(
        directory=tmp_path,
        text_data=tmp_path / "nothing",
        vectors=("v",),
        only=("onlstm",),
        dry_run=True,
    )
    run_table("on-table-1", config)
    output, error = capsys.readouterr()
    assert "warning: --vectors v has no effect in the runs of this table\n" in error
    assert "1 not estimated, since their data cannot be read" in output
    assert f"{tmp_path / 'nothing'}: no such directory" in error


@pytest.mark.parametrize(
    ("table", "name", "message"),
    [("on-table-2", "treebank", "drop-tags"), ("on-table-3", "pairs", "not JSON")],
)
def test_a_bad_treebank_or_file_of_pairs_is_refused_before_training(tmp_path, commands, table, name, message):
    (tmp_path / "file").write_text("(S (NOUN a) (VERB b))")
    config = ReproduceConfig(directory=tmp_path, text_data=tmp_path, **{name: tmp_path / "file"})
    with pytest.raises(UserError, match=message):
        run_table(table, config)
    assert commands == {"train": 0, "evaluate": 0}


def test_a_time_limit_bounds_an_estimate(tmp_path):
    run, *_ = runs_of(TABLES["om-table-1"], ReproduceConfig(directory=tmp_path, max_minutes=5))
    assert Estimator(1).seconds_left(run) == 5 * 60


@pytest.mark.parametrize(("max_minutes", "seconds"), [(5, 5 * 60 - 120), (None, 48 * 60)])
def test_what_has_been_trained_counts_toward_the_limit_of_an_estimate(again, max_minutes, seconds):
    run, _ = runs_of(TINY_TABLE, ReproduceConfig(directory=again, seeds=2, max_minutes=max_minutes))
    run.files.results.unlink()
    values = json.loads(run.files.config.read_text())
    run.files.config.write_text(json.dumps(values | {"epochs": 50}))
    run.files.write_metrics([{"epoch": 1, "seconds": 60.0}, {"epoch": 2, "seconds": 120.0}])
    assert Estimator(1).seconds_left(run) == seconds


def test_an_epoch_that_was_cut_short_is_no_measure_of_a_whole_one(again):
    run, _ = runs_of(TINY_TABLE, ReproduceConfig(directory=again, seeds=2))
    run.files.results.unlink()
    values = json.loads(run.files.config.read_text())
    run.files.config.write_text(json.dumps(values | {"epochs": 50}))
    run.files.write_metrics([{"epoch": 1, "seconds": 6.0, "fraction": 0.125}])
    assert Estimator(1).seconds_left(run) == 50 * 48 - 6


@pytest.mark.parametrize(
    ("hours", "jobs", "total"),
    [([10], 4, 10), ([10, 1, 1], 3, 10), ([1, 1, 1, 1, 4], 2, 6), ([2, 3], 1, 5), ([3, 1, 1, 1], 2, 3)],
)
def test_the_time_of_several_jobs_is_that_of_the_last_to_end(hours, jobs, total):
    assert _time_of_all(hours, jobs) == total


def test_an_estimate_counts_the_tokens_of_all_training_examples(tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.reproduce.estimate._measure", lambda config, task, of_token: 1.0)
    runs = runs_of(TABLES["om-figure-3b"], ReproduceConfig(directory=tmp_path, only=("lstm",)))
    examples = [1_000, 5_000, 10_000, 20_000, 40_000, 76_001]
    estimates = [Estimator(1).seconds_left(run) for run in runs]
    tokens = [number / 76_001 * 1_679_016 for number in examples]
    assert estimates == pytest.approx([50 * number for number in tokens])  # 50 epochs, a second for a token


@pytest.mark.parametrize("option", ["expressions=300", "max-train-length=12"])
def test_an_estimate_of_other_data_counts_their_epochs(tmp_path, monkeypatch, option):
    monkeypatch.setattr("tasks.reproduce.estimate._measure", lambda config, task, of_token: 1.0)
    config = ReproduceConfig(directory=tmp_path, only=("lstm",), columns=("1000",), train_options=(option,))
    (run,) = runs_of(TABLES["om-figure-3b"], config)
    assert Estimator(1).seconds_left(run) == 50  # a second for an epoch


@pytest.mark.parametrize("task", ["listops", "logic"])
def test_timed_steps_are_spread_over_the_lengths(monkeypatch, task):
    """Where a step takes a second for each of its tokens, so does the estimate, whichever steps are timed."""
    clock, timed = [0.0], []

    def train_batch(self, batch):
        timed.append(int(self.objective.train.sentence_lengths[batch].sum()))
        clock[0] += timed[-1] / 1e6

    monkeypatch.setattr(Trainer, "train_batch", train_batch)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    subcommand = import_module(f"tasks.{task}.__main__").SUBCOMMANDS["train"]
    config = replace(subcommand.presets(None)["paper"], **SMALL_DATA[task])
    assert _measure(config, task, of_token=True) == pytest.approx(1e-6)
    _, *timed = timed  # the first step is not timed
    every = [int(batch) for batch in sorted(timed)]
    assert len(every) == 5
    assert every[0] < every[2] < every[4]
    data = PREPARE[task](config).objective
    sizes = sorted(int(data.train.sentence_lengths[batch].sum()) for batch in data.training_batches(1, 128))
    assert sizes.index(every[2]) == len(sizes) // 2


def test_the_epoch_of_a_task_without_small_data_has_all_of_its_tokens(monkeypatch):
    clock = [0.0]

    def train_batch(self, batch):
        clock[0] += float(self.objective.train.sentence_lengths[batch].sum())

    monkeypatch.setattr(Trainer, "train_batch", train_batch)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    config = SentimentConfig(generated=40, vectors=("none",), batch_size=4, slot_size=8)
    tokens = PREPARE["sst"](config).objective.train.sentence_lengths.sum()
    assert _measure(config, "sst", of_token=False) == pytest.approx(float(tokens))


@pytest.mark.parametrize("model", ["onlstm", "prpn"])
def test_steps_of_a_language_model_are_timed(model):
    sizes = {"embedding_size": 20, "hidden_size": 20, "num_layers": 1}
    config = LanguageModelConfig(model=model, sentences=1000, batch_size=4, bptt=5, **sizes)
    assert _measure(config, "language_model", of_token=False) > 0


def test_a_budget_is_in_hours(tmp_path, commands, monkeypatch):
    deadlines = []
    monkeypatch.setattr(Workers, "run", lambda self, jobs: deadlines.append(self.deadline) or [])
    monkeypatch.setattr("time.monotonic", lambda: 1_000.0)
    asked(tmp_path, budget=2.0)
    assert deadlines == [1_000 + 2 * 3600]


def test_the_time_of_a_job_is_in_hours(tmp_path, commands, monkeypatch):
    submitted = []
    monkeypatch.setattr(
        "tasks.reproduce.commands.submit", lambda jobs, folder, **options: submitted.append(options) or []
    )
    asked(tmp_path, executor="slurm", time=1.5, gpus=2)
    assert submitted == [{"deadline": None, "timeout_min": 90, "gpus_per_node": 2, "cpus_per_task": 1}]


def test_a_stopped_table_says_how_to_go_on(tmp_path, commands, monkeypatch):
    def stopped(self, words, log):
        raise KeyboardInterrupt

    monkeypatch.setattr(Workers, "_command", stopped)
    with pytest.raises(Interrupted, match="run the same command again to continue"):
        asked(tmp_path)
    assert not (tmp_path / "tiny-paper.json").exists()
