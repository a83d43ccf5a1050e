"""What a classification task does with the parts of its data."""

from dataclasses import replace

from tasks.listops.config import PRESETS
from tasks.listops.task import LISTOPS


def tokens(batches):
    return sorted(row for batch in batches for row in batch.tokens.flatten().tolist() if row)


def test_each_part_of_the_data_has_its_own_use():
    config = replace(PRESETS["demo"], expressions=300, validation_size=40, model="mean", batch_size=32)
    train, validation, test = LISTOPS.load_splits(config)
    task = LISTOPS.prepare(config).task
    drawn = [task.shard(batch, 0, 1).batch for batch in task.training_batches(1, 32)]
    assert tokens(drawn) == sorted(train.tokens.tolist())
    assert tokens(task.validation_batches(1)) == sorted(validation.tokens.tolist())
    assert len({len(part.tokens) for part in (train, validation, test)}) == 3
