"""Classifying sequences, as the training loop wants it: any task with a data set of examples and labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ordered_memory.trees import Span, Tree
from tasks.classifiers.batching import Indices, bucketed_batches, evaluation_batches
from tasks.runs.config import TrainingConfig
from tasks.runs.progress import progress_bar
from tasks.runs.task import Losses, Scores, Share, digest

TOKENS_PER_BATCH = 25_600
"""The most tokens of an evaluation batch, with padding."""


class Prediction(NamedTuple):
    """What a model says of a batch of B examples with k sentences each.

    Args:
        logits: (B, C), of the classes.
        attention: p of every token, (k B, T, N), the first sentences of all examples first; None for a model
            without slots.
        merges: which neighbours the model joined, step after step, (k B, T - 1) int64: i joins nodes i and
            i + 1 of those that are left. A sequence of n tokens has n - 1 such steps, and what follows has no
            meaning. None for a model that joins no neighbours.
        penalty: of each sentence, (k B,), whose mean training adds to the loss; None for nothing.
    """

    logits: Tensor
    attention: Tensor | None = None
    merges: Tensor | None = None
    penalty: Tensor | None = None


class Sentence(NamedTuple):
    """A sequence that a model reads.

    Args:
        tokens: all that is read.
        positions: of the words among the tokens. The words are the leaves of the trees; parentheses, for
            instance, are read but are no words.
        tree: the true tree, over the words.
        name: tells it from the other sentences of an example.
        values: a number in [-1, 1] for each node of the true tree, words (i, i) among them, such as its
            sentiment; None where the task has no such thing.
    """

    tokens: list[str]
    positions: Sequence[int]
    tree: Tree
    name: str = ""
    values: Mapping[Span, float] | None = None

    @property
    def words(self) -> list[str]:
        """The tokens that are leaves of the trees."""
        return [self.tokens[position] for position in self.positions]


class LabelledData(Protocol):
    """A data set of n examples with k sentences each."""

    labels: Indices
    """(n,) int64."""
    part: str
    """What results on it are called: "test", or "validation" where there is no test data."""
    labelled: bool
    """Whether labels and trees are known; those of a typed sentence, for instance, only stand in."""

    @property
    def sentence_lengths(self) -> Indices:
        """(n, k) int64: tokens of each sentence."""

    def batch(self, indices: ArrayLike) -> Any:
        """Examples as padded tensors.

        Args:
            indices: of the examples, (B,).
        Returns:
            A named tuple with `labels`, (B,) int64, and `lengths`, (k B,) int64, on the CPU.
        """

    def sentences(self, index: int) -> tuple[Sentence, ...]:
        """The k sentences of an example.

        Args:
            index: of the example, in [0, n).
        """

    def word_trees(self, trees: list[Tree], batch: Any) -> list[Tree]:
        """The trees over words that trees over tokens leave.

        Args:
            trees: over all tokens, one for each of the k B sentences.
            batch: from `batch`, that they are of.
        Returns:
            As many trees over the words alone.
        """


class Splits(NamedTuple):
    """The data of a run."""

    train: LabelledData
    validation: LabelledData
    test: LabelledData


class Classification:
    """Batches and losses; see `tasks.runs.task.Task`. The model takes a batch and returns `logits`.

    Args:
        config: batch sizes and seed.
        train: training data.
        validation: validation data.
    """

    batch_options: tuple[str, ...] = ("batch_size",)

    def __init__(self, config: TrainingConfig, train: LabelledData, validation: LabelledData) -> None:
        self.config, self.train, self.validation = config, train, validation

    def fingerprint(self) -> str:
        parts = (self.train, self.validation)
        return digest(*(array for part in parts for array in (part.labels, part.sentence_lengths)))

    def training_batches(self, epoch: int, batch_size: int) -> Sequence[Indices]:
        return bucketed_batches(
            self.train.sentence_lengths.sum(1), batch_size, seed=self.config.seed, epoch=epoch
        )

    def training_batch(self, indices: Indices) -> Any:
        """A batch of training examples.

        Args:
            indices: of the examples, (B,).
        """
        return self.train.batch(indices)

    def share(self, batch: Indices, rank: int, world: int) -> Share:
        part = batch[rank::world]
        counted = len(part) > 0  # a last batch smaller than the number of processes
        return Share(self.training_batch(part if counted else batch[:1]), len(batch), counted)

    def validation_batches(self, world: int) -> Iterator[Any]:
        batches = _evaluation_indices(self.validation, self.config.evaluation_batch_size)
        for indices in progress_bar(batches, desc="validating", unit="batch"):
            yield self.validation.batch(indices)

    def losses(self, model: nn.Module, batch: Any) -> Losses:
        prediction = model(batch)
        logits, penalty = prediction.logits, prediction.penalty
        return Losses(
            cross_entropy(logits, batch.labels, reduction="none"),
            logits.argmax(-1) == batch.labels,
            None if penalty is None else penalty.mean(),
        )

    def metrics(self, scores: Scores) -> dict[str, float]:
        return {"loss": scores.loss, "accuracy": scores.accuracy}

    def selection_score(self, scores: Scores) -> float:
        return scores.accuracy

    def state(self) -> dict[str, Tensor]:
        return {}  # every batch stands for itself

    def load_state(self, state: dict[str, Tensor]) -> None:
        pass


def batches_of(dataset: LabelledData, batch_size: int) -> Iterator[tuple[Indices, Any]]:
    """A data set in batches of similar lengths, the longest first.

    Args:
        dataset: every example is in one batch.
        batch_size: the most examples in a batch.
    Yields:
        Indices of the examples, (B,), and their batch.
    """
    for indices in _evaluation_indices(dataset, batch_size):
        yield indices, dataset.batch(indices)


def _evaluation_indices(dataset: LabelledData, batch_size: int) -> list[Indices]:
    return evaluation_batches(dataset.sentence_lengths.sum(1), batch_size, TOKENS_PER_BATCH)
