"""Pairs of formulas: the official files, the systematic splits, padded batches.

n is the number of pairs, B those of a batch, T the longest formula in it. A batch has 2B sequences: the
left formulas, then the right ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ordered_memory.trees import Tree, keep_leaves
from tasks.classifiers.classification import Sentence
from tasks.classifiers.files import DataError, read_lines
from tasks.classifiers.tree_batching import TreeBatch, TreeNodes, batch_trees, tree_nodes
from tasks.logic.formulas import (
    PADDING,
    PARENTHESES,
    RELATIONS,
    Formula,
    decode,
    encode,
    parse,
    relation,
    tokenize,
)
from tasks.runs.files import atomic_path

MAX_OPERATIONS = 12
"""The last file holds the pairs of this many operations or more."""
TRAIN_OPERATIONS = 6
"""Training and validation keep pairs of at most so many."""
HOLD_OUT = 10
"""Every tenth pair is held out for validation."""

SIDES = ("left formula", "right formula")

SplitName = Literal["full", "A", "B", "C"]

PATTERNS: dict[str, re.Pattern[str] | None] = {
    "full": None,
    "A": re.compile(r"\( and \( not a \) \)"),
    "B": re.compile(r"\( and \( not "),
    "C": re.compile(r"\( (?:and|or) \( not "),
}
"""A systematic split trains without the pairs that have this in either formula, and tests on them."""

OFFICIAL_SIZES = {"full": 135_529, "A": 128_969, "B": 87_948, "C": 51_896}
"""Pairs of at most 6 operations that the official training files leave in each split."""


class Pair(NamedTuple):
    """Two formulas and how they are related.

    Args:
        left, right: token ids, one byte each.
        label: index in RELATIONS.
        operations: those of the formula that has more.
    """

    left: bytes
    right: bytes
    label: int
    operations: int


class Batch(NamedTuple):
    """Some pairs as tensors.

    Args:
        tokens: (2B, T) int64, padded with 0 on the right; row i + B is what row i is compared with.
        lengths: (2B,) int64, in tokens.
        labels: (B,) int64.
        trees: the true trees of the 2B formulas; None unless asked for.
    """

    tokens: Tensor
    lengths: Tensor
    labels: Tensor
    trees: TreeBatch | None = None


class Dataset:
    """Pairs end to end in one array.

    Args:
        pairs: in order.
        trees: let batches carry the true trees.
    Example:
        >>> dataset = Dataset.from_texts([("a", "( a ( or b ) )")])
        >>> dataset.batch([0]).tokens.shape, RELATIONS[int(dataset.labels[0])]
        (torch.Size([2, 7]), '<')
    """

    part = "test"
    labelled = True

    def __init__(self, pairs: Sequence[Pair], *, trees: bool = False) -> None:
        clauses = [clause for pair in pairs for clause in (pair.left, pair.right)]
        self.pairs = list(pairs)
        self.tokens = np.frombuffer(b"".join(clauses), dtype=np.uint8)
        self.clause_lengths = np.array([len(clause) for clause in clauses], dtype=np.int64)
        self.starts = np.cumsum(self.clause_lengths) - self.clause_lengths
        self.labels = np.array([pair.label for pair in pairs], dtype=np.int64)
        self.operations = np.array([pair.operations for pair in pairs], dtype=np.int64)
        self.nodes = self._nodes(clauses) if trees else None

    @classmethod
    def from_texts(cls, texts: Iterable[tuple[str, str]], *, trees: bool = False) -> Dataset:
        """Parse pairs of written formulas and label them by comparison.

        Args:
            texts: left and right formula of each pair.
            trees: whether batches have the true trees.
        Raises:
            FormulaError: not a formula.
        """
        return cls([make_pair(left, right) for left, right in texts], trees=trees)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def sentence_lengths(self) -> NDArray[np.int64]:
        """(n, 2): tokens of the two formulas of each pair."""
        return self.clause_lengths.reshape(-1, 2)

    @cached_property
    def trees(self) -> dict[bytes, Tree]:
        """The tree of every formula, read once."""
        clauses = {clause for pair in self.pairs for clause in (pair.left, pair.right)}
        return {clause: parse(decode(clause)).tree for clause in clauses}

    def sentences(self, index: int) -> tuple[Sentence, ...]:
        """The two formulas of a pair, with trees over words, parentheses dropped; see
        `LabelledData.sentences`."""
        pair = self.pairs[index]
        return tuple(
            Sentence(decode(clause), _word_positions(clause), self.trees[clause], name)
            for name, clause in zip(SIDES, pair[:2], strict=True)
        )

    def word_trees(self, trees: list[Tree], batch: Batch) -> list[Tree]:
        """The trees without the parentheses; see `LabelledData.word_trees`."""
        is_word = ~torch.isin(batch.tokens, torch.tensor([PADDING, *PARENTHESES]))
        return [
            keep_leaves(tree, torch.nonzero(row).flatten().tolist())
            for tree, row in zip(trees, is_word, strict=True)
        ]

    def batch(self, indices: ArrayLike) -> Batch:
        """Pad some pairs.

        Args:
            indices: (B,), in the order wanted.
        Returns:
            The batch.
        """
        chosen = np.asarray(indices, dtype=np.int64)
        clauses = np.concatenate([2 * chosen, 2 * chosen + 1])
        lengths = self.clause_lengths[clauses]
        padded = np.full((len(clauses), lengths.max(initial=0)), PADDING, dtype=np.int64)
        shift = self.starts[clauses] - (np.cumsum(lengths) - lengths)
        padded[np.arange(padded.shape[1]) < lengths[:, None]] = self.tokens[
            np.arange(lengths.sum()) + np.repeat(shift, lengths)
        ]
        return Batch(
            torch.from_numpy(padded),
            torch.from_numpy(lengths),
            torch.from_numpy(self.labels[chosen]),
            None if self.nodes is None else batch_trees([self.nodes[i] for i in clauses], padded.shape[1]),
        )

    def _nodes(self, clauses: Sequence[bytes]) -> list[TreeNodes]:
        """The tree of each formula as arrays, made once for each different one."""
        known = {clause: tree_nodes(tree, _word_positions(clause)) for clause, tree in self.trees.items()}
        return [known[clause] for clause in clauses]


class Splits(NamedTuple):
    """The parts of a run.

    Args:
        train, validation: at most 6 operations, nothing that the split leaves out.
        tests: by number of operations, 0 to 12; everything.
        excluded: the pairs of the tests that the split's pattern matches, by number of operations; None
            for the full split.
    """

    train: list[Pair]
    validation: list[Pair]
    tests: list[list[Pair]]
    excluded: list[list[Pair]] | None


def make_pair(left: str, right: str) -> Pair:
    """Parse two written formulas and label them with their relation.

    Args:
        left: formula.
        right: formula.
    Raises:
        FormulaError: not a formula.
    """
    words = tokenize(left), tokenize(right)
    formulas = [parse(tokens) for tokens in words]
    label = RELATIONS.index(relation(formulas[0].table, formulas[1].table))
    return _pair(words, formulas, label)


def split(train: Sequence[Sequence[Pair]], tests: Sequence[Sequence[Pair]], name: str) -> Splits:
    """The full task or one of its systematic splits.

    Args:
        train, tests: pairs by number of operations.
        name: of the split.
    Returns:
        Its parts.
    """
    pattern = PATTERNS[name]
    kept = [pair for group in train[: TRAIN_OPERATIONS + 1] for pair in group if not matches(pair, pattern)]
    held_out = kept[HOLD_OUT - 1 :: HOLD_OUT]
    learnt = [pair for place, pair in enumerate(kept, start=1) if place % HOLD_OUT]
    whole = [list(group) for group in tests]
    if pattern is None:
        return Splits(learnt, held_out, whole, None)
    return Splits(learnt, held_out, whole, [[p for p in group if matches(p, pattern)] for group in whole])


def matches(pair: Pair, pattern: re.Pattern[str] | None) -> bool:
    """Whether a split holds a pair out of training: its pattern occurs in either formula.

    Args:
        pair: of formulas.
        pattern: of the split, applied to words joined by blanks; None holds nothing out.
    """
    return pattern is not None and any(
        pattern.search(" ".join(decode(clause))) for clause in (pair.left, pair.right)
    )


def file_names() -> list[str]:
    """Of the official data: train0 … train12, test0 … test12."""
    return [f"{part}{number}" for part in ("train", "test") for number in range(MAX_OPERATIONS + 1)]


def read_directory(directory: Path) -> tuple[list[list[Pair]], list[list[Pair]]]:
    """The official files.

    Args:
        directory: holds train0 … train12 and test0 … test12.
    Returns:
        Training and test pairs by number of operations.
    Raises:
        DataError: a file is missing or bad; names file and line.
    """
    if not directory.is_dir():
        raise DataError(f"{directory}: no such directory; it should hold train0 … train12 and test0 … test12")
    missing = [name for name in file_names() if not (directory / name).is_file()]
    if missing:
        raise DataError(f"{directory}: no {', '.join(missing)} in this directory")
    # Few pairs that are drawn have no operation, so a written file may be empty.
    groups = [read_file(directory / name, empty=True) for name in file_names()]
    return groups[: MAX_OPERATIONS + 1], groups[MAX_OPERATIONS + 1 :]


def read_file(path: Path, *, empty: bool = False) -> list[Pair]:
    """Read lines `relation TAB formula TAB formula`, checking every one.

    Args:
        path: of the file.
        empty: whether there may be no line.
    Returns:
        Its pairs in order.
    Raises:
        DataError: no such file, not text, or a line without three columns, with an unknown relation, a
            malformed formula, or a relation that is not that of its formulas.
    """
    return read_lines(path, _parse_line, empty=empty)


def write_directory(
    directory: Path, train: Sequence[Sequence[Pair]], tests: Sequence[Sequence[Pair]]
) -> None:
    """Write pairs as files in the official format, each whole or not at all.

    Args:
        directory: made if need be.
        train, tests: pairs by number of operations.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for part, groups in (("train", train), ("test", tests)):
        for number, group in enumerate(groups):
            with atomic_path(directory / f"{part}{number}") as temporary:
                text = "".join(f"{_line(pair)}\n" for pair in group)
                temporary.write_text(text, encoding="utf-8", newline="\n")


