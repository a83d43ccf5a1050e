"""What the training loop and a task say to each other: batches, losses, scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn


class Scores(NamedTuple):
    """What a model does on a data set.

    Args:
        loss: mean cross-entropy, nats.
        accuracy: fraction in [0, 1].
    """

    loss: float
    accuracy: float


class Share(NamedTuple):
    """What one process computes of a batch.

    Args:
        batch: of the task, on the CPU; `Any` is its own type, made of tensors.
        examples: of the whole batch, on all processes.
        counted: False where there was nothing left for this process, and it computes something that is not
            looked at.
    """

    batch: Any
    examples: int
    counted: bool = True


class Losses(NamedTuple):
    """Of each example of a batch.

    Args:
        loss: cross-entropy, nats, (n,).
        correct: bool, (n,); all False where the task reports no accuracy.
        penalty: added to the mean loss in training, and reported nowhere, scalar.
    """

    loss: Tensor
    correct: Tensor
    penalty: Tensor | None = None


class Task(Protocol):
    """What the loop needs to know of a task."""

    batch_options: tuple[str, ...]
    """The options that decide, with the seed, which examples a batch of an epoch has."""

    def training_batches(self, epoch: int, batch_size: int) -> Sequence[Any]:
        """What says which examples each batch of an epoch has: a function of the arguments and the seed."""

    def share(self, batch: Any, rank: int, world: int) -> Share:
        """What process `rank` of `world` computes of one of these batches."""

    def validation_batches(self, world: int) -> Iterable[Any]:
        """The validation data, on the CPU, for processes that take every `world`-th batch."""

    def losses(self, model: nn.Module, batch: Any) -> Losses:
        """Of each example."""

    def metrics(self, scores: Scores) -> dict[str, float]:
        """What is reported of an epoch, by name: the loss first."""

    def selection_score(self, scores: Scores) -> float:
        """Model-selection score; higher is better."""

    def state(self) -> dict[str, Tensor]:
        """What this process takes from one training batch to the next, for a checkpoint."""

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Put back what `state` returned."""
