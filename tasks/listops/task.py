"""ListOps as a classification task: data, model and the groups of its report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np

from tasks.classifiers.classification import LabeledData, Splits
from tasks.classifiers.evaluation import CROSS, Groups, by_length
from tasks.classifiers.task import ClassifierTask
from tasks.listops import data, download
from tasks.listops.augmentation import augmented
from tasks.listops.config import ListOpsConfig, presets_of
from tasks.listops.data import Dataset
from tasks.listops.expressions import IDS, OPERATORS
from tasks.listops.generator import hard_test
from tasks.listops.model import PRETRAINED, ListOpsModel
from tasks.runs.errors import UserError

LENGTHS = (20, 50, 100, 200, 500, 1000)
"""Upper bounds of the groups of lengths whose accuracy is reported."""
FLAT = "arguments × operator, flat expressions"


def _load_splits(config: ListOpsConfig) -> Splits[Dataset]:
    """Load the data of a run; training and validation expressions are bounded in length, test data are not.

    Raises:
        UserError: a file is missing or bad, or there are fewer training expressions than `train_size`.
    """
    splits = data.load(
        config.data_dir,
        seed=config.seed_of_data,
        count=config.expressions,
        validation=config.validation_size,
    )
    train, validation = (part.select(part.lengths <= config.max_train_length) for part in splits[:2])
    if config.train_size is not None:
        if config.train_size > len(train):
            raise UserError(
                f"--train-size must be at most {len(train)}, the size of the training data, got "
                f"{config.train_size}"
            )
        train = train.select(np.arange(config.train_size))
    return Splits(*(_for_model(config, dataset) for dataset in (train, validation, splits.test)))


def _load_test(config: ListOpsConfig) -> LabeledData:
    """Load the test data of a run."""
    if config.data_dir is None:
        return _load_splits(config).test
    return _for_model(config, data.read_test(config.data_dir))


def _for_model(config: ListOpsConfig, dataset: Dataset) -> Dataset:
    """Include the true trees if the model needs them."""
    return Dataset(dataset.expressions, include_trees=True) if config.needs_trees else dataset


def _augment(config: ListOpsConfig, data: LabeledData, rng: np.random.Generator) -> LabeledData:
    """The training expressions of an epoch."""
    return augmented(cast(Dataset, data), rng) if "arguments" in config.augment else data


def _groups(config: ListOpsConfig, data: LabeledData) -> Mapping[str, Groups]:
    """Group by length and depth, and expressions with one operator by operator and number of arguments."""
    dataset = cast(Dataset, data)
    lengths, depths = dataset.lengths, dataset.depths
    groups: dict[str, Groups] = {
        "tokens": by_length(lengths, LENGTHS),
        "depth": {str(depth): depths == depth for depth in np.unique(depths)},
    }
    flat = depths == 1
    if flat.any():
        operators = np.array([expression.tokens[0] for expression in dataset.expressions])
        arguments = lengths - 2
        groups[FLAT] = {
            f"{count}{CROSS}{operator.removeprefix('[')}": flat
            & (arguments == count)
            & (operators == IDS[operator])
            for count in np.unique(arguments[flat])
            for operator in OPERATORS
        }
    return groups


def _generate_test(config: ListOpsConfig, test: str, size: int, seed: int) -> Dataset:
    """Generate a harder test, or download the official one."""
    if test == "official":
        return _read_file(config, download.fetch())
    return _for_model(config, Dataset(hard_test(test, size, seed=seed)))


def _read_file(config: ListOpsConfig, path: Path) -> Dataset:
    """Read test data in the official format."""
    return _for_model(config, data.read_tsv(path))


LISTOPS = ClassifierTask(
    title=lambda config: f"ListOps: {config.model}, at most {config.max_train_length} tokens in training",
    about=(
        "The model reads an expression such as [MAX 2 9 [MIN 4 7 ] 0 ] and predicts its value, a digit. MED "
        "is the median and SM the sum modulo 10."
    ),
    unit="expressions",
    model_class=ListOpsModel,
    presets=presets_of,
    load_splits=_load_splits,
    load_test=_load_test,
    augment=_augment,
    accuracy_groups=_groups,
    read_file=_read_file,
    generate_test=_generate_test,
    pretrained=PRETRAINED,
    punctuation="every token counts, operators and brackets included",
)
