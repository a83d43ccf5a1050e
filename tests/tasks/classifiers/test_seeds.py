"""Runs with several seeds may have the same data."""

import json
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

from tasks.classifiers.seeds import train_seeds
from tasks.listops.config import ListOpsConfig
from tasks.listops.task import LISTOPS
from tasks.logic.config import LogicConfig
from tasks.logic.task import LOGIC
from tasks.runs.errors import UserError
from tasks.runs.run_directory import RunDirectory
from tasks.runs.saved_config import config_to_dict
from tasks.sst.config import SentimentConfig
from tasks.sst.task import SST

TASKS = {
    "listops": (LISTOPS, lambda **seeds: ListOpsConfig(expressions=200, validation_size=9, **seeds)),
    "logic": (LOGIC, lambda **seeds: LogicConfig(generated=300, **seeds)),
    "sst": (SST, lambda **seeds: SentimentConfig(generated=40, vectors=("none",), **seeds)),
}


def examples(data):
    return [[sentence.tokens for sentence in data.sentences(index)] for index in range(len(data.labels))]


@pytest.mark.parametrize("name", TASKS)
def test_the_seed_of_the_data_is_that_of_the_run_unless_it_is_given(name):
    task, config = TASKS[name]
    one, other = (task.load_splits(config(seed=seed, data_seed=5)) for seed in (3, 4))
    for part, other_part in zip(one, other, strict=True):
        assert examples(part) == examples(other_part)
        assert np.array_equal(part.labels, other_part.labels)
    drawn, of_seed_5 = (task.load_splits(config(seed=seed)) for seed in (4, 5))
    assert examples(of_seed_5.test) == examples(one.test)
    assert examples(drawn.test) != examples(one.test)


@pytest.mark.parametrize("name", TASKS)
def test_the_option_is_not_called_unused_where_data_are_drawn(name):
    assert "data_seed" not in TASKS[name][1](data_seed=5).unused


@pytest.mark.parametrize("name", ["logic", "sst"])
def test_the_option_is_called_unused_for_official_data(name):
    config = import_module(f"tasks.{name}.__main__").SUBCOMMANDS["train"].config
    assert "data_seed" in config(data_seed=5).unused


def test_several_seeds_do_not_go_into_the_directory_of_a_run(tmp_path):
    (tmp_path / "best.safetensors").write_bytes(b"")
    config = TASKS["listops"][1](seeds=2, run_dir=tmp_path)
    with pytest.raises(UserError, match=f"{tmp_path}: already holds a run"):
        train_seeds(lambda config: pytest.fail("it trains"), config)


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
        train_seeds(train, config)
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
        train_seeds(train, LogicConfig(seed=changing, seeds=3, run_dir=tmp_path, resume=True))
    left = [name for name in names if (tmp_path / name).exists()]
    assert left == [name for name in names if str(changing) not in name]
