"""What a trained model does on pairs of formulas: accuracy by operations, confusion, span F1 of its trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from lightning_fabric.utilities.apply_func import move_data_to_device
from numpy.typing import NDArray

from ordered_memory.tree_recovery import from_attention
from ordered_memory.trees import Tree, keep_leaves
from tasks.classifiers.classification import batches_of
from tasks.logic.data import MAX_OPERATIONS, PATTERNS, TRAIN_OPERATIONS, Batch, Dataset, Pair, matches
from tasks.logic.formulas import PARENTHESES, RELATIONS, decode, parse
from tasks.logic.model import LogicModel
from tasks.reporting.induced_trees import Scores, score_trees

PUNCTUATION = "parentheses are read but dropped from both trees; formulas of one word are left out"


@dataclass
class Evaluation:
    """A model's answers, one for each pair.

    Args:
        pairs: what was read.
        predicted: the answers, (n,) int64.
        trees: of the left and right formula of each pair, over the words without parentheses; None for a
            model that induces none.
        split: which training the model had.
        exact: tell more than 12 operations apart, which the official files and the papers do not.
    """

    pairs: Sequence[Pair]
    predicted: NDArray[np.int64]
    trees: list[tuple[Tree, Tree]] | None
    split: str
    exact: bool = False

    @property
    def labels(self) -> NDArray[np.int64]:
        """(n,): the true relations."""
        return np.array([pair.label for pair in self.pairs], dtype=np.int64)

    def by_operations(self) -> dict[str, tuple[float, int]]:
        """Accuracy and number of pairs for each number of operations."""
        operations = np.array([pair.operations for pair in self.pairs])
        if not self.exact:
            operations = np.minimum(operations, MAX_OPERATIONS)
        return self._grouped({str(number): operations == number for number in np.unique(operations)})

    def excluded(self) -> dict[str, tuple[float, int]]:
        """On the pairs that a systematic split left out of training; empty for the full one."""
        pattern = PATTERNS[self.split]
        if pattern is None:
            return {}
        left_out = np.array([matches(pair, pattern) for pair in self.pairs])
        operations = np.array([pair.operations for pair in self.pairs])
        short = operations <= TRAIN_OPERATIONS
        return self._grouped({"0–6": left_out & short, "7–12": left_out & ~short, "0–12": left_out})

    def confusion(self) -> list[list[int]]:
        """Pairs by true relation (rows) and answer (columns), in the order of RELATIONS."""
        counts = np.zeros((len(RELATIONS), len(RELATIONS)), dtype=np.int64)
        np.add.at(counts, (self.labels, self.predicted), 1)
        rows: list[list[int]] = counts.tolist()
        return rows

    def span_f1(self) -> Scores:
        """F1 of the trees and the baselines; empty without trees."""
        if self.trees is None:
            return {}
        predicted, gold = [], []
        for pair, trees in zip(self.pairs, self.trees, strict=True):
            for clause, tree in zip((pair.left, pair.right), trees, strict=True):
                if len(clause) > 1:
                    predicted.append(tree)
                    gold.append(parse(decode(clause)).tree)
        return score_trees(predicted, gold)

    def summary(self) -> dict[str, Any]:
        """Everything above as JSON values."""
        return {
            "pairs": len(self.pairs),
            "split": self.split,
            "accuracy": float((self.predicted == self.labels).mean()),
            "accuracy_by_operations": {name: list(pair) for name, pair in self.by_operations().items()},
            "accuracy_on_excluded": {name: list(pair) for name, pair in self.excluded().items()},
            "relations": list(RELATIONS),
            "confusion": self.confusion(),
            "span_f1": self.span_f1(),
            "punctuation": PUNCTUATION,
        }

    def _grouped(self, masks: dict[str, NDArray[np.bool_]]) -> dict[str, tuple[float, int]]:
        correct = self.predicted == self.labels
        return {
            name: (float(correct[mask].mean()), int(mask.sum())) for name, mask in masks.items() if mask.any()
        }


@torch.inference_mode()
def evaluate(
    model: LogicModel,
    pairs: Sequence[Pair],
    *,
    split: str,
    given_trees: bool,
    batch_size: int = 256,
    num_slots: int | None = None,
    device: torch.device | str = "cpu",
    exact: bool = False,
) -> Evaluation:
    """Read pairs in evaluation mode.

    Args:
        model: on `device`.
        pairs: of any length.
        split: which training the model had.
        given_trees: whether it is told the true trees.
        batch_size: the most pairs in a batch.
        num_slots: slots for this call; None for the model's own.
        device: where to compute.
        exact: see `Evaluation`.
    Returns:
        Answers and trees in the order of the pairs.
    """
    model.eval()
    dataset = Dataset(pairs, trees=given_trees)
    predicted = np.zeros(len(pairs), dtype=np.int64)
    trees: list[tuple[Tree, Tree] | None] = [None] * len(pairs)
    for indices, batch in batches_of(dataset, batch_size):
        prediction = model(move_data_to_device(batch, torch.device(device)), num_slots)
        predicted[indices] = prediction.logits.argmax(-1).cpu().numpy()
        if prediction.attention is not None:
            read = induced_trees(prediction.attention.float().cpu(), batch)
            for index, left, right in zip(indices, read[: len(indices)], read[len(indices) :], strict=True):
                trees[index] = left, right
    whole = [one for one in trees if one is not None]
    return Evaluation(pairs, predicted, whole if len(whole) == len(trees) else None, split, exact)


def induced_trees(attention: torch.Tensor, batch: Batch) -> list[Tree]:
    """The trees over words that the attention means, by Algorithm 2, parentheses dropped.

    Args:
        attention: p, (2B, T, N).
        batch: what was read.
    Returns:
        2B trees.
    """
    trees = from_attention(attention, batch.lengths, batch_first=True)
    is_word = (batch.tokens != PARENTHESES[0]) & (batch.tokens != PARENTHESES[1]) & (batch.tokens != 0)
    return [
        keep_leaves(tree, torch.nonzero(row).flatten().tolist())
        for tree, row in zip(trees, is_word, strict=True)
    ]
