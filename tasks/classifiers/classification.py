"""The `Objective` of classifiers: batches, losses and metrics for any data set of labeled sequences."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ordered_memory.trees import Span, Tree
from tasks.classifiers.config import CurriculumConfig
from tasks.classifiers.encoded import Encoded
from tasks.classifiers.rrnet import policy_gradient_loss
from tasks.classifiers.tree_batching import TreeBatch
from tasks.runs.batching import Indices, bucketed_batches, evaluation_batches
from tasks.runs.errors import UserError
from tasks.runs.interfaces import Losses, Scores, Shard, digest
from tasks.runs.progress import progress_bar

TOKENS_PER_BATCH = 25_600
"""Maximum number of tokens in an evaluation batch, padding included."""


DIGEST_BATCH_SIZE = 1024
"""Number of examples in a batch that is only hashed, not read by a model."""


class Prediction(NamedTuple):
    """The output of a model for a batch of B examples with k sentences each.

    Args:
        logits: logits of the C classes, (B, C).
        encoded: what the encoder returned for the k B sentences: the first sentences of all examples, then
            the second ones, and so on.
    """

    logits: Tensor
    encoded: Encoded


class TokenBatch(NamedTuple):
    """A batch of B examples with k sequences of token ids each, in the order of `Prediction`.

    Args:
        tokens: token ids, padded with 0 on the right, (k B, T) int64.
        lengths: number of tokens, (k B,) int64; on the CPU, whatever the device of the rest.
        labels: (B,) int64.
        trees: the true trees of the k B sequences; None unless the data set includes them.
    """

    tokens: Tensor
    lengths: Tensor
    labels: Tensor
    trees: TreeBatch | None = None


class Sentence(NamedTuple):
    """An input sequence and, if it is known, its true tree.

    Args:
        tokens: all tokens that the model reads.
        positions: positions of the words among the tokens. Words are the leaves of the trees; the parentheses
            of a formula, for instance, are tokens but not words.
        tree: the true tree, over the words; None if it is not known.
        name: distinguishes the sentences of an example.
        values: a number in [-1, 1], such as its sentiment, for each node of the true tree, single words (i,
            i) included; None if the task has no labels of nodes.
    """

    tokens: list[str]
    positions: Sequence[int]
    tree: Tree | None = None
    name: str = ""
    values: Mapping[Span, float] | None = None

    @property
    def words(self) -> list[str]:
        """The tokens that are leaves of the trees."""
        return [self.tokens[position] for position in self.positions]


class LabeledData(ABC):
    """A data set of n examples with k sentences each. Data sets derive from this class."""

    labels: Indices
    """(n,) int64."""
    split: str = "test"
    """What results on this data are called: "test" or "validation"."""
    labeled: bool = True
    """Whether labels are known; a sentence that a user typed, for instance, has a dummy label."""

    @property
    @abstractmethod
    def sentence_lengths(self) -> Indices:
        """Number of tokens of each sentence, (n, k) int64."""

    @abstractmethod
    def batch(self, indices: ArrayLike) -> Any:
        """Collate examples to padded tensors.

        Args:
            indices: (B,) int64.
        Returns:
            A named tuple with at least `labels`, (B,) int64, and `lengths`, (k B,) int64, on the CPU: the
            first sentences of all examples, then the second ones.
        """

    @abstractmethod
    def sentences(self, index: int) -> tuple[Sentence, ...]:
        """Return the k sentences of an example.

        Args:
            index: index of the example, in [0, n).
        """

    def word_trees(self, trees: list[Tree], batch: Any) -> list[Tree]:
        """Remove the tokens that are not words from trees.

        Args:
            trees: over all tokens, one for each of the k B sentences of `batch`.
            batch: returned by `batch`.
        Returns:
            The same number of trees, over the words. By default every token is a word.
        """
        return trees


def check_data(data: LabeledData, num_classes: int, name: str) -> None:
    """Check the labels and lengths of a data set.

    Args:
        data: n examples.
        num_classes: C, number of classes.
        name: name of the data, for the error message.
    Raises:
        UserError: a label is not in [0, C), or a sentence has no tokens.
    """
    wrong = np.flatnonzero((data.labels < 0) | (data.labels >= num_classes))
    if wrong.size:
        label = data.labels[wrong[0]]
        raise UserError(f"{name}, example {wrong[0]}: labels must lie in 0..{num_classes - 1}, got {label}")
    empty = np.flatnonzero((data.sentence_lengths < 1).any(1))
    if empty.size:
        raise UserError(f"{name}, example {empty[0]}: expected one token or more, got none")


Data = TypeVar("Data", covariant=True)


class Splits(NamedTuple, Generic[Data]):
    """The data of a run."""

    train: Data
    validation: Data
    test: Data


class ClassificationObjective:
    """Implements `tasks.runs.interfaces.Objective` for models that take a batch and return a `Prediction`.

    Args:
        config: batch sizes, curriculum and seed.
        train: training data.
        validation: validation data.
        augment: changes the training data of each epoch, from which `shard` then takes the batches; see
            `ClassifierTask`.
    """

    def __init__(
        self,
        config: CurriculumConfig,
        train: LabeledData,
        validation: LabeledData,
        augment: Callable[[LabeledData, np.random.Generator], LabeledData] | None = None,
    ) -> None:
        self.config, self.train, self.validation, self.augment = config, train, validation, augment
        self.batch_options = config.batch_options
        self.train_of_epoch = train

    def fingerprint(self) -> str:
        return fingerprint([self.train, self.validation])

    def training_batches(self, epoch: int, batch_size: int) -> Sequence[Indices]:
        if self.augment is not None:
            rng = np.random.default_rng((self.config.seed, epoch, 1))  # not that of the batches
            self.train_of_epoch = self.augment(self.train, rng)
        lengths = self.train_of_epoch.sentence_lengths
        examples = examples_of_epoch(self.config, lengths, epoch)
        batches = bucketed_batches(lengths[examples].sum(1), batch_size, seed=self.config.seed, epoch=epoch)
        return [examples[batch] for batch in batches]

    def shard(self, batch: Indices, rank: int, world_size: int) -> Shard:
        indices = batch[rank::world_size]
        has_examples = len(indices) > 0  # the last batch may be smaller than the number of processes
        examples = indices if has_examples else batch[:1]
        return Shard(self.train_of_epoch.batch(examples), len(batch), has_examples)

    def validation_batches(self, world_size: int) -> Iterator[Any]:
        batches = _evaluation_indices(self.validation, self.config.evaluation_batch_size)
        for indices in progress_bar(batches, desc="validating", unit="batch"):
            yield self.validation.batch(indices)

    def losses(self, model: nn.Module, batch: Any) -> Losses:
        return compute_losses(model(batch), batch.labels)

    def metrics(self, scores: Scores) -> dict[str, float]:
        return {"loss": scores.loss, "accuracy": scores.accuracy}

    def selection_score(self, scores: Scores) -> float:
        return scores.accuracy

    def state(self) -> dict[str, Tensor]:
        return {}  # nothing is carried from one batch to the next

    def load_state(self, state: dict[str, Tensor]) -> None:
        pass


def examples_of_epoch(config: CurriculumConfig, sentence_lengths: Indices, epoch: int) -> Indices:
    """Choose the training examples of an epoch: the short ones, or all after `curriculum_epochs`.

    Args:
        config: the curriculum.
        sentence_lengths: number of tokens of each sentence, (n, k) int64.
        epoch: starts at 1.
    Returns:
        Their indices in increasing order.
    """
    if epoch > config.curriculum_epochs:
        return np.arange(len(sentence_lengths))
    return np.flatnonzero(sentence_lengths.max(1) <= config.curriculum_length)


def compute_losses(prediction: Prediction, labels: Tensor) -> Losses:
    """Compute the losses of a batch of B examples.

    The reward of a rollout is 1 if the answer to its example is correct, and 0 otherwise.

    Args:
        prediction: the output of the model.
        labels: (B,) int64.
    """
    logits, penalty, rollout = prediction.logits, prediction.encoded.penalty, prediction.encoded.rollout
    correct = logits.argmax(-1) == labels
    if rollout is not None:
        rewards = correct.repeat(len(rollout.lengths) // len(labels)).to(rollout.values.dtype)
        penalty = policy_gradient_loss(rollout, rewards)
    return Losses(
        cross_entropy(logits, labels, reduction="none"), correct, None if penalty is None else penalty.mean()
    )


def iterate_batches(dataset: LabeledData, batch_size: int) -> Iterator[tuple[Indices, Any]]:
    """Iterate over a data set in batches of similar lengths, the longest first.

    Args:
        dataset: the data set.
        batch_size: maximum number of examples in a batch.
    Yields:
        Indices of the examples, (B,), and their batch.
    """
    for indices in _evaluation_indices(dataset, batch_size):
        yield indices, dataset.batch(indices)


def _evaluation_indices(dataset: LabeledData, batch_size: int) -> list[Indices]:
    lengths = dataset.sentence_lengths
    padded = lengths.shape[1] * lengths.max(1)  # all sentences of a batch are padded to the same length
    return evaluation_batches(padded, batch_size, TOKENS_PER_BATCH)


def fingerprint(datasets: Sequence[LabeledData]) -> str:
    """Return a digest of data sets: labels, lengths and what models read.

    Args:
        datasets: their order, and that of the examples, matters, too.
    """
    sizes = digest(*(array for dataset in datasets for array in (dataset.labels, dataset.sentence_lengths)))
    return f"{sizes}-{_digest_of_inputs(datasets)}"


def digest_of_sizes(datasets: Sequence[LabeledData]) -> str:
    """Return a digest of the labels and lengths of data sets, in whatever order a seed splits them.

    Args:
        datasets: training and validation data.
    """
    rows = [np.column_stack([dataset.labels, dataset.sentence_lengths]) for dataset in datasets]
    table = np.concatenate(rows)
    return digest(np.array([len(dataset.labels) for dataset in datasets]), table[np.lexsort(table.T)])


def _digest_of_inputs(datasets: Iterable[LabeledData]) -> str:
    """A SHA-256 digest of what models read: the tensors and lists of all batches, but not the true trees."""
    sha256 = hashlib.sha256()
    for dataset in datasets:
        for start in range(0, len(dataset.labels), DIGEST_BATCH_SIZE):
            for field in dataset.batch(np.arange(start, min(start + DIGEST_BATCH_SIZE, len(dataset.labels)))):
                if not isinstance(field, TreeBatch):
                    _update_hash(sha256, field)
    return sha256.hexdigest()


def _update_hash(sha256: Any, field: Any) -> None:
    """Add tensors, arrays and JSON values, also within lists and tuples, to a hash."""
    if isinstance(field, Tensor):
        sha256.update(field.flatten().view(torch.uint8).numpy().tobytes())
    elif isinstance(field, np.ndarray):
        sha256.update(field.tobytes())
    elif isinstance(field, list | tuple) and any(isinstance(item, Tensor | np.ndarray) for item in field):
        for item in field:
            _update_hash(sha256, item)
    elif field is not None:
        sha256.update(json.dumps(field).encode())