def _word_positions(clause: bytes) -> list[int]:
    """Of the tokens that are no parentheses."""
    return [position for position, token in enumerate(clause) if token not in PARENTHESES]


def _line(pair: Pair) -> str:
    return "\t".join([RELATIONS[pair.label], " ".join(decode(pair.left)), " ".join(decode(pair.right))])


def _parse_line(line: str) -> Pair:
    columns = line.split("\t")
    if len(columns) != 3:
        raise DataError(f"expected 3 columns, relation TAB formula TAB formula, not {len(columns)}")
    sign, *texts = columns
    if sign not in RELATIONS:
        raise DataError(f"the relation must be one of {' '.join(RELATIONS)}, not {sign!r}")
    words = tokenize(texts[0]), tokenize(texts[1])
    formulas = [parse(tokens) for tokens in words]
    found = relation(formulas[0].table, formulas[1].table)
    if found != sign:
        raise DataError(f"the relation is {sign} but that of these formulas is {found}")
    return _pair(words, formulas, RELATIONS.index(sign))


def _pair(words: tuple[list[str], list[str]], formulas: Sequence[Formula], label: int) -> Pair:
    left, right = (encode(tokens).astype(np.uint8).tobytes() for tokens in words)
    return Pair(left, right, label, max(formula.operators for formula in formulas))
