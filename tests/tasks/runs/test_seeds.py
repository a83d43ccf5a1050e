"""Training with several seeds."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.classifiers.report import values_to_summarize
from tasks.language_model.__main__ import main as language_model
from tasks.listops.__main__ import main
from tasks.listops.config import ListOpsConfig
from tasks.logic.config import LogicConfig
from tasks.runs.errors import UserError
from tasks.runs.run_directory import RunDirectory
from tasks.runs.saved_config import config_to_dict
from tasks.runs.seeds import train_seeds

SUMMARY = '{"runs": {}, "diverged": [], "results": {}}'
RESULTS = {"accuracy": 0.5, "accuracy_by": {}, "span_f1": {}, "valid_trees": {}}
TINY = [
    *("--model", "mean", "--expressions", "60", "--validation-size", "6", "--embedding-size", "4"),
    *("--epochs", "1"),
]


def test_seeds_without_a_directory_have_the_directories_of_single_runs():
    config = ListOpsConfig(seeds=2, seed=3)
    assert config.given_directory is None
    assert config.directory == ListOpsConfig(seed=3).directory


def test_seeds_of_a_wrong_type_are_an_error_before_any_run():
    with pytest.raises(UserError, match="seeds"):
        train_seeds(lambda config: pytest.fail("trained"), ListOpsConfig(seeds="2"), values_to_summarize)


def test_several_seeds_do_not_go_into_the_directory_of_a_run(tmp_path):
    (tmp_path / "best.safetensors").write_bytes(b"")
    config = ListOpsConfig(expressions=200, validation_size=9, seeds=2, run_dir=tmp_path)
    with pytest.raises(UserError, match=f"{tmp_path}: already holds a run"):
        train_seeds(lambda config: pytest.fail("it trains"), config, values_to_summarize)


def test_a_finished_run_is_trained_again_if_its_data_are_elsewhere_now(tmp_path):
    config = LogicConfig(seeds=2, data_dir=tmp_path / "new", run_dir=tmp_path / "runs", resume=True)
    for seed, data in ((1, "new"), (2, "old")):
        run = RunDirectory(tmp_path / "runs" / f"seed-{seed}")
        run.path.mkdir(parents=True)
        saved = config_to_dict(replace(config, seed=seed, seeds=1, data_dir=tmp_path / data))
        run.config.write_text(json.dumps(saved))
        run.results.write_text(json.dumps(RESULTS))
    (tmp_path / "runs" / "seed-1-to-2.json").write_text(SUMMARY)
    trained = []

    def train(config):
        trained.append(config.seed)
        raise UserError("this run was started with other training or validation data")

    with pytest.raises(UserError, match="other training or validation data"):
        train_seeds(train, config, values_to_summarize)
    assert trained == [2]
    assert (tmp_path / "runs" / "seed-1-to-2.json").exists()


def test_groups_that_a_seed_lacks_stand_among_the_others_in_the_summary(tmp_path):
    def train(config):
        run = RunDirectory(config.run_dir)
        run.path.mkdir(parents=True)
        depths = ["1", "4", "9"] if config.seed == 1 else ["1", "2", "6", "9", "10"]
        groups = {"depth": {depth: [0.5, 2] for depth in depths}}
        scores = {"corpus level": {"model": 0.5}}
        run.results.write_text(json.dumps(RESULTS | {"accuracy_by": groups, "span_f1": scores}))

    train_seeds(train, ListOpsConfig(seeds=2, run_dir=tmp_path), values_to_summarize)
    results = json.loads((tmp_path / "seed-1-to-2.json").read_text())["results"]
    depths = [f"depth {depth}" for depth in (1, 2, 4, 6, 9, 10)]
    assert list(results) == ["accuracy", *depths, "F1, corpus level"]
    assert [row["n"] for row in results.values()] == [2, 2, 1, 1, 1, 2, 1, 2]


@pytest.mark.parametrize("prefix", ["seed-", "paper-C-lstm-", "small-2-lstm-"])
@pytest.mark.parametrize("changing", [1, 2, 3])
@pytest.mark.parametrize("is_here", [False, True])
def test_what_summarizes_a_run_goes_when_its_results_do(tmp_path, monkeypatch, changing, prefix, is_here):
    names = [f"{prefix}{first}-to-{first + 1}.json" for first in (1, 2, 3)]
    others = [f"{prefix}1-to-9.json", "other-1-to-3.json", f"{prefix}10-to-30.json"]
    for name in names + others[1:]:
        (tmp_path / name).write_text(SUMMARY)
    (tmp_path / others[0]).write_text("{}")  # is no summary
    run = RunDirectory(tmp_path / f"{prefix}{changing}")
    run.path.mkdir()
    run.results.write_text("{}")
    if is_here:
        monkeypatch.chdir(run.path)
    RunDirectory(Path() if is_here else run.path).remove_results()
    assert not run.results.exists()
    left = {path.name for path in tmp_path.glob("*.json")}
    kept = [names[i] for i in range(3) if changing not in (i + 1, i + 2)]
    assert left == {*others, *kept}


def test_finished_runs_with_data_of_their_own_are_not_read_again(tmp_path, monkeypatch):
    command = ["train", *TINY, "--run-dir", str(tmp_path), "--seeds", "2"]
    assert main(command) == 0
    monkeypatch.setattr("tasks.classifiers.task.run_experiment", None)
    assert main([*command, "--resume"]) == 0


def test_the_summary_goes_when_one_of_its_runs_is_trained_further_and_only_then(tmp_path, capsys):
    summary = tmp_path / "seed-1-to-2.json"
    assert main(["train", *TINY, "--run-dir", str(tmp_path), "--seeds", "2"]) == 0
    refused = ["--seeds", "2", "--resume", "--patience", "7"]
    assert main(["train", *TINY, "--run-dir", str(tmp_path), *refused]) == 2
    assert "--patience 7" in capsys.readouterr().err
    assert summary.exists()
    again = ["--seeds", "2", "--resume"]
    assert main(["train", *TINY, "--run-dir", str(tmp_path), *again]) == 0
    (tmp_path / "seed-2" / "results.json").unlink()  # then it is tested again, perhaps with other options
    assert main(["train", *TINY, "--run-dir", str(tmp_path / "seed-2"), "--seed", "2", "--resume"]) == 0
    assert not summary.exists()
    assert main(["train", *TINY, "--run-dir", str(tmp_path), *again]) == 0
    assert summary.exists()
    more = ["--seed", "2", "--resume", "--epochs", "2"]
    assert main(["train", *TINY, "--run-dir", str(tmp_path / "seed-2"), *more]) == 0
    assert not summary.exists()


def test_damaged_results_are_computed_again(tmp_path):
    assert main(["train", *TINY, "--run-dir", str(tmp_path), "--seeds", "2"]) == 0
    results = tmp_path / "seed-2" / "results.json"
    before = results.read_text()
    for damaged in ("{", "[]", '{"accuracy": "good"}'):
        results.write_text(damaged)
        assert main(["train", *TINY, "--run-dir", str(tmp_path), "--seeds", "2", "--resume"]) == 0
        assert results.read_text() == before


def test_the_mean_is_over_runs_that_were_tested_on_the_same_data(tmp_path):
    for name, count in (("train", 30), ("valid", 4), ("test", 4)):
        (tmp_path / f"{name}.txt").write_text("a b\nb a c\n" * count)
    train = [
        *("train", "--data-dir", str(tmp_path), "--model", "lstm", "--epochs", "1", "--batch-size", "2"),
        *("--embedding-size", "4", "--hidden-size", "4", "--run-dir", str(tmp_path / "runs")),
    ]
    assert language_model([*train, "--seeds", "2"]) == 0
    (tmp_path / "test.txt").write_text("a b\n")
    unchanged = (tmp_path / "runs" / "seed-2" / "best.safetensors").read_bytes()
    assert language_model([*train, "--seeds", "3", "--resume"]) == 0
    results = [json.loads((tmp_path / f"runs/seed-{seed}/results.json").read_text()) for seed in (1, 2, 3)]
    assert [result["test_tokens"] for result in results] == [3, 3, 3]
    values = json.loads((tmp_path / "runs" / "seed-1-to-3.json").read_text())["results"]["test perplexity"]
    assert list(values["values"].values()) == [result["test_perplexity"] for result in results]
    assert (tmp_path / "runs" / "seed-2" / "best.safetensors").read_bytes() == unchanged


def test_a_run_and_the_runs_of_several_seeds_have_directories_of_their_own(tmp_path, capsys):
    assert main(["train", *TINY, "--run-dir", str(tmp_path / "seeds"), "--seeds", "2"]) == 0
    assert main(["train", *TINY, "--run-dir", str(tmp_path / "one")]) == 0
    capsys.readouterr()
    assert main(["train", *TINY, "--run-dir", str(tmp_path / "seeds"), "--resume"]) == 2
    assert "seeds: holds runs of several seeds; use --seeds, or name one: " in capsys.readouterr().err
    for resume in ([], ["--resume"]):
        assert main(["train", *TINY, "--run-dir", str(tmp_path / "one"), "--seeds", "2", *resume]) == 2
        assert "one: already holds a run; --seeds needs another --run-dir" in capsys.readouterr().err
    assert not (tmp_path / "seeds" / "config.json").exists()
    assert not (tmp_path / "one" / "seed-1").exists()
