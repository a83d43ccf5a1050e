"""The training loop against the same steps written out, on a model small enough for both."""

import itertools
import json
import os
import signal
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tasks.runs.checkpoints import read_checkpoint, read_state
from tasks.runs.config import AdamConfig
from tasks.runs.fabric import build_fabric
from tasks.runs.interfaces import Experiment, Losses, Shard
from tasks.runs.optimization import PlateauAdam
from tasks.runs.progress import Progress
from tasks.runs.run_directory import RunDirectory
from tasks.runs.trainer import Trainer
from tasks.runs.validation import validate

CONFIG = AdamConfig(
    seed=5,
    epochs=5,
    batch_size=4,
    learning_rate=0.1,
    weight_decay=0.1,
    gradient_clip=0.5,
    adam_betas=(0.3, 0.9),
    adam_epsilon=0.01,
    patience=0,
    learning_rate_decay=0.25,
    average_decay=0.6,
    accelerator="cpu",
)
SELECTION = (1.0, 3.0, 3.0, 3.0, 2.0)
"""The selection score of each epoch. The third has a higher validation loss than the second, the fourth a
lower one."""
BEST = 4
DRAW = torch.Generator().manual_seed(7)
TRAIN, VALIDATION = (
    (torch.randn(n, 3, generator=DRAW), torch.randint(2, (n,), generator=DRAW)) for n in (10, 5)
)


def cut(data, size):
    return list(zip(*(tensor.split(size) for tensor in data), strict=True))


def penalty_of(model, logits):
    """Of weights, and of the examples of a batch."""
    return 0.3 * sum(parameter.square().sum() for parameter in model.parameters()) + logits.square().mean()


class Toy:
    """Three numbers to one of two classes, in batches of 4, 4 and 2."""

    batch_options = ()

    def __init__(self):
        self.scores = iter(SELECTION)
        self.selected_by = []
        self.precisions = set()

    def fingerprint(self):
        return "toy"

    def training_batches(self, epoch, batch_size):
        return cut(TRAIN, batch_size)

    def shard(self, batch, rank, world_size):
        own = [tensor[rank::world_size] for tensor in batch]
        return Shard(own if len(own[1]) else [tensor[:1] for tensor in batch], len(batch[1]), len(own[1]) > 0)

    def validation_batches(self, world_size):
        return cut(VALIDATION, 3)

    def losses(self, model, batch):
        logits = model(batch[0])
        if not model.training:
            self.precisions.add(logits.dtype)
        loss = cross_entropy(logits, batch[1], reduction="none")
        return Losses(
            loss, logits.argmax(-1) == batch[1], penalty_of(model, logits) if model.training else None
        )

    def metrics(self, scores):
        return {"loss": scores.loss, "accuracy": scores.accuracy}

    def selection_score(self, scores):
        self.selected_by.append(scores)
        return next(self.scores)

    def state(self):
        return {}

    def load_state(self, state):
        pass


class Optimization(PlateauAdam):
    losses = ()

    def end_epoch(self, loss, selection_score):
        self.losses += (loss,)
        return super().end_epoch(loss, selection_score)


def build(dropout=0.2):
    torch.manual_seed(3)
    return nn.Sequential(nn.Dropout(dropout), nn.Linear(3, 2))


def by_hand(config):
    """The metrics of every epoch, and the averaged weights and those that are trained after it."""
    model, averaged, rate = build(), None, config.learning_rate
    adam = torch.optim.Adam(
        model.parameters(), rate, config.adam_betas, config.adam_epsilon, config.weight_decay
    )
    torch.manual_seed(config.seed)
    rows, weights, step = [], [], 0
    for epoch in range(1, config.epochs + 1):
        losses, right = [], []
        for x, y in cut(TRAIN, config.batch_size):
            logits = model(x)
            loss = cross_entropy(logits, y, reduction="none")
            model.zero_grad()
            (loss.mean() + penalty_of(model, logits)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), config.gradient_clip)
            adam.step()
            step += 1
            now = {name: value.detach().clone() for name, value in model.state_dict().items()}
            decay = min(config.average_decay, step / (step + 9)) if averaged else 0.0
            averaged = {name: decay * (averaged or now)[name] + (1 - decay) * now[name] for name in now}
            losses += loss.tolist()
            right += (logits.argmax(-1) == y).tolist()
        tested = deepcopy(model).eval()
        tested.load_state_dict(averaged)
        logits = tested(VALIDATION[0]).detach()
        rows.append(
            {
                "epoch": epoch,
                "step": step,
                "train_loss": sum(losses) / 10,
                "train_accuracy": sum(right) / 10,
                "validation_loss": float(cross_entropy(logits, VALIDATION[1])),
                "validation_accuracy": float((logits.argmax(-1) == VALIDATION[1]).double().mean()),
                "selection_score": SELECTION[epoch - 1],
                "fraction": 1.0,
                "learning_rate": rate,
                "best": epoch in (1, 2, BEST),
            }
        )
        weights.append((averaged, now))
        if epoch in (3, 4):  # their scores are not higher than that of the second
            rate *= config.learning_rate_decay
            adam.param_groups[0]["lr"] = rate
    return rows, weights


