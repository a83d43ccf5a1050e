"""The interfaces between the training loop and a task: objective, optimization, experiment."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

if TYPE_CHECKING:
    from tasks.runs.run_directory import RunDirectory


class Scores(NamedTuple):
    """Mean loss and accuracy of a model on a data set.

    Args:
        loss: mean cross-entropy, in nats.
        accuracy: fraction of correct predictions, in [0, 1].
    """

    loss: float
    accuracy: float


class Shard(NamedTuple):
    """The part of a training batch that one process (one rank) computes.

    Args:
        batch: tensors on the CPU, in the task's own type.
        global_batch_size: number of examples in the whole batch, summed over all processes.
        has_examples: False if the batch has fewer examples than there are processes and this one gets none.
            `batch` is then a placeholder whose loss is multiplied by zero.
    """

    batch: Any
    global_batch_size: int
    has_examples: bool = True


class Losses(NamedTuple):
    """The losses of the n examples of a batch.

    Args:
        loss: cross-entropy of each example in nats, (n,).
        correct: whether each prediction is correct, (n,) bool; all False if the task reports no accuracy.
        penalty: a scalar that is added to the mean loss in training but not reported.
    """

    loss: Tensor
    correct: Tensor
    penalty: Tensor | None = None


def digest(*arrays: NDArray[np.int64]) -> str:
    """Compute a SHA-256 digest of arrays, for `Objective.fingerprint`.

    Args:
        arrays: their order and shapes matter, too.
    """
    sha256 = hashlib.sha256()
    for array in arrays:
        sha256.update(str(array.shape).encode() + array.tobytes())
    return sha256.hexdigest()


class Objective(Protocol):
    """What a model is trained for: batches, losses and metrics."""

    batch_options: tuple[str, ...]
    """Options that must not change within an epoch: with the seed, they determine which examples each batch
    contains and the shape of what is carried from one batch to the next."""

    def fingerprint(self) -> str:
        """Return a digest of the training and validation data.

        It is saved in the checkpoint. A run cannot be resumed if its data have changed.
        """

    def training_batches(self, epoch: int, batch_size: int) -> Sequence[Any]:
        """Choose the examples of each batch of an epoch.

        The result depends only on the arguments, the seed and `batch_options`.

        Args:
            epoch: starts at 1.
            batch_size: examples in a batch, summed over all processes.
        Returns:
            One entry per training step, such as an array of indices; `shard` makes tensors of it.
        """

    def shard(self, batch: Any, rank: int, world_size: int) -> Shard:
        """Load the part of a training batch that one process computes.

        Args:
            batch: one of those that `training_batches` has returned last.
            rank: the process, in [0, world_size).
            world_size: number of processes.
        Returns:
            Tensors on the CPU and the size of the whole batch.
        """

    def validation_batches(self, world_size: int) -> Iterable[Any]:
        """Load the validation data in batches, on the CPU. Batch i belongs to rank i % world_size.

        Args:
            world_size: number of processes.
        """

    def losses(self, model: nn.Module, batch: Any) -> Losses:
        """Compute the loss of each example of a batch.

        Args:
            model: model on the same device as the batch.
            batch: batch from `shard` or `validation_batches`.
        Returns:
            Losses in the order of the examples.
        """

    def metrics(self, scores: Scores) -> dict[str, float]:
        """Compute the metrics to report.

        Args:
            scores: means over a training epoch or over the validation data.
        Returns:
            Values by name, the loss first.
        """

    def selection_score(self, scores: Scores) -> float:
        """Compute the score by which the best epoch is selected; higher is better.

        Of epochs with the same score, the one with the lowest validation loss is selected.

        Args:
            scores: means over the validation data.
        """

    def state(self) -> dict[str, Tensor]:
        """Return what this process carries from one training batch to the next, such as hidden states.

        It is saved in the checkpoint.
        """

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned.

        Args:
            state: state from a checkpoint.
        """


class Optimization(Protocol):
    """An optimizer, its learning rate schedule and, possibly, an average of the weights."""

    optimizer: torch.optim.Optimizer
    restored_options: tuple[str, ...]
    """Options that are part of the restored state: a resumed run cannot change them."""

    def begin_step(self, shard: Shard) -> None:
        """Called before each training step.

        Args:
            shard: the part of the batch that this process computes.
        """

    def end_step(self) -> None:
        """Called after each training step."""

    def end_epoch(self, loss: float, selection_score: float) -> bool:
        """Called after each epoch.

        Args:
            loss: validation loss, in nats.
            selection_score: see `Objective.selection_score`.
        Returns:
            Whether training should go on from the weights of the best epoch.
        """

    @property
    def evaluated_model(self) -> nn.Module:
        """The model to validate and, if it is the best so far, to save: the trained one, or its average."""

    def state_dict(self) -> dict[str, Any]:
        """The state to save in checkpoints, in addition to that of `optimizer`."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state.

        Args:
            state: what `state_dict` returned.
        """


class Experiment(NamedTuple):
    """An objective, a model and its optimizer, ready to train.

    Args:
        objective: provides batches and losses.
        model: model with its initial weights, on the CPU.
        optimization: optimizer and scheduler of the model.
        description: model and data in one line.
        test: called once, in the main process, after training: evaluates the best weights on the test data,
            on the given device. It returns the results as JSON values, and a function that writes the report.
        data: digests of data that results.json stores. If that of "test", the data that `test` evaluates on,
            changes, a finished run is tested again. Of classifiers, "training" is that of the training and
            validation data in any order, as a seed may split them.
        results_text: formats the results for the terminal.
        metadata: JSON values that best.safetensors stores in addition to the configuration.
    """

    objective: Objective
    model: nn.Module
    optimization: Optimization
    description: str
    test: Callable[[RunDirectory, torch.device], tuple[dict[str, Any], Callable[[], None]]]
    data: Mapping[str, str]
    results_text: Callable[[dict[str, Any]], str]
    metadata: dict[str, Any]
