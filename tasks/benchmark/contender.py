"""What is timed: a network on batches, in training and in evaluation.

A contender hands out closures: what is not timed (modes, forgetting gradients, layout) happens before,
what is timed happens inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

FLOOR, LSTM, RELEASED = "floor", "nn.LSTM", "released"
"""Names of the contenders that others are compared with."""

Batch = TypeVar("Batch")


class Contender(Protocol):
    """What `tasks.benchmark.measure.interleave` times."""

    def training_step(self, index: int) -> Callable[[], None]:
        """Prepare a training step.

        Args:
            index: of the batch.
        Returns:
            Takes the step when called.
        """

    def evaluation(self, index: int) -> Callable[[], None]:
        """Prepare a forward pass without autograd.

        Args:
            index: of the batch.
        Returns:
            Runs the forward pass when called.
        """


class ModuleContender(Generic[Batch]):
    """A module: its training step is a forward pass, a scalar loss and the backward pass.

    Args:
        module: on its device.
        batches: that it runs, on the same device.
        loss: of the module on a batch, a scalar.
        forward: the forward pass alone.
        prepare: makes what a training step reads of a batch, such as inputs that ask for a gradient.
        finish: what follows the backward pass, such as a step of an optimizer.
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
