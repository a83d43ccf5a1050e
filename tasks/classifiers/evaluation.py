"""Evaluate a trained classifier: predictions, accuracy by group, span F1 of the induced trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ordered_memory.brackets import to_brackets
from ordered_memory.trees import Span, Tree
from tasks.classifiers.classification import LabeledData, Prediction, Sentence, iterate_batches
from tasks.classifiers.tree_reading import read_other_trees, read_trees
from tasks.reporting.induced_trees import MODEL, score_trees, valid_fractions, with_reading
from tasks.runs.errors import UserError
from tasks.runs.machine import to_device
from tasks.runs.progress import progress_bar
from tasks.spelling.escapes import escape_parentheses

Groups = Mapping[str, NDArray[np.bool_]]
"""Groups of examples: by name, a mask (n,) of the examples in the group."""

ValidSpans = Callable[[Tree, Sequence[str]], set[Span]]
"""Returns the constituents of all valid trees, given the true tree and its words; see
`Evaluation.tree_scores`."""

CROSS = " × "
"""Groups with names such as `a × b` are shown as a table with a row for each a and a column for each b."""


def by_length(lengths: NDArray[np.int64], bounds: Sequence[int]) -> Groups:
    """Group examples by their length.

    Args:
        lengths: (n,).
        bounds: the maximum length of each group except the last, in increasing order.
    Returns:
        Masks (n,) of the groups, the shortest first.
    Example:
        >>> by_length(np.array([3, 12, 10]), [10, 20])["1–10"]
        array([ True, False,  True])
    """
    masks = {f"{low + 1}–{high}": (low < lengths) & (lengths <= high) for low, high in pairwise([0, *bounds])}
    return masks | {f"≥ {bounds[-1] + 1}": lengths > bounds[-1]}


@dataclass
class Evaluation:
    """A model's predictions on a data set.

    Args:
        data: n examples.
        probabilities: probabilities of the C classes for each example, (n, C) float64.
        trees: the induced trees of the sentences of each example; None for a model that induces none.
        other_trees: those that could have been read instead; see `read_other_trees`.
    """

    data: LabeledData
    probabilities: NDArray[np.float64]
    trees: list[tuple[Tree, ...]] | None
    other_trees: dict[str, list[tuple[Tree, ...]]] = field(default_factory=dict)

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """The most probable class of each example, (n,)."""
        best: NDArray[np.int64] = self.probabilities.argmax(-1)
        return best

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each prediction is correct, (n,)."""
        correct: NDArray[np.bool_] = self.predicted == self.data.labels
        return correct

    def accuracy_by(self, groups: Groups, counts: NDArray[np.int64] | None = None) -> dict[str, list[float]]:
        """Compute the accuracy on groups of examples.

        Args:
            groups: their masks, by name.
            counts: how many equal examples each one stands for, (n,); None for one.
        Returns:
            Accuracy and number of examples of each group that is not empty.
        """
        correct, weights = self.correct, np.ones_like(self.predicted) if counts is None else counts
        return {
            name: [float(np.average(correct[mask], weights=weights[mask])), int(weights[mask].sum())]
            for name, mask in groups.items()
            if mask.any()
        }

    def confusion(self, num_classes: int) -> list[list[int]]:
        """The confusion matrix.

        Args:
            num_classes: C, number of classes.
        Returns:
            C × C counts; true classes are rows, predicted ones columns.
        """
        counts = np.zeros((num_classes, num_classes), dtype=np.int64)
        np.add.at(counts, (self.data.labels, self.predicted), 1)
        rows: list[list[int]] = counts.tolist()
        return rows

    def tree_scores(self, min_words: int, valid_spans: ValidSpans | None = None) -> dict[str, Any]:
        """Score the induced trees, and baselines, against the true trees.

        A tree is valid if it applies every operator to its own operands, as the true tree does.

        Args:
            min_words: shorter sentences are left out, and so are those without a true tree.
            valid_spans: returns the constituents that a valid tree may have; None to skip this metric.
        Returns:
            "span_f1", F1 by convention; "valid_trees", fractions by name, empty without `valid_spans`; and
            "scored_trees", the number of trees. If there are none, the first two are empty.
        """
        scored = [
            (index, place, sentence.tree, sentence.words)
            for index in range(len(self.trees or ()))
            for place, sentence in enumerate(self.data.sentences(index))
            if sentence.tree is not None and len(sentence.words) >= min_words
        ]
        induced = {
            with_reading(MODEL, reading): [trees[index][place] for index, place, _, _ in scored]
            for reading, trees in (("", self.trees), *self.other_trees.items())
            if trees is not None
        }
        valid = [] if valid_spans is None else [valid_spans(true, words) for _, _, true, words in scored]
        return {
            "span_f1": score_trees(induced, [true for _, _, true, _ in scored]) if scored else {},
            "valid_trees": valid_fractions(induced, valid) if valid else {},
            "scored_trees": len(scored),
        }

    def rows(self, classes: Sequence[str]) -> Iterator[dict[str, Any]]:
        """What the model predicts for each example, as JSON values.

        Args:
            classes: names of the classes, in the order of the labels.
        Yields:
            The texts of the example, its label if it is known, the prediction, the probability of each class
            and, in brackets, the true trees if they are known, the induced ones if there are any, and the
            other ones. In these, parentheses within words are written -LRB- and -RRB-.
        """
        for index, (label, predicted) in enumerate(zip(self.data.labels, self.predicted, strict=True)):
            sentences = self.data.sentences(index)
            probabilities = [round(float(value), 6) for value in self.probabilities[index]]
            row: dict[str, Any] = {"texts": [" ".join(sentence.tokens) for sentence in sentences]}
            if self.data.labeled:
                row["label"] = classes[label]
            row["prediction"] = classes[predicted]
            row["probabilities"] = dict(zip(classes, probabilities, strict=True))
            true = [(sentence.tree, sentence.words) for sentence in sentences if sentence.tree is not None]
            if true:
                row["true_trees"] = [to_brackets(tree, escape_parentheses(words)) for tree, words in true]
            if self.trees is not None:
                row["trees"] = _in_brackets(self.trees[index], sentences)
            if self.other_trees:
                row["other_trees"] = {
                    reading: _in_brackets(trees[index], sentences)
                    for reading, trees in self.other_trees.items()
                }
            yield row


