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

from ordered_memory.tree_recovery import shift_reduce
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
    """Encodes a sequence along the trees of a layer: leaves are LN(W x + b), nodes LN(cell(left, right))."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer
        self.along_trees = nn.ModuleList()
        for direction in layer.directions:
            self.along_trees.append(TreeCell(layer.input_size, layer.slot_size, dropout=0.0))
            for name in ("projection", "norm", "cell"):
                setattr(self.along_trees[-1], name, getattr(direction, name))
        self.largest: list[Tensor] = []

    def forward(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        attention = self.layer(embedded, lengths=lengths).attention
        largest = attention.amax(-1)
        self.largest.append(largest[largest > 0])  # no padding, and no first token: its memory is empty
        summaries: list[Tensor] = []
        for step, rows in zip((1, -1), attention if self.layer.bidirectional else [attention], strict=False):
            orders = [range(size)[::step] for size in lengths.tolist()]  # in which the tokens are read
            slots = [row.argmax(-1)[list(order)] for row, order in zip(rows, orders, strict=True)]
            trees = [shift_reduce(pointers, attention.shape[-1]) for pointers in slots]
            batch = batch_trees(list(map(tree_nodes, trees, orders)), embedded.shape[1])
            words = embedded.flatten(0, 1).index_select(0, batch.words)
            summaries.append(self.along_trees[len(summaries)](words, batch))
        return torch.cat(summaries, -1)


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
