"""Logic data: pairs of formulas, the official files, the systematic splits, padded batches.

n is the number of pairs, B the batch size, T the length of the longest formula in a batch. A batch has 2B
sequences: the left formulas, then the right ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ordered_memory.trees import Tree, keep_leaves
from tasks.classifiers.classification import LabeledData, Sentence, TokenBatch
from tasks.classifiers.files import read_lines
from tasks.classifiers.tree_batching import TreeNodes, batch_trees, tree_nodes
from tasks.logic.formulas import (
    AND,
    IDS,
    OR,
    PADDING,
    PARENTHESES,
    RELATIONS,
    VARIABLES,
    FormulaError,
    decode,
    parse,
    relation,
    tokenize,
)
from tasks.runs.batching import TokenSequences
from tasks.runs.errors import UserError
from tasks.runs.files import write_atomically
from tasks.runs.text_files import find_files

MAX_OPERATIONS = 12
"""The last file holds the pairs with this many operations or more."""
TRAIN_OPERATIONS = 6
"""Maximum number of operations in training and validation data."""
VALIDATION_EVERY = 10
"""One in this many pairs is held out for validation."""

SIDES = ("left formula", "right formula")

Result = TypeVar("Result")

SplitName = Literal["full", "A", "B", "C"]

PATTERNS: dict[str, re.Pattern[str] | None] = {
    "full": None,
    "A": re.compile(r"\( and \( not a \) \)"),
    "B": re.compile(r"\( and \( not "),
    "C": re.compile(r"\( (?:and|or) \( not "),
}
"""Pattern of each systematic split: pairs with a match in either formula are left out of the training
data."""

OFFICIAL_SIZES = {"full": 135_529, "A": 128_969, "B": 87_948, "C": 51_896}
"""Number of training and validation pairs in each split of the official data."""

_SAME_WORDS = bytes.maketrans(
    bytes(IDS[word] for word in (*VARIABLES, OR)),
    bytes(IDS[word] for word in (*["a"] * len(VARIABLES), AND)),
)
"""The translation of all variables to `a`, and of `or` to `and`: formulas with equal trees become equal."""


class FormulaPair(NamedTuple):
    """Two formulas and their relation.

    Args:
        left, right: token ids, one byte each.
        label: index in RELATIONS.
        operations: number of operations of the formula that has more.
    """

    left: bytes
    right: bytes
    label: int
    operations: int


class Dataset(LabeledData):
    """A data set of pairs.

    Args:
        pairs: the pairs.
        include_trees: whether batches contain the true trees.
    Example:
        >>> dataset = Dataset.from_texts([("a", "( a ( or b ) )")])
        >>> dataset.batch([0]).tokens.shape, RELATIONS[int(dataset.labels[0])]
        (torch.Size([2, 7]), '<')
    """

    def __init__(self, pairs: Sequence[FormulaPair], *, include_trees: bool = False) -> None:
        formulas = [formula for pair in pairs for formula in (pair.left, pair.right)]
        self.pairs, self.include_trees = list(pairs), include_trees
        self._trees: dict[bytes, Tree] = {}
        self._sequences = TokenSequences(formulas)
        self.labels = np.array([pair.label for pair in pairs], dtype=np.int64)
        self.operations = np.array([pair.operations for pair in pairs], dtype=np.int64)
        self.nodes = self._nodes(formulas) if include_trees else None

    @classmethod
    def from_texts(cls, texts: Iterable[tuple[str, str]], *, include_trees: bool = False) -> Dataset:
        """Make a data set of written formulas; labels are computed from their truth tables.

        Args:
            texts: left and right formula of each pair.
            include_trees: whether batches contain the true trees.
        Raises:
            FormulaError: a text is not a formula.
        """
        return cls([make_pair(left, right) for left, right in texts], include_trees=include_trees)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def sentence_lengths(self) -> NDArray[np.int64]:
        """Number of tokens of the two formulas of each pair, (n, 2) int64."""
        return self._sequences.lengths.reshape(-1, 2)

    def sentences(self, index: int) -> tuple[Sentence, ...]:
        """Return the two formulas of a pair, with trees over words without parentheses.

        See `LabeledData.sentences`.
        """
        pair = self.pairs[index]
        return tuple(
            Sentence(decode(formula), _word_positions(formula), self._tree(formula), name)
            for name, formula in zip(SIDES, pair[:2], strict=True)
        )

    def word_trees(self, trees: list[Tree], batch: TokenBatch) -> list[Tree]:
        """Remove the parentheses from trees; see `LabeledData.word_trees`."""
        is_word = ~torch.isin(batch.tokens, torch.tensor([PADDING, *PARENTHESES]))
        return [
            keep_leaves(tree, torch.nonzero(row).flatten().tolist())
            for tree, row in zip(trees, is_word, strict=True)
        ]

    def batch(self, indices: ArrayLike) -> TokenBatch:
        """Collate pairs to a padded batch; see `LabeledData.batch`."""
        chosen = np.asarray(indices, dtype=np.int64)
        rows = np.concatenate([2 * chosen, 2 * chosen + 1])
        tokens, lengths = self._sequences.pad(rows)
        trees = None
        if self.nodes is not None:
            trees = batch_trees([self.nodes[row] for row in rows], tokens.shape[1])
        return TokenBatch(tokens, lengths, torch.from_numpy(self.labels[chosen]), trees)

    def _tree(self, formula: bytes) -> Tree:
        """The true tree of a formula; those that differ only in names and operators are parsed once."""
        formula = formula.translate(_SAME_WORDS)
        if formula not in self._trees:
            self._trees[formula] = parse(decode(formula)).tree
        return self._trees[formula]

    def _nodes(self, formulas: Sequence[bytes]) -> list[TreeNodes]:
        """The tree of each formula as arrays; equal trees share them."""
        shapes = [formula.translate(_SAME_WORDS) for formula in formulas]
        nodes = {one: tree_nodes(self._tree(one), _word_positions(one)) for one in dict.fromkeys(shapes)}
        return [nodes[shape] for shape in shapes]


class PairSplits(NamedTuple):
    """The pairs of a run.

    Args:
        train, validation: pairs with at most 6 operations that the pattern of the split does not match.
        tests: all test pairs, by number of operations, 0 to 12.
        left_out: the test pairs that the pattern matches, by number of operations; None for the full split.
    """

    train: list[FormulaPair]
    validation: list[FormulaPair]
    tests: list[list[FormulaPair]]
    left_out: list[list[FormulaPair]] | None


def make_pair(left: str, right: str) -> FormulaPair:
    """Parse two written formulas and compute their relation.

    Args:
        left: the left formula.
        right: the right formula.
    Raises:
        FormulaError: a text is not a formula.
    """
    first, second = for_both(lambda text: parse(tokenize(text)), left, right)
    label = RELATIONS.index(relation(first.table, second.table))
    return FormulaPair(first.tokens, second.tokens, label, max(first.operations, second.operations))


def for_both(function: Callable[[str], Result], left: str, right: str) -> tuple[Result, Result]:
    """Apply a function to both formulas of a pair.

    Args:
        function: reads one formula.
        left, right: the formulas.
    Raises:
        FormulaError: the function raised it; the message says for which of the two.
    """
    results = []
    for side, formula in zip(SIDES, (left, right), strict=True):
        try:
            results.append(function(formula))
        except FormulaError as error:
            raise FormulaError(f"{side}: {error}") from None
    return results[0], results[1]


def split(
    train: Sequence[Sequence[FormulaPair]], tests: Sequence[Sequence[FormulaPair]], name: str
) -> PairSplits:
    """Apply a systematic split.

    Args:
        train, tests: pairs by number of operations.
        name: name of the split.
    Returns:
        Training, validation and test pairs.
    """
    pattern = PATTERNS[name]
    kept = [pair for group in train[: TRAIN_OPERATIONS + 1] for pair in group if not matches(pair, pattern)]
    held_out = kept[VALIDATION_EVERY - 1 :: VALIDATION_EVERY]
    for_training = [pair for position, pair in enumerate(kept, start=1) if position % VALIDATION_EVERY]
    left_out = None if pattern is None else [[p for p in group if matches(p, pattern)] for group in tests]
    return PairSplits(for_training, held_out, [list(group) for group in tests], left_out)


def matches(pair: FormulaPair, pattern: re.Pattern[str] | None) -> bool:
    """Whether the pattern of a split occurs in either formula of a pair.

    Args:
        pair: two formulas.
        pattern: applied to the tokens, separated by spaces; None matches nothing.
    """
    return has_pattern(pair.left, pattern) or has_pattern(pair.right, pattern)


def has_pattern(formula: bytes, pattern: re.Pattern[str] | None) -> bool:
    """Whether the pattern of a split occurs in a formula, or in a part of one.

    Args:
        formula: token ids, one byte each.
        pattern: the same as for `matches`.
    """
    return pattern is not None and pattern.search(" ".join(decode(formula))) is not None


def file_names() -> list[str]:
    """The names of the official files that are used: train0 … train6, test0 … test12."""
    numbers = {"train": range(TRAIN_OPERATIONS + 1), "test": range(MAX_OPERATIONS + 1)}
    return [f"{part}{number}" for part in numbers for number in numbers[part]]


def read_directory(directory: Path) -> tuple[list[list[FormulaPair]], list[list[FormulaPair]]]:
    """Read the official files.

    Args:
        directory: contains train0 … train6 and test0 … test12; they may be compressed.
    Returns:
        Training and test pairs by number of operations.
    Raises:
        UserError: a file is missing or bad; the message names file and line.
    """
    # Few generated pairs have no operations, so train0 or test0 may be empty.
    groups = [read_file(path, allow_empty=True) for path in find_files(directory, file_names())]
    return groups[: TRAIN_OPERATIONS + 1], groups[TRAIN_OPERATIONS + 1 :]


def read_file(path: Path, *, allow_empty: bool = False) -> list[FormulaPair]:
    """Read and check a file with lines of the form `relation TAB formula TAB formula`.

    Args:
        path: path of the file, which may be compressed.
        allow_empty: whether the file may have no lines.
    Returns:
        Its pairs in order.
    Raises:
        UserError: the file is missing, empty or not UTF-8 text; or a line does not have three columns, has a
            malformed formula, or its relation is not that of its formulas.
    """
    return read_lines(path, _parse_line, allow_empty=allow_empty)


def write_directory(
    directory: Path, train: Sequence[Sequence[FormulaPair]], tests: Sequence[Sequence[FormulaPair]]
) -> None:
    """Write pairs to files in the official format, each of them atomically.

    Args:
        directory: created if it does not exist.
        train, tests: pairs by number of operations.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for part, groups in (("train", train), ("test", tests)):
        for number, group in enumerate(groups):
            write_atomically(directory / f"{part}{number}", "".join(f"{_line(pair)}\n" for pair in group))


def _word_positions(formula: bytes) -> list[int]:
    """The positions of the tokens that are not parentheses."""
    return [position for position, token in enumerate(formula) if token not in PARENTHESES]


def _line(pair: FormulaPair) -> str:
    return "\t".join([RELATIONS[pair.label], " ".join(decode(pair.left)), " ".join(decode(pair.right))])


def _parse_line(line: str) -> FormulaPair:
    columns = line.split("\t")
    if len(columns) != 3:
        raise UserError(f"expected 3 columns, relation TAB formula TAB formula, not {len(columns)}")
    sign, *texts = columns
    if sign not in RELATIONS:
        raise UserError(f"the relation must be one of {' '.join(RELATIONS)}, not {sign!r}")
    pair = make_pair(*texts)
    actual = RELATIONS[pair.label]
    if actual != sign:
        raise UserError(f"the relation is {sign}, but these formulas have the relation {actual}")
    return pair
