"""A tiny table from nothing to its end: interrupted, diverged, failed, asked for again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.reproduce.commands import TABLES, run_table
from tasks.reproduce.config import ReproduceConfig, runs_of
from tasks.reproduce.estimate import Estimator
from tasks.reproduce.execution import Workers
from tasks.reproduce.output import write
from tasks.reproduce.results import collect
from tasks.reproduce.runs import Kind
from tasks.reproduce.table import CommandSpec, TableSpec
from tasks.runs.errors import Interrupted, UserError
from tasks.runs.trainer import Trainer
from tests.tasks.reproduce.tiny import HARD, OPTIONS, TINY_TABLE, asked, row


def numbers(results):
    """Values of every cell, by name of the row and column."""
    return {
        row["name"]: {name: cell["values"] for name, cell in row["cells"].items()} for row in results["rows"]
    }


def test_asked_again_a_table_does_only_what_is_missing(again, finished, commands, capsys):
    found = asked(again, seeds=2)
    assert found["rows"] == finished[1]["rows"]
    assert commands == {"train": 0, "evaluate": 0}
    output = capsys.readouterr().out
    assert "are not done" not in output
    files = [again / f"tiny-paper.{ending}" for ending in ("md", "json", "svg")]
    assert output.splitlines()[-3:] == [f"written: {path}" for path in files]
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
    assert not any(
        "Ended early" in note for note in replace(demo, config=ReproduceConfig(preset="demo")).notes()
    )
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
    run.files.write_metrics(
        [{"epoch": n, "fraction": part, "selection_score": -1.0} for n, part in ((1, 1.0), (2, 0.253))]
    )
    assert run.state().text == "finished after 1.25 of 2 epochs"
    assert (
        f"Ended early: {run.name}, {run.state().text}."
        in collect("tiny", TINY_TABLE, ReproduceConfig(), [run]).notes()
    )
    (longer,) = runs_of(TINY_TABLE, ReproduceConfig(directory=tmp_path, max_minutes=5))
    assert longer.state().text == "unfinished after 1.25 of 2 epochs"


def test_a_run_that_was_stopped_in_its_first_epoch_is_unfinished_after_none(again):
    run, _ = runs_of(TINY_TABLE, ReproduceConfig(directory=again, seeds=2))
    run.files.results.unlink()
    run.files.metrics.unlink()
    assert run.state() == (Kind.TRAINING_LEFT, 0, "unfinished after 0 of 2 epochs")
    run.files.last.unlink()
    assert run.state() == (Kind.MISSING, 0, "missing")


def test_a_limit_that_the_user_has_not_given_continues_no_run(tmp_path, commands):
    asked(tmp_path, max_minutes=1e-6)
    (run,) = runs_of(TINY_TABLE, ReproduceConfig(directory=tmp_path, max_minutes=5))
    assert run.state().needs_training
    assert replace(run, extends=False).state().text == "finished after 1 of 2 epochs"  # as in another demo
    demo = runs_of(TABLES["om-table-3a"], ReproduceConfig(directory=tmp_path, preset="demo"))
    assert not any(run.extends for run in demo)


@pytest.mark.parametrize(("epochs", "limit"), [(7, None), (2, 1)])
def test_a_run_that_no_time_limit_stopped_is_not_continued(again, epochs, limit):
    run, _ = runs_of(TINY_TABLE, ReproduceConfig(directory=again, seeds=2, max_minutes=5))
    values = json.loads(run.files.config.read_text())
    run.files.config.write_text(json.dumps(values | {"epochs": epochs, "max_minutes": limit}))
    assert run.state().kind == Kind.FINISHED


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
        ("restore-best=--model=onlstm", "must not contain model, which"),
        ("restore-best=--no-resume", "must not contain no-resume, which"),
        ("precision=64-true", "must not contain precision, which"),
        ("--restore-best", "of the form NAME or NAME=VALUE, got '--restore-best'"),
        ("=2", "of the form NAME or NAME=VALUE, got '=2'"),
        ("adam-betas='0.9", "No closing quotation"),
        ("average-decay=2", r"--average-decay must lie in \[0, 1\), got 2.0"),
        ("nonsense=3", "--train-options: python -m tasks.listops train does not accept --nonsense 3"),
        ("patience=x", "--train-options: python -m tasks.listops train does not accept --patience x"),
        (f"initial-weights={'x' * 300}", "too long for the name of a directory: paper-.*xxx"),
    ],
)
def test_own_options_that_cannot_be_are_refused(tmp_path, option, message):
    with pytest.raises(UserError, match=message):
        runs_of(TINY_TABLE, ReproduceConfig(directory=tmp_path, train_options=(option,)))


def test_a_part_of_a_table_has_files_of_its_own(again, commands):
    before = (again / "tiny-paper.json").read_text()
    run_table("tiny", ReproduceConfig(directory=again, columns=("100",)))
    assert (again / "tiny-paper.json").read_text() == before
    assert json.loads((again / "tiny-paper-100.json").read_text())["columns"] == ["100"]


def test_the_files_of_a_table_have_names_that_a_file_system_allows(tmp_path):
    columns = TABLES["on-table-3"].columns
    names = {
        path.name
        for selected in (columns[:6], columns[:7])
        for path in write(
            collect("on-table-3", TABLES["on-table-3"], ReproduceConfig(columns=selected), []), tmp_path
        )
    }
    assert len(names) == 4
    assert max(map(len, names)) == 245


def test_a_path_that_is_no_unicode_is_written_with_its_bytes(tmp_path):
    config = ReproduceConfig(train_options=("initial-weights=\udcff.safetensors",))
    page, *_ = write(collect("tiny", TINY_TABLE, config, []), tmp_path)
    assert "--initial-weights \\udcff.safetensors" in page.read_text()


@pytest.mark.parametrize(
    "paths",
    [
        ("a/b.mrg", "a-b.mrg", "a b.mrg", "a--b.mrg"),
        ("-a", "a", "a-"),
        [f"{'漢' * length}.mrg" for length in (80, 81, 100)],
    ],
)
def test_the_results_of_each_treebank_have_a_file_of_their_own(tmp_path, paths):
    def results(path):
        config = ReproduceConfig(directory=tmp_path, text_data=Path("text"), treebank=Path(path))
        run = runs_of(TABLES["on-table-2"], config)[0]
        return run.results_of(CommandSpec("parsing"))

    files = {results(path) for path in paths}
    assert len(files) == len(paths)
    assert all(len(file.name.encode()) < 255 for file in files)


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


def test_a_directory_that_cannot_be_written_is_refused_before_training(tmp_path, commands, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(UserError, match=f"^--directory {tmp_path}: no permission to write$"):
        run_table("tiny", ReproduceConfig(directory=tmp_path))
    assert commands == {"train": 0, "evaluate": 0}
    run_table("tiny", ReproduceConfig(directory=tmp_path, dry_run=True))  # writes nothing


def test_a_treebank_and_pairs_that_no_run_uses_are_not_read(again, commands):
    asked(again, seeds=2, treebank=again / "nothing", pairs=again / "nothing")


def test_a_budget_is_in_hours(tmp_path, commands, monkeypatch):
    deadlines = []
    monkeypatch.setattr(Workers, "run", lambda self, jobs: deadlines.append(self.deadline) or [])
    monkeypatch.setattr("time.monotonic", lambda: 1_000.0)
    asked(tmp_path, budget=2.0)
    assert deadlines == [1_000 + 2 * 3600]


def test_with_several_jobs_each_run_prints_to_a_log_of_its_own(tmp_path, commands, monkeypatch):
    logs = []
    monkeypatch.setattr(Workers, "run", lambda self, jobs: logs.extend(job.log for job in jobs) or [])
    asked(tmp_path)
    asked(tmp_path, seeds=2, jobs=2)
    runs = runs_of(TINY_TABLE, ReproduceConfig(directory=tmp_path, seeds=2))
    assert logs == [None, *(run.files.path / "log.txt" for run in runs)]


def test_the_commands_of_a_run_have_its_options_and_threads(tmp_path):
    options = {"precision": "64-true", "max_minutes": 5.0, "train_options": ("patience=3",)}
    (run,) = runs_of(TINY_TABLE, ReproduceConfig(directory=tmp_path, **options))
    path = tmp_path / run.name
    train = ["tasks.listops", "train", "--preset", "paper", *OPTIONS, "--model", "lstm", "--patience", "3"]
    train += ["--precision", "64-true", "--max-minutes", "5.0", "--seed", "1", "--run-dir", path, "--resume"]
    evaluate = ["tasks.listops", "evaluate", "--test", "10-args", "--size", "3"]
    evaluate += ["--checkpoint", path / "best.safetensors", "--json", run.results_of(HARD)]
    for threads, words in ((None, []), (3, ["--threads", "3"])):
        expected = [tuple(map(str, [*command, *words])) for command in (train, evaluate)]
        assert list(run.commands(threads)) == expected


@pytest.mark.parametrize(
    ("options", "threads"),
    [
        ({}, None),
        ({"jobs": 2}, 4),
        ({"jobs": 3}, 2),
        ({"jobs": 9}, 1),
        ({"jobs": 2, "threads": 3}, 3),
        ({"executor": "slurm"}, None),
        ({"executor": "slurm", "threads": 3}, 3),
    ],
)
def test_jobs_share_the_cores(options, threads, monkeypatch):
    monkeypatch.setattr("tasks.reproduce.config.count_cores", lambda: 8)
    assert ReproduceConfig(**options).threads_of_a_run == threads


def test_the_time_of_a_job_is_in_hours_and_at_least_a_minute(tmp_path, commands, monkeypatch):
    submitted = []

    def submit(jobs, folder, **options):
        assert [job.log for job in jobs] == [None]  # submitit writes one
        submitted.append(options)
        return []

    monkeypatch.setattr("tasks.reproduce.commands.submit", submit)
    asked(tmp_path, executor="slurm", time=1.5, gpus=2)
    assert submitted == [{"deadline": None, "timeout_min": 90, "gpus_per_node": 2, "cpus_per_task": 1}]
    asked(tmp_path, executor="slurm", time=0.005)
    assert submitted[1] == {"deadline": None, "timeout_min": 1, "cpus_per_task": 1}


def test_a_stopped_table_says_how_to_go_on(tmp_path, commands, monkeypatch):
    def stopped(self, words, log):
        raise KeyboardInterrupt

    monkeypatch.setattr(Workers, "_command", stopped)
    with pytest.raises(Interrupted, match="run the same command again to continue"):
        asked(tmp_path)
    assert not (tmp_path / "tiny-paper.json").exists()
