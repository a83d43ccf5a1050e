"""What a trained model does on a set of expressions: accuracy by length and depth, span F1 of its trees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from lightning_fabric.utilities.apply_func import move_data_to_device
from numpy.typing import NDArray

from ordered_memory.tree_recovery import from_attention
from ordered_memory.trees import Tree
from tasks.classifiers.classification import batches_of
from tasks.listops.data import Dataset
from tasks.listops.expressions import nesting_depth, tree
from tasks.listops.model import ListOpsModel
from tasks.reporting.induced_trees import Scores, score_trees

LENGTH_BUCKETS = ((1, 20), (21, 50), (51, 100), (101, 200), (201, 500), (501, 1000), (1001, 10**9))
PUNCTUATION = "every token counts, operators and brackets included"


@dataclass
class Evaluation:
    """A model's answers on a data set, one for each expression.

    Args:
        dataset: what was read.
        predicted: the answers, (n,) int64.
        trees: read off the attention; None for a model without slots.
    """

    dataset: Dataset
    predicted: NDArray[np.int64]
    trees: list[Tree] | None

    @property
    def correct(self) -> NDArray[np.bool_]:
        """(n,): whether each answer is right."""
        right: NDArray[np.bool_] = self.predicted == self.dataset.labels
        return right

    @property
    def accuracy(self) -> float:
        """Fraction of right answers."""
        return float(self.correct.mean())

    def by_length(self) -> dict[str, tuple[float, int]]:
        """Accuracy and number of expressions in each range of lengths that occurs."""
        lengths = self.dataset.lengths
        masks = {
            f"{low}–{high}" if high < 10**9 else f"≥ {low}": (lengths >= low) & (lengths <= high)
            for low, high in LENGTH_BUCKETS
        }
        return self._grouped(masks)

    def by_depth(self) -> dict[str, tuple[float, int]]:
        """Accuracy and number of expressions at each depth of nested operators."""
        depths = np.array([nesting_depth(self.dataset.tokens_of(i)) for i in range(len(self.dataset))])
        return self._grouped({str(depth): depths == depth for depth in np.unique(depths)})

    def gold_trees(self) -> list[Tree]:
        """The true tree of each expression."""
        return [tree(self.dataset.tokens_of(i)) for i in range(len(self.dataset))]

    def span_f1(self) -> Scores:
        """F1 of the trees and the baselines; empty without trees."""
        return {} if self.trees is None else score_trees(self.trees, self.gold_trees())

    def summary(self) -> dict[str, Any]:
        """Everything above as JSON values."""
        return {
            "expressions": len(self.dataset),
            "accuracy": self.accuracy,
            "accuracy_by_length": {name: list(pair) for name, pair in self.by_length().items()},
            "accuracy_by_depth": {name: list(pair) for name, pair in self.by_depth().items()},
            "span_f1": self.span_f1(),
            "punctuation": PUNCTUATION,
        }

    def _grouped(self, masks: dict[str, NDArray[np.bool_]]) -> dict[str, tuple[float, int]]:
        correct = self.correct
        return {
            name: (float(correct[mask].mean()), int(mask.sum())) for name, mask in masks.items() if mask.any()
        }


@torch.inference_mode()
def evaluate(
    model: ListOpsModel,
    dataset: Dataset,
    *,
    batch_size: int = 256,
    num_slots: int | None = None,
    device: torch.device | str = "cpu",
    on_batch: Callable[[int], None] = lambda examples: None,
) -> Evaluation:
    """Read a data set in evaluation mode.

    Args:
        model: on `device`.
        dataset: expressions of any length.
        batch_size: the most expressions in a batch.
        num_slots: slots for this call; None for the model's own.
        device: where to compute.
        on_batch: told the number of expressions after each batch.
    Returns:
        Answers and trees in the order of the data set.
    """
    model.eval()
    predicted = np.zeros(len(dataset), dtype=np.int64)
    trees: list[Tree | None] = [None] * len(dataset)
    for indices, batch in batches_of(dataset, batch_size):
        prediction = model(move_data_to_device(batch, torch.device(device)), num_slots)
        predicted[indices] = prediction.logits.argmax(-1).cpu().numpy()
        if prediction.attention is not None:
            read = from_attention(prediction.attention.float().cpu(), batch.lengths, batch_first=True)
            for index, one in zip(indices, read, strict=True):
                trees[index] = one
        on_batch(len(indices))
    whole = [one for one in trees if one is not None]
    return Evaluation(dataset, predicted, whole if len(whole) == len(trees) else None)