def _in_brackets(trees: Sequence[Tree], sentences: Sequence[Sentence]) -> list[str]:
    return [
        to_brackets(tree, escape_parentheses(sentence.words))
        for tree, sentence in zip(trees, sentences, strict=True)
    ]


class ExamplePrediction(NamedTuple):
    """The output of a model for one example.

    Args:
        probabilities: probabilities of the classes, (C,).
        trees: the induced trees over the words of each sentence; None for a model that induces none.
        token_trees: the same, over all tokens.
        other_trees: the trees over the words that could have been read instead; see `read_other_trees`.
        attention: attention over the slots at each token of each sentence, (T, N); None without slots.
        distances: those of each layer for each sentence, (L, T); None if trees are not read from them.
        backward_attention, backward_distances: the same for the backward direction; None if there is none.
    """

    probabilities: Tensor
    trees: tuple[Tree, ...] | None
    token_trees: tuple[Tree, ...] | None
    other_trees: dict[str, tuple[Tree, ...]]
    attention: list[Tensor] | None
    distances: list[Tensor] | None
    backward_attention: list[Tensor] | None
    backward_distances: list[Tensor] | None


@torch.inference_mode()
def evaluate(model: nn.Module, data: LabeledData, *, batch_size: int = 256) -> Evaluation:
    """Evaluate a model on a data set, on the model's device, with a progress bar in a terminal.

    Args:
        model: takes a batch and returns a `Prediction`.
        data: examples of any length.
        batch_size: maximum number of examples in a batch.
    Returns:
        Predictions and trees in the order of the data.
    Raises:
        UserError: the model computes values that are not finite.
    """
    model.eval()
    device = next(model.parameters()).device
    order: list[NDArray[np.int64]] = []
    probabilities: list[NDArray[np.float64]] = []
    trees: dict[str, dict[int, tuple[Tree, ...]]] = {}  # by reading, then by the index of the example
    with progress_bar(total=len(data.labels), desc="evaluating", unit="example") as bar:
        for indices, batch in iterate_batches(data, batch_size):
            prediction = _predict(model, to_device(batch, device))
            order.append(indices)
            probabilities.append(prediction.logits.cpu().double().softmax(-1).numpy())
            induced = read_trees(prediction.encoded, batch.lengths)
            others = read_other_trees(prediction.encoded, batch.lengths)
            for reading, batch_trees in ({} if induced is None else {"": induced, **others}).items():
                trees.setdefault(reading, {}).update(_trees_of_examples(batch_trees, data, batch, indices))
            bar.update(len(indices))
    ordered_probabilities = np.concatenate(probabilities)[np.argsort(np.concatenate(order))]
    ordered_trees = {reading: [found[i] for i in range(len(found))] for reading, found in trees.items()}
    return Evaluation(data, ordered_probabilities, ordered_trees.pop("", None), ordered_trees)


