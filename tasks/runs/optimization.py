"""How a training loop moves the weights: the optimizer, what goes with its steps, what is evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from tasks.runs.config import AdamConfig
from tasks.runs.task import Share


class Optimization(Protocol):
    """What the training loop needs of an optimizer; its state goes into every checkpoint."""

    optimizer: torch.optim.Optimizer
    restored_options: tuple[str, ...]
    """The options that come back with the state from a checkpoint, so that other values would do nothing."""

    def begin_step(self, share: Share) -> None:
        """Called before each step.

        Args:
            share: what this process computes of the batch.
        """

    def end_step(self) -> None:
        """Called after each step."""

    def end_epoch(self, loss: float, selection_score: float) -> None:
        """After each epoch.

        Args:
            loss: validation loss, nats.
            selection_score: model-selection score; higher is better.
        """

    def evaluated(self, model: nn.Module) -> nn.Module:
        """The model to validate and to save as the best.

        Args:
            model: the one that is trained.
        Returns:
            `model`, or one with other weights, such as an average.
        """

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint, without the optimizer's own."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from a checkpoint.

        Args:
            state: what `state_dict` returned.
        """


class WeightAverage:
    """Averaged weights of a model, once there are any; they are what an `Optimization` evaluates.

    Args:
        model: whose weights are averaged.
        decay: d of an exponential moving average: after step n it is d_n times itself plus 1 - d_n times the
            weights, with d_n = min(d, (n + 1) / (n + 10)), so that the first steps are soon forgotten. None
            for the mean of the weights after each step.
    """

    def __init__(self, model: nn.Module, decay: float | None = None) -> None:
        self.model, self.decay = model, decay
        self.averaged: AveragedModel | None = None

    def start(self) -> None:
        """Average the weights after each `update` from now on."""
        self.averaged = AveragedModel(self.model, multi_avg_fn=self._move if self.decay is not None else None)

    def update(self) -> None:
        """Called after each step."""
        if self.averaged is not None:
            self.averaged.update_parameters(self.model)

    def of(self, model: nn.Module) -> nn.Module:
        """The model with the averaged weights, or as it is.

        Args:
            model: the one that is trained.
        """
        return model if self.averaged is None else self.averaged.module

    def state_dict(self) -> dict[str, Any] | None:
        """The state for a checkpoint."""
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

    def _move(self, averaged: Sequence[Tensor], weights: Sequence[Tensor], count: Tensor | int) -> None:
        assert self.decay is not None
        decay = min(self.decay, (1 + int(count)) / (10 + int(count)))
        torch._foreach_lerp_(list(averaged), list(weights), 1 - decay)


class PlateauAdam:
    """Adam, with a learning rate that is reduced when the selection score has not improved for a while.

    With `average_decay`, the exponential moving average of the weights is evaluated; see `WeightAverage`.

    Args:
        model: on the CPU or where it stays.
        config: betas, ε, patience, factor and decay of the average.
        rates: initial learning rates of submodules, by name, in place of that of the configuration.
    """

    restored_options: tuple[str, ...] = (
        *("learning_rate", "encoder_learning_rate", "weight_decay", "adam_betas", "adam_epsilon"),
        *("patience", "learning_rate_decay"),
    )

    def __init__(
        self, model: nn.Module, config: AdamConfig, rates: Mapping[str, float] | None = None
    ) -> None:
        self.optimizer: torch.optim.Optimizer = torch.optim.Adam(
            _parameter_groups(model, rates or {}),
            lr=config.learning_rate,
            betas=config.adam_betas,
            eps=config.adam_epsilon,
            weight_decay=config.weight_decay,
        )
        self.average = WeightAverage(model, config.average_decay)
        self._scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimizer,
            "max",
            factor=config.learning_rate_decay,
            patience=config.patience,
            threshold=0.0,
        )

    def begin_step(self, share: Share) -> None:
        pass

    def end_step(self) -> None:
        if self.average.decay and self.average.averaged is None:
            self.average.start()
        self.average.update()

    def end_epoch(self, loss: float, selection_score: float) -> None:
        self._scheduler.step(selection_score)

    def evaluated(self, model: nn.Module) -> nn.Module:
        return self.average.of(model)

    def state_dict(self) -> dict[str, Any]:
        return {"scheduler": self._scheduler.state_dict(), "average": self.average.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._scheduler.load_state_dict(state["scheduler"])
        self.average.load_state_dict(state["average"])


def _parameter_groups(model: nn.Module, rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """The trained parameters; those of a submodule in `rates` make a group of their own."""
    groups: dict[str, list[nn.Parameter]] = {name: [] for name in ("", *rates)}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            owner = next((module for module in rates if name.startswith(f"{module}.")), "")
            groups[owner].append(parameter)
    return [
        {"params": parameters, **({"lr": rates[name]} if name else {})} for name, parameters in groups.items()
    ]
