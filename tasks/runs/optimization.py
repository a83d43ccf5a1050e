"""Optimizers with their learning rate schedules and weight averages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from tasks.runs.config import AdamConfig
from tasks.runs.interfaces import Shard


class WeightAverage:
    """An average of a model's weights over training steps.

    Args:
        model: the model that is trained.
        decay: d of an exponential moving average (EMA): after step n, average ← d_n average + (1 - d_n)
            weights, with d_1 = 0 and d_n = min(d, n / (n + 9)) from then on, so that the first steps are soon
            forgotten. None for the plain mean over all steps.
    """

    def __init__(self, model: nn.Module, decay: float | None = None) -> None:
        self.model, self.decay = model, decay
        self.averaged: AveragedModel | None = None

    def start(self) -> None:
        """Start the average; from now on, `update` adds the current weights to it."""
        self.averaged = AveragedModel(
            self.model, multi_avg_fn=self._update_ema if self.decay is not None else None
        )

    def update(self) -> None:
        """Add the current weights to the average, if it was started."""
        if self.averaged is not None:
            self.averaged.update_parameters(self.model)

    @property
    def evaluated_model(self) -> nn.Module:
        """The model with the averaged weights, or the model itself if the average was not started."""
        return self.model if self.averaged is None else self.averaged.module

    def state_dict(self) -> dict[str, Any] | None:
        """The state to save in checkpoints; None if the average was not started."""
        return None if self.averaged is None else dict(self.averaged.state_dict())

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Restore the state.

        Args:
            state: what `state_dict` returned.
        """
        if state is not None:
            self.start()
            assert self.averaged is not None
            self.averaged.load_state_dict(state)

    def _update_ema(self, averaged: Sequence[Tensor], weights: Sequence[Tensor], count: Tensor | int) -> None:
        assert self.decay is not None
        decay = min(self.decay, (1 + int(count)) / (10 + int(count)))
        torch._foreach_lerp_(list(averaged), list(weights), 1 - decay)


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "radam": torch.optim.RAdam,
}
"""The optimizers by the value of `--optimizer`."""


class PlateauAdam:
    """Adam or RAdam with `ReduceLROnPlateau` on the selection score.

    With `average_decay`, an exponential moving average of the weights is evaluated; see `WeightAverage`.

    Args:
        model: the model to train.
        config: hyperparameters of Adam, the scheduler and the average.
        learning_rates: initial learning rates of some submodules, by name; `config` has that of the others.
        constant_epochs: number of epochs at the beginning in which the learning rates are not reduced.
    """

    restored_options: tuple[str, ...] = (
        *("learning_rate", "encoder_learning_rate", "weight_decay", "optimizer", "adam_betas"),
        *("adam_epsilon", "patience", "learning_rate_decay", "curriculum_epochs", "curriculum_length"),
    )

    def __init__(
        self,
        model: nn.Module,
        config: AdamConfig,
        learning_rates: Mapping[str, float] | None = None,
        constant_epochs: int = 0,
    ) -> None:
        self.optimizer: torch.optim.Optimizer = OPTIMIZERS[config.optimizer](
            _parameter_groups(model, learning_rates or {}),
            lr=config.learning_rate,
            betas=config.adam_betas,
            eps=config.adam_epsilon,
            weight_decay=config.weight_decay,
        )
        self.average = WeightAverage(model, config.average_decay)
        self._restore_best = config.restore_best
        self._scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimizer,
            "max",
            factor=config.learning_rate_decay,
            patience=config.patience,
            threshold=0.0,
        )
        self._scheduler.cooldown_counter = constant_epochs  # in these it counts no bad epochs

    def begin_step(self, shard: Shard) -> None:
        pass

    def end_step(self) -> None:
        if self.average.decay and self.average.averaged is None:
            self.average.start()
        self.average.update()

    def end_epoch(self, loss: float, selection_score: float) -> bool:
        previous_rates = self._scheduler.get_last_lr()
        self._scheduler.step(selection_score)
        return self._restore_best and self._scheduler.get_last_lr() != previous_rates

    @property
    def evaluated_model(self) -> nn.Module:
        return self.average.evaluated_model

    def state_dict(self) -> dict[str, Any]:
        return {"scheduler": self._scheduler.state_dict(), "average": self.average.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._scheduler.load_state_dict(state["scheduler"])
        self.average.load_state_dict(state["average"])


def _parameter_groups(model: nn.Module, learning_rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """The trainable parameters: a group for each submodule in `learning_rates`, and one for all others."""
    groups: dict[str, list[nn.Parameter]] = {name: [] for name in ("", *learning_rates)}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            owner = next((module for module in learning_rates if name.startswith(f"{module}.")), "")
            groups[owner].append(parameter)
    if empty := [name for name in learning_rates if not groups[name]]:
        raise ValueError(f"learning_rates: the model has no parameters to train in {', '.join(empty)}")
    return [
        {"params": parameters, **({"lr": learning_rates[name]} if name else {})}
        for name, parameters in groups.items()
    ]
