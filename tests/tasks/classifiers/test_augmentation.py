"""Data augmentation in training: each epoch has its own examples, in all processes and in a resumed run."""

import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

from tasks.classifiers.classification import ClassificationObjective
from tasks.listops.config import PRESETS as LISTOPS_PRESETS
from tasks.listops.task import LISTOPS
from tasks.logic.config import PRESETS as LOGIC_PRESETS
from tasks.logic.task import LOGIC
from tests import commands
from tests.interrupts import interrupt_before
from tests.outcome import outcome

TASKS = {
    "listops": (LISTOPS, replace(LISTOPS_PRESETS["demo"], expressions=600, validation_size=40)),
    "logic": (LOGIC, replace(LOGIC_PRESETS["demo"], generated=400)),
}
AUGMENT = {"listops": ("arguments",), "logic": ("formulas", "operands")}


@pytest.mark.parametrize("name", TASKS)
def test_processes_share_a_batch_and_epochs_draw_their_own(name):
    task, config = TASKS[name]
    config = replace(config, model="mean", curriculum_epochs=0, augment=AUGMENT[name])
    first, second = (task.prepare(config).objective for _ in range(2))
    seen = []
    for epoch in (1, 2):
        batch = first.training_batches(epoch, 32)[0]
        second.training_batches(epoch, 32)
        whole = first.shard(batch, 0, 1).batch.tokens
        parts = [
            objective.shard(batch, rank, 2).batch.tokens for rank, objective in enumerate((first, second))
        ]
        assert rows(*parts) == rows(whole) != rows(first.train.batch(batch).tokens)
        seen.append(first.shard(np.arange(200), 0, 1).batch.tokens)
    assert not torch.equal(*seen)


def rows(*batches):
    return sorted([token for token in row if token] for tokens in batches for row in tokens.tolist())


@pytest.mark.parametrize("name", TASKS)
def test_a_run_resumes_in_the_middle_of_an_epoch(name, tmp_path, monkeypatch, capsys):
    main = commands.MAIN[name]
    plain, once, again = tmp_path / "plain", tmp_path / "once", tmp_path / "again"

    def train(directory, *options):
        sizes = (*commands.TINY[name].split(), "--batch-size", "32", "--epochs", "2")
        # A model that reads tokens in their order: shuffled arguments have the same mean.
        return main(["train", "--run-dir", str(directory), *sizes, "--model", "lstm", *options])

    assert train(plain) == 0
    assert train(once, "--augment", *AUGMENT[name]) == 0
    steps = outcome(once)[0][0]["step"]  # of the first epoch
    with monkeypatch.context() as patch:
        interrupt_before(patch, ClassificationObjective, {steps + 2}, signal.SIGINT)
        assert train(again, "--augment", *AUGMENT[name]) == 130
    assert main(["train", "--run-dir", str(again), "--resume", "--augment", "none"]) == 2
    message = f"--augment none: must stay {' '.join(AUGMENT[name])} until the end of the epoch"
    assert message in capsys.readouterr().err
    assert main(["train", "--run-dir", str(again), "--resume"]) == 0
    assert outcome(again) == outcome(once)
    assert outcome(once)[0][0]["train_loss"] != outcome(plain)[0][0]["train_loss"]
