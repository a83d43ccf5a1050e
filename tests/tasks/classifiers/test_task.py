"""What a classification task does with the parts of its data."""

from dataclasses import replace

import numpy as np

from tasks.listops.config import PRESETS
from tasks.listops.task import LISTOPS
from tasks.runs.interfaces import Scores


def tokens(batches):
    return sorted(row for batch in batches for row in batch.tokens.flatten().tolist() if row)


def test_each_part_of_the_data_has_its_own_use():
    config = replace(
        PRESETS["demo"], expressions=300, validation_size=40, model="mean", batch_size=32, curriculum_epochs=0
    )
    train, validation, test = LISTOPS.load_splits(config)
    task = LISTOPS.prepare(config).objective
    drawn = [task.shard(batch, 0, 1).batch for batch in task.training_batches(1, 32)]
    assert tokens(drawn) == tokens([train.batch(range(len(train)))])
    assert tokens(task.validation_batches(1)) == tokens([validation.batch(range(len(validation)))])
    assert len({int(part.lengths.sum()) for part in (train, validation, test)}) == 3


def test_the_epoch_with_the_best_accuracy_is_the_best_one():
    config = replace(PRESETS["demo"], expressions=300, validation_size=40, model="mean")
    task = LISTOPS.prepare(config).objective
    assert task.selection_score(Scores(loss=2.0, accuracy=0.9)) > task.selection_score(Scores(1.0, 0.8))


def test_processes_share_a_batch():
    config = replace(PRESETS["demo"], expressions=300, validation_size=40, model="mean")
    task = LISTOPS.prepare(config).objective
    for batch in (task.training_batches(1, 32)[0], np.array([5, 6])):
        parts = [task.shard(batch, rank, 3) for rank in range(3)]
        assert {part.global_batch_size for part in parts} == {len(batch)}
        assert [part.has_examples for part in parts] == [True, True, len(batch) > 2]
        shared = [part.batch for part in parts if part.has_examples]
        assert tokens(shared) == tokens([task.training_batch(batch)])
