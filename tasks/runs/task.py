"""The interface between the training loop and a task: batches, losses, scores."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

if TYPE_CHECKING:
    from tasks.runs.optimization import Optimization
    from tasks.runs.run_directory import RunDirectory


class Scores(NamedTuple):
    """Mean scores of a model on a data set.

    Args:
        loss: mean cross-entropy, nats.
        accuracy: fraction in [0, 1].
    """

    loss: float
    accuracy: float


class Share(NamedTuple):
    """The part of a batch that one process computes.

    Args:
        batch: tensors in the task's own type, on the CPU.
        examples: size of the whole batch, over all processes.
        counted: False if there is no example for this process, whose result is then ignored.
    """

    batch: Any
    examples: int
    counted: bool = True


class Losses(NamedTuple):
    """Losses of the examples of a batch.

    Args:
        loss: cross-entropy, nats, (n,).
        correct: bool, (n,); all False where the task reports no accuracy.
        penalty: a scalar added to the mean loss in training, but not reported.
    """

    loss: Tensor
    correct: Tensor
    penalty: Tensor | None = None


def digest(*arrays: NDArray[np.int64]) -> str:
    """A digest of arrays, for `Task.fingerprint`.

    Args:
        arrays: in order; their shapes count, too.
    """
    found = hashlib.sha256()
    for array in arrays:
        found.update(str(array.shape).encode() + array.tobytes())
    return found.hexdigest()


class Task(Protocol):
    """What the training loop needs from a task: batches, losses and metrics."""

    batch_options: tuple[str, ...]
    """The options that, with the seed, determine which examples are in each batch of an epoch."""

    def fingerprint(self) -> str:
        """Tells the training and validation data from others, so that a run goes on with its own."""

    def training_batches(self, epoch: int, batch_size: int) -> Sequence[Any]:
        """The batches of an epoch, each as a description that `share` turns into tensors.

        The result depends only on the arguments, the seed and `batch_options`.

        Args:
            epoch: from 1.
            batch_size: examples in a batch, over all processes.
        Returns:
            One description per step, in order.
        """

    def share(self, batch: Any, rank: int, world: int) -> Share:
        """The part of a training batch that one process computes.

        Args:
            batch: one of `training_batches`.
            rank: the process, in [0, world).
            world: number of processes.
        Returns:
            Tensors on the CPU and the size of the whole batch.
        """

    def validation_batches(self, world: int) -> Iterable[Any]:
        """The validation data in batches on the CPU; each process takes every `world`-th of them.

        Args:
            world: number of processes.
        """

    def losses(self, model: nn.Module, batch: Any) -> Losses:
        """The loss of each example of a batch.

        Args:
            model: on the device of the batch.
            batch: from `share` or `validation_batches`.
        Returns:
            Losses in the order of the examples.
        """

    def metrics(self, scores: Scores) -> dict[str, float]:
        """The metrics to report.

        Args:
            scores: means over an epoch or the validation data.
        Returns:
            Values by name, the loss first.
        """

    def selection_score(self, scores: Scores) -> float:
        """Model-selection score; higher is better.

        Args:
            scores: means over the validation data.
        """

    def state(self) -> dict[str, Tensor]:
        """What this process carries from one training batch to the next, such as hidden states; saved in
        checkpoints."""

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore what this process carried between batches.

        Args:
            state: what `state` returned.
        """


class Prepared(NamedTuple):
    """What a task provides for a run.

    Args:
        task: batches and losses.
        model: with its initial weights, on the CPU.
        optimization: of the model.
        description: model and data in one line.
        test: evaluates the best weights on the test data, once and in the main process, on a device; writes
            the report and returns the results as JSON values.
        results_text: formats the results for the terminal.
        metadata: JSON values saved beside the configuration in best.safetensors.
    """

    task: Task
    model: nn.Module
    optimization: Optimization
    description: str
    test: Callable[[RunDirectory, torch.device], dict[str, Any]]
    results_text: Callable[[dict[str, Any]], str]
    metadata: dict[str, Any] | None = None
