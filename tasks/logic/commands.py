"""The subcommands of the logic task and their options."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from tasks.classifiers import commands
from tasks.classifiers.comparison import ReportConfig, run_report
from tasks.formatting.tables import text_table
from tasks.logic.comparison import comparison_table
from tasks.logic.config import DataConfig, LogicConfig
from tasks.logic.data import (
    MAX_OPERATIONS,
    OFFICIAL_SIZES,
    TRAIN_OPERATIONS,
    Dataset,
    write_directory,
)
from tasks.logic.formulas import RELATION_NAMES, RELATIONS
from tasks.logic.generator import OFFICIAL_COUNT, generate
from tasks.logic.task import LOGIC, load_pairs
from tasks.runs.command_line import Subcommand, run
from tasks.runs.errors import UserError
from tasks.runs.hub import ExportConfig
from tasks.runs.options import MOST_EXAMPLES, check_at_least


@dataclass
class EvaluateConfig(commands.GeneratedConfig):
    """Evaluate a trained model: accuracy by operations, confusion matrix, span F1 with baselines."""

    test: Literal["standard", "longer"] = "standard"
    """The test data of the model's run (standard), or generated pairs with 13 to 20 operations (longer)."""
    size: int = 500
    """Number of pairs for each number of operations in the longer test."""


@dataclass(kw_only=True)
class PairConfig:
    """Input."""

    left: Annotated[str, tyro.conf.Positional]
    """The left formula, such as "( a ( or b ) )"."""
    right: Annotated[str, tyro.conf.Positional]
    """The right formula, such as "( not c )"."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Both formulas."""
        return self.left, self.right


@dataclass(kw_only=True)
class PredictConfig(PairConfig, commands.ReadConfig):
    """Predict the relation between two formulas and draw the trees that the model induces."""


@dataclass(kw_only=True)
class TraceConfig(PairConfig, commands.TraceConfig):
    """Show step by step what the model does with two formulas."""


@dataclass
class StatsConfig(DataConfig):
    """Count the data by split, number of operations and relation."""

    seed: int = 1
    """Seed of the generated pairs."""


@dataclass
class GenerateConfig:
    """Generate pairs from the official distribution and write them to train0 … train12 and test0 … test12."""

    output: Annotated[Path, tyro.conf.Positional]
    """The directory to write to."""
    size: int = OFFICIAL_COUNT
    """Number of pairs to generate; about half of them remain when duplicates are dropped."""
    seed: int = 1
    """Random seed. A training run with this seed draws other examples, but short ones occur in both."""


def _predict(config: PredictConfig) -> None:
    data, prediction, _ = commands.print_answer(LOGIC, config)
    for label in prediction.probabilities.argsort(descending=True).tolist():
        sign = RELATIONS[label]
        print(f"  {sign} {RELATION_NAMES[sign]:<19} {prediction.probabilities[label]:.4f}")
    commands.show_trees(config, data, prediction)


def _stats(config: StatsConfig) -> None:
    commands.check_generated(config)
    run_config = LogicConfig(**vars(config))
    splits = load_pairs(run_config)
    size = len(splits.train) + len(splits.validation)
    if not size:
        where = config.data_dir or f"--generated {config.generated}"
        raise UserError(f"{where}: no pairs with at most {TRAIN_OPERATIONS} operations")
    print(f"split {config.split}: {size:,} pairs with at most {TRAIN_OPERATIONS} operations,", end=" ")
    print(f"{len(splits.train):,} for training and {len(splits.validation):,} for validation")
    kept_operations = Counter(pair.operations for pair in [*splits.train, *splits.validation])
    print(f"\n{'operations':>10}  {'kept':>9}  {'test':>9}  {'test, left out':>14}")
    for count in range(MAX_OPERATIONS + 1):
        left_out = "" if splits.left_out is None else f"{len(splits.left_out[count]):,}"
        print(f"{count:>10}  {kept_operations[count]:>9,}  {len(splits.tests[count]):>9,}  {left_out:>14}")
    kept_labels = Counter(pair.label for pair in [*splits.train, *splits.validation])
    test_labels = Counter(pair.label for group in splits.tests for pair in group)
    print(f"\n{'relation':>21}  {'kept':>9}  {'test':>9}")
    for label, sign in enumerate(RELATIONS):
        print(f"{sign} {RELATION_NAMES[sign]:>19}  {kept_labels[label]:>9,}  {test_labels[label]:>9,}")
    _print_baseline(run_config, Dataset([pair for group in splits.tests for pair in group]))
    if size != OFFICIAL_SIZES[config.split]:
        official = f"{OFFICIAL_SIZES[config.split]:,}"
        print(f"\nThe official data have {official} pairs with at most {TRAIN_OPERATIONS} operations.")


def _print_baseline(config: LogicConfig, tests: Dataset) -> None:
    """Print the accuracy of answering the most frequent relation to every test pair, if there are any."""
    if not len(tests):
        return
    answer = np.bincount(tests.labels).argmax()
    sign = RELATIONS[answer]
    print(f"\nTest accuracy of answering {sign} ({RELATION_NAMES[sign]}) to every pair:")
    correct = tests.labels == answer
    for title, masks in LOGIC.accuracy_groups(config, tests).items():
        rows = [[name, f"{correct[mask].mean():.4f}"] for name, mask in masks.items() if mask.any()]
        print(f"\n{text_table([title, 'accuracy'], rows)}")


def _generate(config: GenerateConfig) -> None:
    check_at_least(1, config, "size", largest=MOST_EXAMPLES)
    check_at_least(0, config, "seed")
    config.output.mkdir(parents=True, exist_ok=True)  # fails before the work is done, not after it
    train, tests = generate(config.size, seed=config.seed, stream="files")
    write_directory(config.output, train, tests)
    print(f"{config.output}: {sum(map(len, train)):,} training and {sum(map(len, tests)):,} test pairs")


SUBCOMMANDS = {
    "train": Subcommand(LogicConfig, LOGIC.train, LOGIC.presets),
    "evaluate": Subcommand(EvaluateConfig, partial(commands.run_evaluate, LOGIC)),
    "predict": Subcommand(PredictConfig, _predict),
    "predict-file": Subcommand(commands.PredictFileConfig, partial(commands.run_predict_file, LOGIC)),
    "trace": Subcommand(TraceConfig, partial(commands.run_trace, LOGIC)),
    "stats": Subcommand(StatsConfig, _stats),
    "generate": Subcommand(GenerateConfig, _generate),
    "report": Subcommand(ReportConfig, partial(run_report, LOGIC, make_table=comparison_table)),
    "export": Subcommand(ExportConfig, partial(commands.run_export, LOGIC)),
}

main = partial(run, "tasks.logic", SUBCOMMANDS)
