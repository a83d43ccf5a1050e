"""Contenders: what is timed, in training and in evaluation.

A contender returns closures. Only the closure is timed; setup, such as clearing gradients, happens before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from tasks.runs.interfaces import Losses

FLOOR, FLOOR_BF16, LSTM, RELEASED = "floor", "floor, bfloat16", "nn.LSTM", "released"
"""Names of the contenders that others are compared with."""

Batch = TypeVar("Batch")


class Contender(Protocol):
    """What `tasks.benchmark.measure.interleave` times."""

    def training_step(self, index: int) -> Callable[[], None]:
        """Prepare a training step.

        Args:
            index: index of the batch.
        Returns:
            A function that takes the step.
        """

    def evaluation(self, index: int) -> Callable[[], None]:
        """Prepare a forward pass without autograd.

        Args:
            index: index of the batch.
        Returns:
            A function that runs the forward pass.
        """


class ModuleContender(Generic[Batch]):
    """A module, whose training step is the forward pass, a scalar loss and the backward pass.

    Args:
        module: module on its device.
        batches: its input, on the same device.
        loss: computes the forward pass and the scalar loss of a batch.
        forward: computes only the forward pass.
        prepare: prepares a batch for a training step, for example by making its inputs require gradients.
        finish: called after the backward pass, for example to take an optimizer step.
    """

    def __init__(
        self,
        module: nn.Module,
        batches: Sequence[Batch],
        loss: Callable[[Batch], Tensor],
        forward: Callable[[Batch], object],
        prepare: Callable[[Batch], Batch] = lambda batch: batch,
        finish: Callable[[], object] = lambda: None,
    ) -> None:
        self.module, self.batches = module, batches
        self.loss, self.forward, self.prepare, self.finish = loss, forward, prepare, finish

    def training_step(self, index: int) -> Callable[[], None]:
        batch = self.prepare(self.batches[index])
        self.module.train()
        self.module.zero_grad()

        def run() -> None:
            self.loss(batch).backward()
            self.finish()

        return run

    def evaluation(self, index: int) -> Callable[[], None]:
        batch = self.batches[index]
        self.module.eval()
        self.module.zero_grad()

        def run() -> None:
            with torch.inference_mode():
                self.forward(batch)

        return run


def as_in_training(
    model: nn.Module,
    batches: Sequence[Batch],
    losses: Callable[[Batch], Losses],
    forward: Callable[[Batch], object],
    optimizer: torch.optim.Optimizer,
    gradient_clip: float,
) -> ModuleContender[Batch]:
    """Make a contender whose training step includes gradient clipping and the optimizer.

    Args:
        model: model on its device.
        batches: its input, on the same device.
        losses: computes the losses of a batch.
        forward: computes only the forward pass.
        optimizer: optimizer of the model.
        gradient_clip: maximum gradient norm.
    """

    def loss(batch: Batch) -> Tensor:
        batch_losses = losses(batch)
        mean = batch_losses.loss.mean()
        return mean if batch_losses.penalty is None else mean + batch_losses.penalty

    def finish() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), gradient_clip)
        optimizer.step()

    return ModuleContender(model, batches, loss, forward, finish=finish)
