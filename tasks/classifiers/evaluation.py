"""What a trained classifier does on a data set: answers, accuracy by group, span F1 of its trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ordered_memory.trees import Span, Tree
from tasks.classifiers.classification import LabelledData, Sentence, batches_of
from tasks.classifiers.tree_reading import read_trees
from tasks.reporting.induced_trees import Scores, score_trees, valid_fractions
from tasks.runs.machine import to_device
from tasks.runs.progress import progress_bar

Masks = Mapping[str, NDArray[np.bool_]]
"""Which examples are in each group, (n,), by name."""

ValidSpans = Callable[[Sentence], set[Span]]
"""The constituents that a tree over a sentence may have if it is to compute what the true tree does."""

CROSS = " × "
"""Groups named `a × b` are shown as a table with a row for each a and a column for each b."""


def by_length(lengths: NDArray[np.int64], bounds: Sequence[int]) -> Masks:
    """Group examples by their length.

    Args:
        lengths: (n,).
        bounds: the greatest length of each group but the last, rising.
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
    """A model's answers on a data set, one for each example.

    Args:
        data: n examples.
        predicted: the classes that were answered, (n,) int64.
        trees: induced trees of the sentences of each example; None for a model that induces none.
    """

    data: LabelledData
    predicted: NDArray[np.int64]
    trees: list[tuple[Tree, ...]] | None

    @property
    def correct(self) -> NDArray[np.bool_]:
        """(n,): whether each answer is right."""
        right: NDArray[np.bool_] = self.predicted == self.data.labels
        return right

    def accuracy_by(self, masks: Masks) -> dict[str, list[float]]:
        """Accuracy in groups of examples.

        Args:
            masks: which examples are in each group, (n,).
        Returns:
            Accuracy and number of examples of each group that has any.
        """
        correct = self.correct
        return {
            name: [float(correct[mask].mean()), int(mask.sum())] for name, mask in masks.items() if mask.any()
        }

    def confusion(self, classes: int) -> list[list[int]]:
        """The confusion matrix.

        Args:
            classes: C, number of classes.
        Returns:
            C × C counts; true classes are rows, predicted ones columns.
        """
        counts = np.zeros((classes, classes), dtype=np.int64)
        np.add.at(counts, (self.data.labels, self.predicted), 1)
        rows: list[list[int]] = counts.tolist()
        return rows

    def span_f1(self, shortest: int) -> Scores:
        """F1 of the induced trees and of the baselines against the true trees.

        Args:
            shortest: sentences of fewer words are left out.
        Returns:
            Scores by convention; empty if the model induces no trees, or all sentences are left out.
        """
        scored = self._scored_trees(shortest)
        if not scored:
            return {}
        return score_trees([tree for _, tree in scored], [sentence.tree for sentence, _ in scored])

    def valid_trees(self, shortest: int, valid_spans: ValidSpans | None) -> dict[str, float]:
        """How many of the induced trees, and of the baselines, compute what the true ones do.

        Args:
            shortest: sentences of fewer words are left out.
            valid_spans: the constituents that such a tree may have; None for no such report.
        Returns:
            Fractions by name; empty where `span_f1` is, or without `valid_spans`.
        """
        if valid_spans is None:
            return {}
        scored = self._scored_trees(shortest)
        valid = [valid_spans(sentence) for sentence, _ in scored]
        return valid_fractions([tree for _, tree in scored], valid)

    def _scored_trees(self, shortest: int) -> list[tuple[Sentence, Tree]]:
        """The sentences of at least so many words, each with its induced tree."""
        return [
            (sentence, tree)
            for index, trees in enumerate(self.trees or ())
            for sentence, tree in zip(self.data.sentences(index), trees, strict=True)
            if len(sentence.words) >= shortest
        ]


class Reading(NamedTuple):
    """What a model makes of one example.

    Args:
        probabilities: of the classes, (C,).
        trees: induced, over the words of each sentence; None for a model that induces none.
        token_trees: the same over all tokens.
        attention: p of each sentence, (T, N); None for a model without slots.
    """

    probabilities: Tensor
    trees: tuple[Tree, ...] | None
    token_trees: tuple[Tree, ...] | None
    attention: list[Tensor] | None


@torch.inference_mode()
def evaluate(
    model: nn.Module,
    data: LabelledData,
    *,
    batch_size: int = 256,
    num_slots: int | None = None,
    device: torch.device | str = "cpu",
) -> Evaluation:
    """Read a data set in evaluation mode, with a progress bar in a terminal.

    Args:
        model: takes a batch and `num_slots`; returns a `Prediction`. On `device`.
        data: examples of any length.
        batch_size: the most examples in a batch.
        num_slots: slots for this call; None for the model's own.
        device: where to compute.
    Returns:
        Answers and trees in the order of the data.
    """
    model.eval()
    predicted = np.zeros(len(data.labels), dtype=np.int64)
    trees: dict[int, tuple[Tree, ...]] = {}
    with progress_bar(total=len(predicted), desc="evaluating", unit="example") as bar:
        for indices, batch in batches_of(data, batch_size):
            prediction = model(to_device(batch, device), num_slots)
            predicted[indices] = prediction.logits.argmax(-1).cpu().numpy()
            induced = read_trees(prediction, batch.lengths)
            if induced is not None:
                read = data.word_trees(induced, batch)
                sides = (read[start : start + len(indices)] for start in range(0, len(read), len(indices)))
                trees.update(zip(indices.tolist(), zip(*sides, strict=True), strict=True))
            bar.update(len(indices))
    return Evaluation(data, predicted, [trees[i] for i in range(len(predicted))] if trees else None)


@torch.inference_mode()
def read(model: nn.Module, data: LabelledData, index: int, num_slots: int | None = None) -> Reading:
    """Read one example in evaluation mode.

    Args:
        model: on the CPU.
        data: has the example.
        index: of the example.
        num_slots: slots for this call; None for the model's own.
    Returns:
        Answer, trees and attention.
    """
    batch = data.batch([index])
    prediction = model.eval()(batch, num_slots)
    probabilities = prediction.logits.float().softmax(-1)[0]
    induced, attention = read_trees(prediction, batch.lengths), None
    if prediction.attention is not None:
        rows = zip(prediction.attention.float(), batch.lengths.tolist(), strict=True)
        attention = [of_tokens[:length] for of_tokens, length in rows]
    if induced is None:
        return Reading(probabilities, None, None, attention)
    return Reading(probabilities, tuple(data.word_trees(induced, batch)), tuple(induced), attention)
