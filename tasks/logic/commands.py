"""Verbs of the logic task beside training: evaluate, predict, stats, generate, report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro

from tasks.logic.comparison import write_comparison
from tasks.logic.config import GIVEN_TREES, LogicConfig
from tasks.logic.data import (
    MAX_OPERATIONS,
    OFFICIAL_SIZES,
    TRAIN_OPERATIONS,
    Dataset,
    Pair,
    SplitName,
    make_pair,
    read_directory,
    read_file,
    split,
    write_directory,
)
from tasks.logic.download import fetch
from tasks.logic.evaluation import evaluate, induced_trees
from tasks.logic.formulas import RELATION_NAMES, RELATIONS, decode, parse, words_of
from tasks.logic.generator import OFFICIAL_COUNT, generate, longer
from tasks.logic.model import PRETRAINED, load_model
from tasks.logic.report import results_text
from tasks.logic.task import load_splits
from tasks.reporting.drawing import draw_tree, save_attention
from tasks.runs.errors import UserError
from tasks.runs.options import check_at_least
from tasks.runs.run_directory import write_json


@dataclass
class EvaluateConfig:
    """Evaluate a trained model: accuracy by operations, confusion, span F1 with baselines."""

    checkpoint: Path = PRETRAINED
    """A run's best.safetensors; by default the model that comes with the project."""
    test: Literal["standard", "longer"] = "standard"
    """The run's own test data, or generated pairs of 13 to 20 operations."""
    file: Path | None = None
    """Read a file in the official format instead."""
    data_dir: Path | None = None
    """Directory with the official files, where they have moved since the training."""
    size: int = 500
    """Pairs of each number of operations in the longer test."""
    seed: int = 1
    """Of the longer test."""
    num_slots: int | None = None
    """Memory slots, where the model has any; by default as many as in the final test of its run."""
    occupancy_threshold: float | None = None
    """Slot occupancies below this fraction count as empty; by default as in training."""
    batch_size: int = 256
    """The most pairs in a batch."""
    json: Path | None = None
    """Also write the results to this file."""


@dataclass
class PredictConfig:
    """Say how two formulas are related, and draw the trees that the model reads them with."""

    left: Annotated[str, tyro.conf.Positional]
    """Such as "( a ( or b ) )"."""
    right: Annotated[str, tyro.conf.Positional]
    """Such as "( not ( c ) )"."""
    checkpoint: Path = PRETRAINED
    """A run's best.safetensors; by default the model that comes with the project."""
    heat_map: Path | None = None
    """Where to draw p_t of the left formula; that of the right one goes beside it, `-right` in its name."""
    num_slots: int | None = None
    """Memory slots; by default as many as in the final test of the model's run."""


@dataclass
class StatsConfig:
    """Count the data by split, operations and relation."""

    split: SplitName = "full"
    """What training leaves out."""
    data_dir: Path | None = None
    """Directory with the official files; by default they are fetched."""
    generated: int = 0
    """Count so many drawn pairs instead."""
    seed: int = 1
    """Of the drawn pairs."""


@dataclass
class GenerateConfig:
    """Draw pairs of the official distribution and write them as train0 … test12."""

    output: Annotated[Path, tyro.conf.Positional]
    """The directory to write to."""
    size: int = OFFICIAL_COUNT
    """Pairs to draw; about half are left once doubles are dropped."""
    seed: int = 1
    """The same seed gives the same files."""


@dataclass
class ReportConfig:
    """Put finished runs side by side: a table here, plots, confusion and trees on a page."""

    runs: Annotated[list[Path], tyro.conf.Positional] = field(default_factory=list)
    """Directories of finished runs of one split."""
    output: Path = Path("runs", "logic", "report.html")
    """The page to write."""


