"""ListOps data: reading and writing the official files, data sets, padded batches, splits.

B is the batch size, T the length of the longest expression in a batch, n the size of a data set.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from tasks.classifiers.classification import LabeledData, Sentence, Splits, TokenBatch
from tasks.classifiers.files import read_lines
from tasks.classifiers.tree_batching import TreeNodes, batch_trees, tree_nodes
from tasks.listops import generator
from tasks.listops.expressions import DIGITS, IDS, Parsed, decode, parse, to_official, tokenize
from tasks.listops.generator import Expression
from tasks.runs.batching import TokenSequences
from tasks.runs.errors import UserError
from tasks.runs.files import atomic_path
from tasks.runs.text_files import find_file, find_files

TRAIN_FILE = "train_d20s.tsv"
TEST_FILE = "test_d20s.tsv"
LONG_RANGE_ARENA = ("basic_train.tsv", "basic_val.tsv", "basic_test.tsv")
LONG_RANGE_ARENA_HEADER = "Source\tTarget"


class Dataset(LabeledData):
    """A data set of expressions.

    Args:
        expressions: expressions from `tasks.listops.generator`.
        include_trees: whether batches contain the true trees.
    Example:
        >>> dataset = Dataset.from_texts(["[SM 7 8 ]", "3"])
        >>> len(dataset), dataset.lengths.tolist(), dataset.labels.tolist()
        (2, [4, 1], [5, 3])
        >>> dataset.batch([1, 0]).tokens.tolist()
        [[9, 0, 0, 0], [4, 13, 14, 5]]
    """

    def __init__(self, expressions: Sequence[Expression], *, include_trees: bool = False) -> None:
        self.expressions, self.include_trees = list(expressions), include_trees
        self.labels = np.array([expression.label for expression in expressions], dtype=np.int64)
        self._sequences = TokenSequences([expression.tokens for expression in expressions])
        self._nodes: dict[int, TreeNodes] = {}

    @classmethod
    def from_texts(cls, texts: Iterable[str], *, include_trees: bool = False) -> "Dataset":
        """Make a data set of written expressions; their values become the labels.

        Args:
            texts: one expression each.
            include_trees: whether batches contain the true trees.
        Raises:
            ExpressionError: a text is not an expression.
        """
        words = [tokenize(text) for text in texts]
        expressions = [Expression(_ids(tokens), parse(tokens).value) for tokens in words]
        return cls(expressions, include_trees=include_trees)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each expression, (n,) int64."""
        return self._sequences.lengths

    @property
    def sentence_lengths(self) -> NDArray[np.int64]:
        """The same as (n, 1) int64; see `LabeledData.sentence_lengths`."""
        return self.lengths[:, None]

    @cached_property
    def parsed(self) -> list[Parsed]:
        """Value, tree and depth of each expression."""
        return [parse(self.tokens_of(index)) for index in range(len(self))]

    @property
    def depths(self) -> NDArray[np.int64]:
        """Nesting depth of each expression: the operators around its most deeply nested digit, (n,) int64."""
        return np.array([parsed.depth for parsed in self.parsed], dtype=np.int64)

    def sentences(self, index: int) -> tuple[Sentence]:
        """Return an expression and its tree; see `LabeledData.sentences`."""
        tokens = self.tokens_of(index)
        return (Sentence(tokens, range(len(tokens)), self.parsed[index].tree),)

    def tokens_of(self, index: int) -> list[str]:
        """Return the tokens of one expression.

        Args:
            index: 0..n-1.
        Raises:
            IndexError: the index is out of range.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} is not in 0..{len(self) - 1}")
        return decode(self.expressions[index].tokens)

    def select(self, which: ArrayLike) -> "Dataset":
        """Make a data set of some of the expressions.

        Args:
            which: indices, or a mask of n booleans.
        Returns:
            A new data set, in the order of the indices.
        """
        chosen = np.asarray(which)
        if chosen.dtype == np.bool_:
            if chosen.shape != (len(self),):
                raise ValueError(f"a mask must have the shape ({len(self)},), not {chosen.shape}")
            chosen = np.flatnonzero(chosen)
        expressions = [self.expressions[int(index)] for index in chosen]
        return Dataset(expressions, include_trees=self.include_trees)

    def batch(self, indices: ArrayLike) -> TokenBatch:
        """Collate expressions to a padded batch; see `LabeledData.batch`."""
        chosen = np.asarray(indices, dtype=np.int64)
        tokens, lengths = self._sequences.pad(chosen)
        trees = None
        if self.include_trees:
            trees = batch_trees([self._nodes_of(index) for index in chosen.tolist()], tokens.shape[1])
        return TokenBatch(tokens, lengths, torch.from_numpy(self.labels[chosen]), trees)

    def _nodes_of(self, index: int) -> TreeNodes:
        """The tree of an expression as arrays, cached."""
        if index not in self._nodes:
            tokens = self.tokens_of(index)
            self._nodes[index] = tree_nodes(parse(tokens).tree, range(len(tokens)))
        return self._nodes[index]


def load(
    data_dir: Path | None = None,
    *,
    seed: int,
    count: int = 100_000,
    validation: int = 5_000,
) -> Splits[Dataset]:
    """Generate the standard task, or read the official files.

    Args:
        data_dir: a directory with `train_d20s.tsv` and `test_d20s.tsv`, or with the three files of Long Range
            Arena, each of them as it is or compressed; None to generate the data.
        seed: determines the generated data, or which lines of the training file are validation data.
        count: number of expressions to generate, one tenth of them for testing; ignored for files.
        validation: number of expressions to hold out for validation; ignored for Long Range Arena.
    Returns:
        Three data sets.
    Raises:
        UserError: a file is missing or bad, or `validation` leaves no training data.

    Example:
        >>> [len(part) for part in load(seed=0, count=200, validation=20)]
        [160, 20, 20]
    """
    if data_dir is None:
        return Splits(*map(Dataset, generator.standard(seed, count, validation=validation)))
    names = _file_names(data_dir)
    training_data, *other_data = (read_tsv(path) for path in find_files(data_dir, names))
    if names == LONG_RANGE_ARENA:
        return Splits(training_data, *other_data)
    if not 0 <= validation < len(training_data):
        raise UserError(
            f"--validation-size must be at least 0 and below {len(training_data)}, the number of lines of "
            f"{TRAIN_FILE}, got {validation}"
        )
    order = np.random.default_rng(seed).permutation(len(training_data))
    train, held_out = (
        training_data.select(np.sort(indices)) for indices in (order[validation:], order[:validation])
    )
    return Splits(train, held_out, *other_data)


def is_long_range_arena(data_dir: Path) -> bool:
    """Whether a directory holds one or more of the files of Long Range Arena.

    Args:
        data_dir: the directory.
    """
    return any(find_file(data_dir / name).exists() for name in LONG_RANGE_ARENA)


def read_test(data_dir: Path) -> Dataset:
    """Read the test data of a directory, which needs no other files.

    Args:
        data_dir: the same as for `load`.
    Raises:
        UserError: the file is missing or bad.
    """
    *_, name = _file_names(data_dir)
    (path,) = find_files(data_dir, [name])
    return read_tsv(path)


def _file_names(data_dir: Path) -> tuple[str, ...]:
    """The names of the files in a directory, the training data first and the test data last."""
    return LONG_RANGE_ARENA if is_long_range_arena(data_dir) else (TRAIN_FILE, TEST_FILE)


def read_tsv(path: Path) -> Dataset:
    """Read and check a file with lines of the form `label TAB expression`.

    In files of Long Range Arena the label comes second, and the first line names the columns.

    Args:
        path: the file, which may be compressed. Expressions may have the parentheses of the official files or
            not.
    Returns:
        The data set, in the order of the lines.
    Raises:
        UserError: the file is missing, empty or not UTF-8 text; or a line does not have two columns, its
            expression is malformed, or its label is not the expression's value. The message names the line.
    """
    return Dataset(read_lines(path, _parse_line, header=LONG_RANGE_ARENA_HEADER))


def write_tsv(path: Path, dataset: Dataset) -> None:
    """Write a data set atomically in the official format: lines `label TAB parenthesized expression`.

    Args:
        path: the file, in a directory that exists.
        dataset: the data set.
    Raises:
        UserError: the directory does not exist.
    """
    if not path.parent.is_dir():
        raise UserError(f"{path}: no such directory to write to")
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        for index, label in enumerate(dataset.labels):
            file.write(f"{label}\t{to_official(dataset.tokens_of(index))}\n")


def _parse_line(line: str) -> Expression:
    columns = line.split("\t")
    if len(columns) != 2:
        raise UserError(f"expected 2 columns, label TAB expression, not {len(columns)}")
    label, text = reversed(columns) if columns[0].startswith(("(", "[")) else columns
    if label not in DIGITS:
        raise UserError(f"the label must be one of 0..9, not {label!r}")
    tokens = tokenize(text)
    value = parse(tokens).value
    if int(label) != value:
        raise UserError(f"the label is {label} but the expression evaluates to {value}")
    return Expression(_ids(tokens), value)


def _ids(tokens: list[str]) -> bytes:
    return bytes([IDS[token] for token in tokens])
