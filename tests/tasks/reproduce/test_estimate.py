"""How long the runs of a table take: from what they have had, or from a few timed steps."""

import json
from dataclasses import replace
from importlib import import_module

import pytest

from tasks.language_model.config import LanguageModelConfig
from tasks.reproduce.commands import TABLES, _time_of_all, run_table
from tasks.reproduce.config import ReproduceConfig, runs_of
from tasks.reproduce.estimate import PREPARE, SMALL_DATA, Estimator, _measure
from tasks.runs.errors import UserError
from tasks.runs.saved_config import config_to_dict
from tasks.runs.trainer import Trainer
from tasks.sst.config import SentimentConfig
from tests.tasks.reproduce.tiny import TINY_TABLE


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"executor": "slurm"}, " in all, timed on this machine's CPU\n"),
        ({}, ", one after another\n"),
        ({"jobs": 2}, ", 2 at a time\n"),
    ],
)
def test_the_plan_says_how_many_runs_are_trained_at_a_time(again, monkeypatch, capsys, options, where):
    monkeypatch.setattr("tasks.reproduce.estimate._measure", lambda config, task, of_token: 1.0)
    config = ReproduceConfig(directory=again / "none", dry_run=True, **options)
    run_table("om-figure-3b", replace(config, only=("lstm",)))
    assert f"of training left{where}" in capsys.readouterr().out


def test_metrics_without_times_give_no_estimate(again):
    (run,) = runs_of(TINY_TABLE, ReproduceConfig(directory=again))
    run.files.results.unlink()
    run.files.write_metrics([{"epoch": 1, "fraction": 1.0}])
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 1: expected seconds to be a number"):
        Estimator(1).seconds_left(run)


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


def test_a_dry_run_for_a_cluster_with_more_cores_says_why_nothing_is_timed(tmp_path, capsys):
    config = ReproduceConfig(
        directory=tmp_path, executor="slurm", threads=9999, only=("lstm",), columns=("7",), dry_run=True
    )
    run_table("om-table-1", config)
    output, error = capsys.readouterr()
    assert output.endswith("1 run; 1 not estimated, since this machine has fewer cores than --threads\n")
    assert "--threads must be at most" in error


def test_a_time_limit_bounds_an_estimate_and_nothing_is_timed(tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.reproduce.estimate._measure", lambda *_, **__: pytest.fail("timed"))
    run, *_ = runs_of(TABLES["om-table-1"], ReproduceConfig(directory=tmp_path, max_minutes=5))
    assert Estimator(1).seconds_left(run) == 5 * 60


def test_a_run_that_was_stopped_in_its_first_epoch_keeps_its_time_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.reproduce.estimate._measure", lambda *_, **__: pytest.fail("timed"))
    (run,) = runs_of(TINY_TABLE, ReproduceConfig(directory=tmp_path, max_minutes=5))
    run.files.path.mkdir(parents=True)
    run.files.last.touch()
    run.files.config.write_text(json.dumps(config_to_dict(run.config)))
    (run,) = runs_of(TINY_TABLE, ReproduceConfig(directory=tmp_path))
    assert Estimator(1).seconds_left(run) == 5 * 60


@pytest.mark.parametrize(("max_minutes", "seconds"), [(5, 5 * 60 - 120), (60, 48 * 60), (None, 48 * 60)])
def test_what_has_been_trained_counts_toward_the_limit_of_an_estimate(again, max_minutes, seconds):
    run, _ = runs_of(TINY_TABLE, ReproduceConfig(directory=again, seeds=2, max_minutes=max_minutes))
    run.files.results.unlink()
    values = json.loads(run.files.config.read_text())
    run.files.config.write_text(json.dumps(values | {"epochs": 50}))
    run.files.write_metrics([{"epoch": n, "seconds": 60.0 * n, "fraction": 1.0} for n in (1, 2)])
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


def test_epochs_of_short_examples_are_no_measure_of_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.reproduce.estimate._measure", lambda config, task, of_token: 1.0)
    config = ReproduceConfig(directory=tmp_path, preset="curriculum", only=("lstm",), columns=("1000",))
    (run,) = runs_of(TABLES["om-figure-3b"], config)
    whole = Estimator(1).seconds_left(run) / 50
    run.files.path.mkdir(parents=True)
    run.files.last.touch()
    run.files.config.write_text(json.dumps(config_to_dict(run.config)))
    history = [{"epoch": number, "seconds": 2.0 * number, "fraction": 1.0} for number in range(1, 7)]
    run.files.write_metrics(history)
    assert Estimator(1).seconds_left(run) == pytest.approx(44 * whole)
    run.files.write_metrics([*history, {"epoch": 7, "seconds": 112.0, "fraction": 0.5}])
    assert Estimator(1).seconds_left(run) == pytest.approx(43.5 * 200)


@pytest.mark.parametrize("preset", ["paper", "curriculum"])
@pytest.mark.parametrize("task", ["listops", "logic"])
def test_timed_steps_are_spread_over_the_lengths(monkeypatch, task, preset):
    """Where a step takes a second for each of its tokens, so does the estimate, whichever steps are timed."""
    clock, timed = [0.0], []

    def train_batch(self, batch):
        timed.append(int(self.objective.train.sentence_lengths[batch].sum()))
        clock[0] += timed[-1] / 1e6

    monkeypatch.setattr(Trainer, "train_batch", train_batch)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    subcommand = import_module(f"tasks.{task}.__main__").SUBCOMMANDS["train"]
    config = replace(subcommand.presets(None)[preset], **SMALL_DATA[task])
    assert _measure(config, task, of_token=True) == pytest.approx(1e-6)
    _, *timed = timed  # the first step is not timed
    every = [int(batch) for batch in sorted(timed)]
    assert len(every) == 5
    assert every[0] < every[2] < every[4]
    data = PREPARE[task](config).objective
    batches = data.training_batches(config.short_epochs + 1, 128)
    sizes = sorted(int(data.train.sentence_lengths[batch].sum()) for batch in batches)
    assert sizes.index(every[2]) == len(sizes) // 2
    assert every == [sizes[(2 * i + 1) * len(sizes) // 10] for i in range(5)]  # the middle of each fifth


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
