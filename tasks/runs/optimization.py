"""How a training loop moves the weights: the optimizer, what goes with its steps, what is evaluated."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import nn

from tasks.runs.config import AdamConfig
from tasks.runs.task import Share


class Optimization(Protocol):
    """What the training loop needs of an optimizer; its state goes into every checkpoint."""

    optimizer: torch.optim.Optimizer

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


class PlateauAdam:
    """Adam, with a learning rate that is reduced when the selection score has not improved for a while.

    Args:
        model: on the CPU or where it stays.
        config: betas, ε, patience and factor.
    """

    def __init__(self, model: nn.Module, config: AdamConfig) -> None:
        self.optimizer: torch.optim.Optimizer = torch.optim.Adam(
            model.parameters(),
            lr=config.learning_rate,
            betas=config.adam_betas,
            eps=config.adam_epsilon,
            weight_decay=config.weight_decay,
        )
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
        pass

    def end_epoch(self, loss: float, selection_score: float) -> None:
        self._scheduler.step(selection_score)

    def evaluated(self, model: nn.Module) -> nn.Module:
        return model

    def state_dict(self) -> dict[str, Any]:
        return self._scheduler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._scheduler.load_state_dict(state)
