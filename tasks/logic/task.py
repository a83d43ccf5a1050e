"""Propositional logic as a classification task: its data, its model, what its report groups by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np

from tasks.classifiers.classification import LabelledData
from tasks.classifiers.classification import Splits as DataSplits
from tasks.classifiers.encoders import GIVEN_TREES
from tasks.classifiers.evaluation import Masks
from tasks.classifiers.task import ClassifierTask
from tasks.logic.config import LogicConfig
from tasks.logic.data import (
    MAX_OPERATIONS,
    PATTERNS,
    TRAIN_OPERATIONS,
    Dataset,
    Splits,
    matches,
    read_directory,
    read_file,
    split,
)
from tasks.logic.download import fetch
from tasks.logic.generator import generate, longer
from tasks.logic.model import PRETRAINED, LogicModel
from tasks.logic.valid_trees import valid_spans

LONGER = range(MAX_OPERATIONS + 1, 21)
"""Operations of the pairs of the longer test."""


def load_pairs(config: LogicConfig) -> Splits:
    """The pairs of a run: read from a directory, drawn, or fetched and read.

    Args:
        config: of the run; a directory comes before drawn pairs.
    Returns:
        The parts of its split.
    Raises:
        UserError: a file is missing or bad.
    """
    if config.data_dir is None and config.generated:
        groups = generate(config.generated, seed=config.seed)
    else:
        groups = read_directory(config.data_dir or fetch())
    return split(*groups, config.split)


def _load_splits(config: LogicConfig) -> DataSplits:
    """The same as data sets; with trees, for a model that is given them."""
    parts = load_pairs(config)
    tests = [pair for group in parts.tests for pair in group]
    trees = config.model in GIVEN_TREES
    return DataSplits(*(Dataset(part, trees=trees) for part in (parts.train, parts.validation, tests)))


def _groups(config: LogicConfig, data: LabelledData) -> Mapping[str, Masks]:
    """Pairs by number of operations, and those that a systematic split left out of training.

    As in the official files and the papers, 12 operations stand for 12 and more; pairs that all have more are
    told apart.
    """
    dataset = cast(Dataset, data)
    operations = dataset.operations
    if (operations <= MAX_OPERATIONS).any():
        operations = np.minimum(operations, MAX_OPERATIONS)
    found = {"operations": {str(count): operations == count for count in np.unique(operations)}}
    pattern = PATTERNS[config.split]
    if pattern is not None:
        left_out = np.array([matches(pair, pattern) for pair in dataset.pairs])
        short = operations <= TRAIN_OPERATIONS
        found[LEFT_OUT.format(config.split)] = {
            "0–6": left_out & short,
            "7–12": left_out & ~short,
            "0–12": left_out,
        }
    return found


LEFT_OUT = "operations, pairs left out by {}"


def _draw(config: LogicConfig, test: str, size: int, seed: int) -> Dataset:
    """Pairs of 13 to 20 operations, `size` of each number."""
    pairs = [pair for operations in LONGER for pair in longer(operations, size, seed=seed)]
    return Dataset(pairs, trees=config.model in GIVEN_TREES)


LOGIC = ClassifierTask(
    title=lambda config: f"Logic: {config.model}, split {config.split}",
    about=(
        "The model reads two formulas of propositional logic and says which of seven relations holds between "
        "them: < where the left one entails the right one, = where they are equivalent, # where they are "
        "independent."
    ),
    unit="pairs",
    classes=lambda config: LogicModel.classes,
    config=LogicConfig,
    build=LogicModel,
    load=_load_splits,
    groups=_groups,
    read_file=lambda config, path: Dataset(read_file(path), trees=config.model in GIVEN_TREES),
    draw=_draw,
    pretrained=PRETRAINED,
    punctuation="parentheses are read but dropped from both trees; formulas of one word are left out",
    shortest_tree=2,
    valid_spans=lambda sentence: valid_spans(sentence.tree, sentence.words),
    confusion=True,
)