def _trees_of_examples(
    trees: list[Tree], data: LabeledData, batch: Any, indices: NDArray[np.int64]
) -> dict[int, tuple[Tree, ...]]:
    """The trees over the words of each example of a batch, by the index of the example."""
    word_trees = data.word_trees(trees, batch)
    starts = range(0, len(word_trees), len(indices))
    trees_by_sentence = (word_trees[start : start + len(indices)] for start in starts)
    return dict(zip(indices.tolist(), zip(*trees_by_sentence, strict=True), strict=True))


@torch.inference_mode()
def predict_example(model: nn.Module, data: LabeledData, index: int) -> ExamplePrediction:
    """Apply a model to one example, in evaluation mode.

    Args:
        model: model on the CPU.
        data: contains the example.
        index: index of the example.
    Returns:
        Probabilities, trees, and attention or distances.
    Raises:
        UserError: the model computes values that are not finite.
    """
    batch = data.batch([index])
    prediction = _predict(model.eval(), batch)
    probabilities = prediction.logits.float().softmax(-1)[0]
    encoded = prediction.encoded
    induced = read_trees(encoded, batch.lengths)
    others = read_other_trees(encoded, batch.lengths)
    distances = {
        direction: layers.transpose(0, 1) for direction, layers in encoded.distances_of_trees.items()
    }
    return ExamplePrediction(
        probabilities,
        trees=None if induced is None else tuple(data.word_trees(induced, batch)),
        token_trees=None if induced is None else tuple(induced),
        other_trees={reading: tuple(data.word_trees(trees, batch)) for reading, trees in others.items()},
        attention=_without_padding(encoded.attention, batch.lengths, 0),
        distances=_without_padding(distances.get("forward"), batch.lengths, -1),
        backward_attention=_without_padding(encoded.backward_attention, batch.lengths, 0),
        backward_distances=_without_padding(distances.get("backward"), batch.lengths, -1),
    )


def _without_padding(values: Tensor | None, lengths: Tensor, axis: int) -> list[Tensor] | None:
    """The values of each sentence, (S, …), whose axis of tokens ends with the sentence."""
    if values is None:
        return None
    return [row.narrow(axis, 0, size) for row, size in zip(values.float(), lengths.tolist(), strict=True)]


def _predict(model: nn.Module, batch: Any) -> Prediction:
    """Apply a model to a batch; a UserError is raised unless its logits are finite."""
    prediction: Prediction = model(batch)
    if not isinstance(prediction, Prediction):
        name, got = type(model).__name__, type(prediction).__name__
        raise TypeError(f"{name}.forward must return a Prediction, got {got}")
    if not prediction.logits.isfinite().all():
        raise UserError("the model computes values that are not finite: its training has diverged")
    return prediction
