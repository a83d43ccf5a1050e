"""Which digit a ListOps model gives as the median of more than 5 digits, the maximum in its training.

python examples/medians.py                          # the shipped model, 100 expressions a row
python examples/medians.py 2000 CHECKPOINT [...]    # 2,000 a row, models of your own
"""

import sys

import numpy as np
from numpy.typing import NDArray

from tasks.classifiers.evaluation import evaluate
from tasks.listops.data import Dataset
from tasks.listops.model import ListOpsModel
from tasks.listops.task import LISTOPS

SHIFTS = np.arange(-1, 3.5, 0.5)


def digit_at(ordered: NDArray[np.int64], rank: float) -> NDArray[np.int64]:
    """The digit of a rank, counted from 0; between two ranks, the mean of their digits, rounded down.

    Args:
        ordered: digits in order, one row for each expression, (n, arguments).
        rank: rank in 0..arguments - 1; smaller and larger ones count as the first and the last.
    """
    rank = min(max(rank, 0), ordered.shape[1] - 1)
    return (ordered[:, int(np.floor(rank))] + ordered[:, int(np.ceil(rank))]) // 2


def show(model: ListOpsModel, size: int) -> None:
    """Print a row for each number of arguments."""
    print("arguments  right  too high  too low  best described by")
    generator = np.random.default_rng(1)
    for arguments in range(4, 16):
        digits = generator.integers(0, 10, (size, arguments))
        data = Dataset.from_texts(f"[MED {' '.join(map(str, row))} ]" for row in digits)
        predictions = evaluate(model, data).predicted
        wrong = np.sign(np.asarray(predictions) - data.labels)
        ordered, middle = np.sort(digits, axis=1), (arguments - 1) / 2
        agreement = {shift: (digit_at(ordered, middle + shift) == predictions).mean() for shift in SHIFTS}
        best = max(SHIFTS, key=lambda shift: (agreement[shift], -abs(shift)))
        rank = f"{best:+.1f} ranks" if best else "the median"
        print(
            f"{arguments:9}{(wrong == 0).mean():7.3f}{(wrong > 0).mean():10.3f}{(wrong < 0).mean():9.3f}"
            f"  {rank} ({agreement[best]:.3f})"
        )


def main(size: str = "100", *checkpoints: str) -> None:
    """Show what each model answers."""
    for checkpoint in checkpoints or (LISTOPS.pretrained,):
        print(checkpoint)
        show(ListOpsModel.from_pretrained(checkpoint), int(size))


if __name__ == "__main__":
    main(*sys.argv[1:])
