"""Published results on logic, in %, by `--model`.

These are accuracies at 7 to 12 operations after training on at most 6, accuracies on the pairs that the
splits A, B and C leave out, and F1 of the induced trees. They come from Tables 1 and 2 of the Ordered Memory
paper, except those of the recurrent-recursive network (rrnet), which come from its own paper.

The paper does not say which of the left-out pairs its columns A, B and C count. The numbers of the
transformers equal the accuracy of always answering "independence" on pairs of 7 to 12 operations; no other
group has all three numbers.
"""

from __future__ import annotations

from tasks.formatting.summary import Published

PUBLISHED_OPERATIONS = ("7", "8", "9", "10", "11", "12")
SPLITS = ("A", "B", "C")
LEFT_OUT_OPERATIONS = "7–12"
"""The group of pairs, by operations, that the columns of the splits count."""
F1 = "F1"


def _row(longer: str, splits: str = "", f1: str = "") -> dict[str, Published]:
    columns = [*zip(PUBLISHED_OPERATIONS, longer.split(), strict=True)]
    columns += zip(SPLITS, splits.split(), strict=True) if splits else []
    columns += [(F1, f1)] if f1 else []
    return {name: Published(*map(float, text.split("±"))) for name, text in columns}


PUBLISHED = {
    "ordered-memory": _row("98±0 97±.4 96±.5 94±.8 93±.5 92±1.1", "94 91 81", "84.3±14.4"),
    "ordered-memory-tree-rnn-cell": _row("69 67 65 61 57 53"),
    "lstm": _row("88 84 80 78 71 69", "84 60 59"),
    "rrnet": _row("84 81 78 74 72 71"),
    "onlstm": _row("91 87 85 81 78 75", "70 63 60"),
    "transformer": _row("51 52 51 51 51 48", "53 51 51"),
    "universal-transformer": _row("51 52 51 51 51 48", "53 51 51"),
    "gold-tree-lstm": _row("94 92 92 88 87 86", "91 84 76"),
    "gold-tree-cell": _row("98 96 96 95 93 92", "95 95 90"),
    "gold-tree-rnn": _row("98 98 97 96 95 96", "94 92 86"),
}
