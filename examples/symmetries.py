"""Does a logic model answer equivalent questions alike, and is the mean of several answers better than one?

python examples/symmetries.py                                # the shipped model, 217 generated test pairs
python examples/symmetries.py 8 DIR CHECKPOINT names duals   # 8 questions for each official test pair
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.classifiers.evaluation import evaluate
from tasks.formatting.tables import text_table
from tasks.logic.augmentation import augmented
from tasks.logic.data import Dataset
from tasks.logic.formulas import RELATIONS
from tasks.logic.model import PRETRAINED, LogicModel
from tasks.logic.task import LOGIC, load_pairs


def answers(
    model: LogicModel, dataset: Dataset, symmetries: tuple[str, ...], number: int
) -> Iterator[NDArray[np.float64]]:
    """Ask about each pair, then about pairs that are equivalent to it.

    Args:
        model: the model to ask.
        dataset: n pairs.
        symmetries: the changes that make equivalent pairs; see `augmented`. Some may remove the pattern of a
            systematic split: `operands` that of A, B and C, `duals` that of A and B, `names` that of A.
        number: how often to ask.
    Yields:
        The probabilities of the relations of each pair, (n, 7), as often as `number` says.
    """
    yield evaluate(model, dataset).probabilities
    for seed in range(1, number):
        # The same seed makes the same changes, so the labels of the copies show what each relation becomes.
        copies = []
        for label in range(len(RELATIONS)):
            pairs = [pair._replace(label=label) for pair in dataset.pairs]
            labeled = Dataset(pairs, include_trees=dataset.include_trees)
            copies.append(augmented(labeled, np.random.default_rng(seed), symmetries))
        new_relations = np.stack([copy.labels for copy in copies], axis=1)
        yield np.take_along_axis(evaluate(model, copies[0]).probabilities, new_relations, axis=1)


def main(number: str = "4", directory: str = "", checkpoint: str = str(PRETRAINED), *symmetries: str) -> None:
    """Show the accuracy of one answer and of the mean, and how often all answers agree."""
    model = LogicModel.from_pretrained(Path(checkpoint))
    config = model.config
    config.data_dir = Path(directory) if directory else None
    config.generated = 0 if directory else 2000
    pairs = [pair for group in load_pairs(config).tests for pair in group]
    data = Dataset(pairs, include_trees=config.needs_trees)
    probabilities = np.stack(
        list(answers(model, data, symmetries or ("names", "formulas", "duals"), int(number)))
    )
    relations = probabilities.argmax(-1)
    measures = {
        "one answer": relations[0] == data.labels,
        f"mean of {number}": probabilities.mean(0).argmax(-1) == data.labels,
        "all agree": (relations == relations[0]).all(0),
    }
    for title, groups in LOGIC.accuracy_groups(config, data).items():
        rows = [
            [name, *(f"{measure[mask].mean():.4f}" for measure in measures.values()), f"{mask.sum():,}"]
            for name, mask in groups.items()
            if mask.any()
        ]
        print(f"\n{text_table([title, *measures, 'count'], rows)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
