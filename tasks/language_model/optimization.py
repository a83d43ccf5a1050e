"""Optimizers of language models: NT-ASGD (SGD with weight averaging, as in AWD-LSTM), and Adam for PRPN."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tasks.language_model.config import LanguageModelConfig
from tasks.runs.config import AdamConfig
from tasks.runs.interfaces import Optimization, Shard
from tasks.runs.optimization import PlateauAdam, WeightAverage

RESTART_EPOCH = 500
"""The epoch after which a running average is restarted, as in the authors' code."""


def build_optimization(model: nn.Module, config: LanguageModelConfig) -> Optimization:
    """Build the optimizer of the model's paper.

    For PRPN it is Adam with β1 = 0. Its learning rate is halved after more than `patience` epochs without
    better validation loss, as in the authors' code; in the paper it is divided by 10.

    Args:
        model: the model to train.
        config: model, learning rate, weight decay, bptt and patience.
    """
    if config.model != "prpn":
        return AveragedSGD(model, config)
    options = AdamConfig(
        learning_rate=config.learning_rate, weight_decay=config.weight_decay, patience=config.patience
    )
    return PlateauAdam(model, options)


class AveragedSGD:
    """NT-ASGD; implements `tasks.runs.interfaces.Optimization`.

    The learning rate of a training step is proportional to its number of tokens. Averaging starts after the
    first epoch whose validation loss is above the lowest loss seen more than `patience` epochs earlier, and
    is restarted after epoch `RESTART_EPOCH`. The mean of the weights over all steps since then is evaluated,
    while training continues with the weights themselves.

    `torch.optim.ASGD` with t0 = 0 and λ = 0, which the authors use, takes the same steps at a constant
    learning rate, but leaves the first one out of its average. When the learning rate changes from step to
    step, it takes each step with the learning rate of the previous one.

    Args:
        model: the model to train.
        config: learning rate, weight decay, bptt and patience.
    """

    restored_options: tuple[str, ...] = ("weight_decay",)

    def __init__(self, model: nn.Module, config: LanguageModelConfig) -> None:
        self.config = config
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(
            model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self.average = WeightAverage(model)
        self._losses: list[float] = []

    def begin_step(self, shard: Shard) -> None:
        self._set_learning_rate(self.config.learning_rate * len(shard.batch.tokens) / self.config.bptt)

    def end_step(self) -> None:
        self._set_learning_rate(self.config.learning_rate)
        self.average.update()

    def end_epoch(self, loss: float, selection_score: float) -> bool:
        earlier = self._losses[: max(0, len(self._losses) - self.config.patience)]
        starts_average = self.average.averaged is None and bool(earlier) and loss > min(earlier)
        self._losses.append(loss)
        if starts_average or (self.average.averaged is not None and len(self._losses) == RESTART_EPOCH):
            self.average.start()
        return False

    @property
    def evaluated_model(self) -> nn.Module:
        return self.average.evaluated_model

    def state_dict(self) -> dict[str, Any]:
        return {"losses": self._losses, "average": self.average.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._losses = list(state["losses"])
        self.average.load_state_dict(state["average"])

    def _set_learning_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