def trainer_of(directory, config, model):
    experiment = Experiment(Toy(), model, Optimization(model, config), "", lambda *_: ({}, dict), {}, str, {})
    fabric = build_fabric(config)
    fabric.launch()
    directory.mkdir(exist_ok=True)
    return Trainer(config, experiment, fabric, RunDirectory(directory))


def train(directory, config):
    # A model that was loaded to train it further is in evaluation mode.
    trainer = trainer_of(directory, config, build().eval())
    trainer.restore()
    return trainer, trainer.fit()


def assert_same(found, expected):
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


def test_a_run_is_its_steps_written_out(tmp_path, monkeypatch):
    clock = itertools.count(step=0.3)
    monkeypatch.setattr("tasks.runs.trainer.time", SimpleNamespace(monotonic=clock.__next__))
    trainer, progress = train(tmp_path / "run", CONFIG)
    rows, weights = by_hand(CONFIG)
    assert [row.pop("seconds") for row in progress.history] == [0.9, 1.8, 2.7, 3.6, 4.5]  # 0.3 a step
    assert json.loads(json.dumps(progress.history)) == [pytest.approx(row, rel=1e-5) for row in rows]
    assert [list(scores) for scores in trainer.objective.selected_by] == [
        pytest.approx([row["validation_loss"], row["validation_accuracy"]], rel=1e-5) for row in rows
    ]
    assert trainer.optimization.losses == pytest.approx([row["validation_loss"] for row in rows], rel=1e-5)
    assert (progress.best_epoch, progress.best) == (BEST, SELECTION[BEST - 1])
    assert_same(read_checkpoint(trainer.run.best)[0], weights[BEST - 1][0])
    assert_same(read_state(trainer.run.last)["model"], weights[-1][1])


@pytest.mark.parametrize(
    ("score", "loss", "better"),
    [(2.0, 9.0, True), (1.0, 0.4, True), (1.0, 0.5, False), (1.0, 0.6, False), (0.5, 0.1, False)],
)
def test_of_epochs_with_the_same_score_that_of_the_lower_loss_is_the_best(score, loss, better):
    assert Progress().is_best(score, loss)
    assert Progress(best=1.0, best_loss=0.5).is_best(score, loss) == better


def test_an_epoch_can_be_the_best_one_and_lower_the_rate(tmp_path):
    trainer, progress = train(tmp_path / "run", replace(CONFIG, restore_best=True, epochs=4))
    assert progress.best_epoch == 4
    best = read_checkpoint(trainer.run.best)[0]
    last = read_state(trainer.run.last)
    assert_same(last["model"], best)
    assert_same(last["optimization"]["average"], {f"module.{name}": value for name, value in best.items()})


def test_without_an_average_the_weights_themselves_are_evaluated_and_saved(tmp_path):
    config = replace(CONFIG, average_decay=0.0, epochs=2)
    trainer, progress = train(tmp_path / "run", config)
    rows, weights = by_hand(config)
    assert progress.history[-1]["validation_loss"] == pytest.approx(rows[-1]["validation_loss"], rel=1e-5)
    assert_same(read_checkpoint(trainer.run.best)[0], weights[-1][1])


def test_validation_has_the_precision_of_training(tmp_path):
    trainer, _ = train(tmp_path / "run", replace(CONFIG, precision="bf16-mixed", epochs=1))
    assert trainer.objective.precisions == {torch.bfloat16}


