"""Is one classifier better than another, or only luckier? McNemar's exact test.

python -m tasks.listops evaluate --checkpoint A --predictions a.jsonl
python -m tasks.listops evaluate --checkpoint B --predictions b.jsonl
python examples/significance.py a.jsonl b.jsonl

The files hold predictions for the same examples, of ListOps, logic, sentiment or a task of your own.
"""

import json
import sys
from pathlib import Path


def mcnemar(only_first: int, only_second: int) -> float:
    """The two-sided p-value of McNemar's exact test.

    If both models are equally good, each example that only one of them gets right is as likely to be one of
    the first model as one of the second: their number has a binomial distribution.

    Args:
        only_first: number of examples that only the first model gets right.
        only_second: number of examples that only the second one does.
    """
    total = only_first + only_second
    outcomes = at_most = 1  # with k examples of one model, and with at most k
    for k in range(min(only_first, only_second)):
        outcomes = outcomes * (total - k) // (k + 1)
        at_most += outcomes
    return min(1.0, 2 * at_most / (1 << total))


def read(path: Path) -> list[tuple[list[str], str, bool]]:
    """The texts and the label of each example, and whether its prediction is right."""
    try:
        with path.open(encoding="utf-8") as file:  # splitlines() would also split within a text
            rows = [json.loads(line) for line in file]
        return [(row["texts"], row["label"], row["prediction"] == row["label"]) for row in rows]
    except (KeyError, TypeError, ValueError):
        sys.exit(f"{path}: not what `evaluate --predictions` of a classifier writes, with labels")


def main(first: Path, second: Path) -> None:
    """Print the accuracies, on how many examples only one model is right, and the p-value."""
    rows, others = read(first), read(second)
    if [row[:2] for row in rows] != [row[:2] for row in others]:
        sys.exit(f"{first} and {second} are predictions for different examples")
    if not rows:
        sys.exit(f"{first} is empty")
    right = [(a[2], b[2]) for a, b in zip(rows, others, strict=True)]
    only_first, only_second = right.count((True, False)), right.count((False, True))
    for path, values in zip((first, second), zip(*right, strict=True), strict=True):
        print(f"{path}: accuracy {sum(values) / len(values):.4f} on {len(values):,} examples")
    print(f"only the first is right: {only_first:,}; only the second: {only_second:,}")
    print(f"McNemar's exact test, two-sided: p = {mcnemar(only_first, only_second):.3g}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*map(Path, sys.argv[1:]))
