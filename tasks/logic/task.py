"""Propositional logic as a classification task: data, model and the groups of its report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np

from tasks.classifiers.classification import LabeledData, Splits
from tasks.classifiers.evaluation import Groups
from tasks.classifiers.task import ClassifierTask
from tasks.logic.augmentation import augmented
from tasks.logic.config import LogicConfig, presets_of
from tasks.logic.data import (
    MAX_OPERATIONS,
    PATTERNS,
    TRAIN_OPERATIONS,
    Dataset,
    PairSplits,
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
"""Numbers of operations in the `longer` test."""
LEFT_OUT = "operations, pairs left out by {}"
"""Title of the accuracies on the pairs that a split leaves out, given the split."""


def load_pairs(config: LogicConfig) -> PairSplits:
    """Read, generate or download the pairs of a run, and apply its split.

    Args:
        config: configuration of the run; `data_dir` takes precedence over `generated`.
    Returns:
        Training, validation and test pairs.
    Raises:
        UserError: a file is missing or bad.
    """
    if config.draws_data:
        groups = generate(config.generated, seed=config.seed_of_data)
    else:
        groups = read_directory(config.data_dir or fetch())
    return split(*groups, config.split)


def _load_splits(config: LogicConfig) -> Splits[Dataset]:
    """Load the data sets of a run, with trees if the model needs them."""
    splits = load_pairs(config)
    tests = [pair for group in splits.tests for pair in group]
    chosen = (splits.train, splits.validation, tests)
    return Splits(*(Dataset(pairs, include_trees=config.needs_trees) for pairs in chosen))


def _augment(config: LogicConfig, data: LabeledData, rng: np.random.Generator) -> LabeledData:
    """The training pairs of an epoch."""
    if "none" in config.augment:
        return data
    return augmented(cast(Dataset, data), rng, config.augment, pattern=PATTERNS[config.split])


def _groups(config: LogicConfig, data: LabeledData) -> Mapping[str, Groups]:
    """Group by number of operations and, for a systematic split, the pairs that it leaves out of training.

    As in the official files and the papers, the group "12" has 12 and more operations, unless all pairs have
    more than 12.
    """
    dataset = cast(Dataset, data)
    operations = dataset.operations
    as_official = bool((operations <= MAX_OPERATIONS).any())
    if as_official:
        operations = np.minimum(operations, MAX_OPERATIONS)
    groups = {"operations": {str(count): operations == count for count in np.unique(operations)}}
    pattern = PATTERNS[config.split]
    if pattern is not None:
        left_out = np.array([matches(pair, pattern) for pair in dataset.pairs])
        short = operations <= TRAIN_OPERATIONS
        groups[LEFT_OUT.format(config.split)] = (
            {"0–6": left_out & short, "7–12": left_out & ~short, "0–12": left_out}
            if as_official
            else {f"{operations.min()}–{operations.max()}": left_out}
        )
    return groups


def _generate_test(config: LogicConfig, test: str, size: int, seed: int) -> Dataset:
    """Generate `size` pairs for each number of operations from 13 to 20."""
    pairs = [pair for operations in LONGER for pair in longer(operations, size, seed=seed)]
    return Dataset(pairs, include_trees=config.needs_trees)


LOGIC = ClassifierTask(
    title=lambda config: f"Logic: {config.model}, split {config.split}",
    about=(
        "The model reads two formulas of propositional logic and predicts which of seven relations holds "
        "between them: < if the left one entails the right one, = if they are equivalent, # if they are "
        "independent."
    ),
    unit="pairs",
    model_class=LogicModel,
    presets=presets_of,
    load_splits=_load_splits,
    augment=_augment,
    accuracy_groups=_groups,
    read_file=lambda config, path: Dataset(read_file(path), include_trees=config.needs_trees),
    generate_test=_generate_test,
    pretrained=PRETRAINED,
    punctuation="parentheses are removed from both trees; formulas of one word are left out",
    min_words=2,
    valid_spans=valid_spans,
    report_confusion=True,
)
