"""Verbs of the logic task beside training: evaluate, predict, trace, stats, generate, report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tasks.classifiers import commands
from tasks.classifiers.commands import read_example, run_trace, show_trees
from tasks.classifiers.traces import answer_of
from tasks.logic.comparison import write_comparison
from tasks.logic.config import LogicConfig
from tasks.logic.data import (
    MAX_OPERATIONS,
    OFFICIAL_SIZES,
    TRAIN_OPERATIONS,
    SplitName,
    write_directory,
)
from tasks.logic.formulas import RELATION_NAMES, RELATIONS
from tasks.logic.generator import OFFICIAL_COUNT, generate
from tasks.logic.model import LogicModel
from tasks.logic.task import LOGIC, load_pairs
from tasks.reporting.traces import answer_text
from tasks.runs.errors import UserError


@dataclass
class EvaluateConfig(commands.GeneratedConfig):
    """Evaluate a trained model: accuracy by operations, confusion, span F1 with baselines."""

    test: Literal["standard", "longer"] = "standard"
    """The test data of the model's run, or generated pairs of 13 to 20 operations."""
    size: int = 500
    """Pairs of each number of operations in the longer test."""


@dataclass(kw_only=True)
class PairConfig:
    """What is read."""

    left: Annotated[str, tyro.conf.Positional]
    """The left formula, such as "( a ( or b ) )"."""
    right: Annotated[str, tyro.conf.Positional]
    """The right formula, such as "( not c )"."""


@dataclass(kw_only=True)
class PredictConfig(PairConfig, commands.ReadConfig):
    """Say how two formulas are related, and draw the trees that the model induces."""


@dataclass(kw_only=True)
class TraceConfig(PairConfig, commands.TraceConfig):
    """Tell step by step what the model does with two formulas."""


@dataclass
class StatsConfig:
    """Count the data by split, operations and relation."""

    split: SplitName = "full"
    """What training leaves out: a systematic split, or nothing (full)."""
    data_dir: Path | None = None
    """Directory with the official files; None to draw or fetch them."""
    generated: int = 0
    """Draw this many pairs; 0 to fetch the official files."""
    seed: int = 1
    """Seed of the drawn pairs."""


@dataclass
class GenerateConfig:
    """Draw pairs from the official distribution and write them as train0 … test12."""

    output: Annotated[Path, tyro.conf.Positional]
    """The directory to write to."""
    size: int = OFFICIAL_COUNT
    """Number of pairs to draw; about half are left once duplicates are dropped."""
    seed: int = 1
    """Seed; the same seed gives the same files."""


@dataclass
class ReportConfig:
    """Compare finished runs: a table of accuracies, and a page with plots, confusion and trees."""

    runs: Annotated[list[Path], tyro.conf.Positional] = field(default_factory=list)
    """Directories of finished runs of one split."""
    output: Path = Path("runs", "logic", "report.html")
    """The page to write."""


def run_predict(config: PredictConfig) -> None:
    """Print the probabilities of the seven relations and both trees.

    Args:
        config: the options.
    Raises:
        UserError: bad options, checkpoint or formulas.
    """
    data = LogicModel.read_text(config.left, config.right)
    reading, *_ = read_example(LOGIC, config, data)
    print(answer_text(answer_of(reading, data, 0, LogicModel.classes)))
    for number in reading.probabilities.argsort(descending=True).tolist():
        sign = RELATIONS[number]
        print(f"  {sign} {RELATION_NAMES[sign]:<19} {reading.probabilities[number]:.4f}")
    show_trees(config, data, reading)


def run_pair_trace(config: TraceConfig) -> None:
    """Tell what a trained model does with two formulas; see `tasks.classifiers.commands.run_trace`.

    Args:
        config: the options.
    """
    run_trace(LOGIC, config, LogicModel.read_text(config.left, config.right))


def run_stats(config: StatsConfig) -> None:
    """Print the number of pairs in each part, and check the sizes of the official splits.

    Args:
        config: the options.
    Raises:
        UserError: bad options or data, or the sizes are not the official ones.
    """
    parts = load_pairs(
        LogicConfig(
            split=config.split, data_dir=config.data_dir, generated=config.generated, seed=config.seed
        )
    )
    size = len(parts.train) + len(parts.validation)
    print(f"split {config.split}: {size:,} pairs of at most {TRAIN_OPERATIONS} operations,", end=" ")
    print(f"{len(parts.train):,} for training and {len(parts.validation):,} for validation")
    if (config.data_dir or not config.generated) and size != OFFICIAL_SIZES[config.split]:
        raise UserError(f"the official files leave {OFFICIAL_SIZES[config.split]:,} pairs, these {size:,}")
    learnt = Counter(pair.operations for pair in [*parts.train, *parts.validation])
    print(f"\n{'operations':>10}  {'kept':>9}  {'test':>9}  {'left out of it':>14}")
    for number in range(MAX_OPERATIONS + 1):
        excluded = "" if parts.excluded is None else f"{len(parts.excluded[number]):,}"
        print(f"{number:>10}  {learnt[number]:>9,}  {len(parts.tests[number]):>9,}  {excluded:>14}")
    kept = Counter(pair.label for pair in [*parts.train, *parts.validation])
    tested = Counter(pair.label for group in parts.tests for pair in group)
    print(f"\n{'relation':>21}  {'kept':>9}  {'test':>9}")
    for number, sign in enumerate(RELATIONS):
        print(f"{sign} {RELATION_NAMES[sign]:>19}  {kept[number]:>9,}  {tested[number]:>9,}")


def run_generate(config: GenerateConfig) -> None:
    """Draw pairs and write them in the official format.

    Args:
        config: the options.
    Raises:
        UserError: bad options.
    """
    train, tests = generate(config.size, seed=config.seed)
    write_directory(config.output, train, tests)
    print(f"{config.output}: {sum(map(len, train)):,} training and {sum(map(len, tests)):,} test pairs")


def run_report(config: ReportConfig) -> None:
    """Print the table of several runs and write the page.

    Args:
        config: the options.
    Raises:
        UserError: no run, one that is not finished, or runs with different splits.
    """
    if not config.runs:
        raise UserError("name the directories of one or more finished runs")
    config.output.parent.mkdir(parents=True, exist_ok=True)
    print(write_comparison(config.output, config.runs))
    print(f"report: {config.output}")
