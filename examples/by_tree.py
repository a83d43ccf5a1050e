"""Does Ordered Memory compute by the tree that it shows?

Attention is spread over slots. The tree keeps the slot with the most of it. Here a trained model answers
again, by its cell along this tree alone, as if all attention were on one slot.

python examples/by_tree.py                          # the shipped model of ListOps, generated expressions
python examples/by_tree.py logic DIR CHECKPOINT     # official data, another model; also sst2 and sst5
"""

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ordered_memory.tree_recovery import from_attention
from tasks.classifiers.evaluation import evaluate
from tasks.classifiers.task import ClassifierTask
from tasks.classifiers.tree_batching import batch_trees, tree_nodes
from tasks.classifiers.tree_models import TreeCell
from tasks.listops.task import LISTOPS
from tasks.logic.task import LOGIC
from tasks.pretrained import pretrained
from tasks.sst.task import SST

TASKS: dict[str, ClassifierTask[Any]] = {"listops": LISTOPS, "logic": LOGIC, "sst2": SST, "sst5": SST}


class ByTree(nn.Module):
    """Encodes a sequence along the tree of a layer: leaves are LN(W x + b), nodes LN(cell(left, right))."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer
        self.along_trees = TreeCell(layer.input_size, layer.slot_size, dropout=0.0)
        for name in ("projection", "norm", "cell"):
            setattr(self.along_trees, name, getattr(layer.directions[0], name))
        self.largest: list[Tensor] = []

    def forward(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        attention = self.layer(embedded, lengths=lengths).attention
        largest = attention.amax(-1)
        self.largest.append(largest[largest > 0])  # no padding, and no first token: its memory is empty
        trees = from_attention(attention, lengths, batch_first=True)
        nodes = [tree_nodes(tree, range(size)) for tree, size in zip(trees, lengths.tolist(), strict=True)]
        batch = batch_trees(nodes, embedded.shape[1])
        summary: Tensor = self.along_trees(embedded.flatten(0, 1).index_select(0, batch.words), batch)
        return summary


def main(name: str = "listops", directory: str = "", checkpoint: str = "") -> None:
    """Compare the answers of a model with those along its trees."""
    task = TASKS[name]
    model = task.model_class.from_pretrained(Path(checkpoint)) if checkpoint else pretrained(name)
    config = model.config
    config.data_dir = Path(directory) if directory else None
    config.expressions, config.generated = 10_000, 2000  # if there is no directory
    data = task.load_splits(config).test
    model.adapt(data)  # a sentiment model gets vectors of the words that it lacks
    usual = evaluate(model, data)
    model.encoder = by_tree = ByTree(model.encoder)
    along_trees = evaluate(model, data)
    print(f"{name}, {len(data.labels):,} examples")
    print(f"the largest attention of a token: {torch.cat(by_tree.largest).mean():.3f} (mean)")
    print(f"accuracy: {usual.correct.mean():.4f}")
    print(f"accuracy along its trees: {along_trees.correct.mean():.4f}")
    print(f"the same answer: {(usual.predicted == along_trees.predicted).mean():.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