class OneOf:
    """One of several processes: what it adds up is kept apart, and not added to what the others have."""

    def __init__(self, fabric, rank, world_size):
        self.fabric, self.global_rank, self.world_size = fabric, rank, world_size

    def __getattr__(self, name):
        return getattr(self.fabric, name)


@pytest.mark.parametrize("size", [10, 4, 2, 1])
def test_three_processes_take_the_step_of_one(tmp_path, monkeypatch, size):
    config = replace(CONFIG, gradient_clip=1e9)
    summed = []
    monkeypatch.setattr("tasks.runs.trainer.all_reduce", lambda _, sums: summed.append(sums) or 10 * sums)
    gradients, totals = [], []
    batch = [tensor[:size] for tensor in TRAIN]
    for rank, world_size in [(0, 1), (0, 3), (1, 3), (2, 3)]:
        trainer = trainer_of(tmp_path / "run", config, build(dropout=0.0))
        trainer.fabric = OneOf(trainer.fabric, rank, world_size)
        sums, examples = trainer.train_batch(batch)
        assert examples == size
        assert torch.equal(sums, 10 * summed[-1])
        gradients.append([p.grad.clone() for p in trainer.unwrapped_model.parameters()])
        totals.append(summed[-1])
    for one, *three in zip(*gradients, strict=True):  # of which DDP takes the mean
        torch.testing.assert_close(sum(three) / 3, one)
    torch.testing.assert_close(sum(totals[1:]), totals[0])


def test_three_processes_validate_every_batch_once(tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.runs.validation.all_reduce", lambda _, sums: summed.append(sums) or sums)
    trainer, summed = trainer_of(tmp_path / "run", CONFIG, build()), []
    batches = [tuple(tensor[i:] for tensor in VALIDATION) for i in range(4)]
    whole = validate(trainer.objective, trainer.model, batches, OneOf(trainer.fabric, 0, 1))
    for rank in range(3):
        validate(trainer.objective, trainer.model, batches, OneOf(trainer.fabric, rank, 3))
    loss, right, count = sum(summed[1:]).tolist()
    assert count == 5 + 4 + 3 + 2
    assert (loss / count, right / count) == pytest.approx(whole)


def test_time_is_up_by_the_clock_whose_time_is_saved(tmp_path, monkeypatch):
    """The clock of the main process. This is another one, and it thinks that each step takes a minute."""
    clock = itertools.count(step=60)
    monkeypatch.setattr("tasks.runs.trainer.time", SimpleNamespace(monotonic=clock.__next__))
    for module in ("trainer", "validation"):
        monkeypatch.setattr(f"tasks.runs.{module}.all_reduce", lambda _, sums: sums)
    monkeypatch.setattr(
        "tasks.runs.trainer.gather", lambda _, value: torch.stack([torch.zeros_like(value), value])
    )
    trainer = trainer_of(tmp_path / "run", replace(CONFIG, epochs=2, max_minutes=2), build())
    trainer.fabric = OneOf(trainer.fabric, 1, 2)
    trainer.restore()
    assert [row["fraction"] for row in trainer.fit().history] == [1, 1]


def test_a_run_that_is_stopped_as_its_time_is_up_takes_no_further_step(tmp_path, monkeypatch):
    clock = itertools.count(step=0.3)
    monkeypatch.setattr("tasks.runs.trainer.time", SimpleNamespace(monotonic=clock.__next__))
    config = replace(CONFIG, max_minutes=0.8 / 60)  # the three steps of an epoch take 0.9 seconds
    _, whole = train(tmp_path / "whole", config)
    train_batch = Trainer.train_batch

    def stopping(self, batch):
        if self.progress.step == 2:  # before the last step of the epoch
            os.kill(os.getpid(), signal.SIGINT)
        return train_batch(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_batch", stopping)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "run", config)
    _, resumed = train(tmp_path / "run", config)
    assert resumed.history == whole.history
    assert [row["fraction"] for row in resumed.history] == [1]


def test_each_process_draws_masks_of_its_own(tmp_path):
    drawn = []
    for rank in range(3):
        trainer = trainer_of(tmp_path / "run", CONFIG, build())
        trainer.fabric = OneOf(trainer.fabric, rank, 3)
        trainer.restore()
        drawn.append(torch.rand(()).item())
    torch.manual_seed(CONFIG.seed)
    assert drawn[0] == torch.rand(()).item()
    assert len(set(drawn)) == 3
