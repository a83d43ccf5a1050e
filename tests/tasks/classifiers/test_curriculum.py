"""A curriculum: which examples the first epochs have."""

from dataclasses import replace

import numpy as np
import pytest

from tasks.classifiers.classification import Splits, examples_of_epoch
from tasks.listops.config import PRESETS
from tasks.listops.task import LISTOPS
from tasks.logic.config import PRESETS as LOGIC_PRESETS
from tasks.logic.task import LOGIC
from tasks.runs.errors import UserError

SMALL = replace(PRESETS["demo"], expressions=300, validation_size=40, model="mean", curriculum_epochs=0)


def examples(config, epoch):
    batches = LISTOPS.prepare(config).objective.training_batches(epoch, 16)
    assert max(map(len, batches)) <= 16
    return sorted(np.concatenate(batches).tolist())


def test_the_first_epochs_have_all_short_examples_and_no_others():
    config = replace(SMALL, curriculum_epochs=2, curriculum_length=7)
    lengths = LISTOPS.load_splits(config).train.lengths
    short = np.flatnonzero(lengths <= 7).tolist()
    assert 0 < len(short) < len(lengths)
    assert examples(config, 1) == examples(config, 2) == short
    assert examples(config, 3) == list(range(len(lengths)))


def test_without_a_curriculum_every_epoch_has_all_examples():
    assert examples(replace(SMALL, curriculum_length=1), 1) == examples(SMALL, 1)


def test_after_the_curriculum_batches_equal_those_of_a_run_without_one():
    with_it, without = (
        LISTOPS.prepare(replace(SMALL, curriculum_epochs=epochs, curriculum_length=7)).objective
        for epochs in (1, 0)
    )
    pairs = zip(with_it.training_batches(2, 16), without.training_batches(2, 16), strict=True)
    assert all(np.array_equal(*pair) for pair in pairs)


def test_the_longer_sentence_decides():
    config = replace(LOGIC_PRESETS["demo"], generated=400, curriculum_epochs=1, curriculum_length=5)
    lengths = LOGIC.load_splits(config).train.sentence_lengths
    kept = examples_of_epoch(config, lengths, 1)
    assert 0 < len(kept) < len(lengths)
    assert (lengths[kept] <= 5).all()
    assert (np.delete(lengths, kept, axis=0) > 5).any(1).all()


def test_a_curriculum_without_examples_is_refused_before_training():
    def long_ones(config):
        splits = LISTOPS.load_splits(config)
        return Splits(*(part.select(part.lengths > 3) for part in splits))

    task = replace(LISTOPS, load_splits=long_ones)
    with pytest.raises(UserError, match=r"--curriculum-length 3: .* training expressions has 4 tokens"):
        task.prepare(replace(SMALL, curriculum_epochs=1, curriculum_length=3))
    assert task.prepare(replace(SMALL, curriculum_epochs=1, curriculum_length=4))


def test_a_curriculum_that_leaves_nothing_out_is_warned_of(capsys):
    config = replace(SMALL, curriculum_epochs=1)
    longest = LISTOPS.load_splits(config).train.lengths.max()
    for length in (longest - 1, longest):
        LISTOPS.prepare(replace(config, curriculum_length=length))
        warned = f"the longest of the training expressions has {longest} tokens" in capsys.readouterr().err
        assert warned == (length == longest)
    LISTOPS.prepare(replace(config, curriculum_epochs=0, curriculum_length=longest))
    assert not capsys.readouterr().err
    LISTOPS.prepare(replace(config, epochs=1, curriculum_length=longest))
    assert capsys.readouterr().err.count("warning: --curriculum-") == 1
