"""Training with several seeds."""

import json
from dataclasses import replace

import pytest

from tasks.classifiers.report import values_to_summarize
from tasks.listops.config import ListOpsConfig
from tasks.logic.config import LogicConfig
from tasks.runs.errors import UserError
from tasks.runs.run_directory import RunDirectory
from tasks.runs.saved_config import config_to_dict
from tasks.runs.seeds import train_seeds


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
        run.results.write_text(json.dumps({"accuracy": 0.5, "span_f1": {}, "accuracy_by": {}}))
    (tmp_path / "runs" / "seed-1-to-2.json").write_text("{}")
    trained = []

    def train(config):
        trained.append(config.seed)
        raise UserError("this run was started with other training or validation data")

    with pytest.raises(UserError, match="other training or validation data"):
        train_seeds(train, config, values_to_summarize)
    assert trained == [2]
    assert (tmp_path / "runs" / "seed-1-to-2.json").exists()


@pytest.mark.parametrize("changing", [1, 2, 3])
def test_what_summarizes_a_run_goes_before_the_run_is_trained_again(tmp_path, changing):
    names = [f"seed-{first}-to-{first + 1}.json" for first in (1, 2, 3)]
    for name in names:
        (tmp_path / name).write_text("{}")

    def train(config):
        raise UserError("stopped")

    with pytest.raises(UserError, match="stopped"):
        train_seeds(
            train, LogicConfig(seed=changing, seeds=3, run_dir=tmp_path, resume=True), values_to_summarize
        )
    left = [name for name in names if (tmp_path / name).exists()]
    assert left == [name for name in names if str(changing) not in name]