def run_evaluate(config: EvaluateConfig) -> None:
    """Print the table of results of a checkpoint on a test."""
    check_at_least(1, config, "batch_size", "size", "num_slots")
    model, trained = load_model(config.checkpoint, config.occupancy_threshold)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    evaluation = evaluate(
        model.to(device),
        _test_pairs(config, trained),
        split=trained.split,
        given_trees=trained.model in GIVEN_TREES,
        batch_size=config.batch_size,
        num_slots=config.num_slots or trained.test_num_slots,
        device=device,
        exact=config.test == "longer",
    )
    results = evaluation.summary()
    print(results_text(results))
    if config.json is not None:
        write_json(config.json, results)


def run_predict(config: PredictConfig) -> None:
    """Print the probabilities of the seven relations and both trees."""
    check_at_least(1, config, "num_slots")
    pair = make_pair(_without_idle_brackets(config.left), _without_idle_brackets(config.right))
    model, trained = load_model(config.checkpoint)
    batch = Dataset([pair], trees=trained.model in GIVEN_TREES).batch([0])
    with torch.inference_mode():
        prediction = model(batch, config.num_slots or trained.test_num_slots)
    probabilities = prediction.logits.softmax(-1)[0]
    answer, truth = RELATIONS[int(probabilities.argmax())], RELATIONS[pair.label]
    verdict = "right" if answer == truth else f"wrong, it is {truth} {RELATION_NAMES[truth]}"
    print(f"left {answer} right: {RELATION_NAMES[answer]} ({verdict})")
    for number in probabilities.argsort(descending=True).tolist():
        sign = RELATIONS[number]
        print(f"  {sign} {RELATION_NAMES[sign]:<19} {probabilities[number]:.4f}")
    if prediction.attention is None:
        print("this model induces no trees")
        return
    trees = induced_trees(prediction.attention, batch)
    for side, clause in enumerate((pair.left, pair.right)):
        tokens = decode(clause)
        print(f"\n{draw_tree(trees[side], words_of(tokens))}")
        same = trees[side] == parse(tokens).tree
        print(f"the tree of the {('left', 'right')[side]} formula is {'' if same else 'not '}the true one")
        if config.heat_map is not None:
            path = (
                config.heat_map if side == 0 else config.heat_map.with_stem(f"{config.heat_map.stem}-right")
            )
            save_attention(path, prediction.attention[side, : len(tokens)].numpy(), tokens)
            print(f"heat map: {path}")


def run_stats(config: StatsConfig) -> None:
    """Print how many pairs there are, and check the sizes of the official splits."""
    if config.generated:
        train, tests = generate(config.generated, seed=config.seed)
    else:
        train, tests = read_directory(config.data_dir or fetch())
    parts = split(train, tests, config.split)
    size = len(parts.train) + len(parts.validation)
    print(f"split {config.split}: {size:,} pairs of at most {TRAIN_OPERATIONS} operations,", end=" ")
    print(f"{len(parts.train):,} for training and {len(parts.validation):,} for validation")
    if not config.generated and size != OFFICIAL_SIZES[config.split]:
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
    """Write drawn pairs in the official format."""
    train, tests = generate(config.size, seed=config.seed)
    write_directory(config.output, train, tests)
    print(f"{config.output}: {sum(map(len, train)):,} training and {sum(map(len, tests)):,} test pairs")


def run_report(config: ReportConfig) -> None:
    """Print the table of several runs and write the page."""
    if not config.runs:
        raise UserError("name the directories of one or more finished runs")
    config.output.parent.mkdir(parents=True, exist_ok=True)
    print(write_comparison(config.output, config.runs))
    print(f"report: {config.output}")


def _test_pairs(config: EvaluateConfig, trained: LogicConfig) -> list[Pair]:
    if config.file is not None:
        return read_file(config.file)
    if config.test == "longer":
        operations = range(MAX_OPERATIONS + 1, 21)
        return [pair for number in operations for pair in longer(number, config.size, seed=config.seed)]
    if config.data_dir is not None:
        trained.data_dir = config.data_dir
    return [pair for group in load_splits(trained).tests for pair in group]


def _without_idle_brackets(text: str) -> str:
    """`( c )` says no more than `c`, but is not in the language that models are trained on."""
    for name in "abcdef":
        text = text.replace(f"( {name} )", name).replace(f"({name})", name)
    return text
