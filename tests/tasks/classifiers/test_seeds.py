"""Runs with several seeds may have the same data."""

from importlib import import_module

import numpy as np
import pytest

from tasks.listops.config import ListOpsConfig
from tasks.listops.task import LISTOPS
from tasks.logic.config import LogicConfig
from tasks.logic.task import LOGIC
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
