"""The verbs of the command line that do not train: evaluate, parse, generate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro

from ordered_memory.tree_recovery import from_attention
from tasks.listops.data import Dataset, read_tsv, write_tsv
from tasks.listops.evaluation import evaluate
from tasks.listops.expressions import evaluate as evaluate_expression
from tasks.listops.expressions import tokenize
from tasks.listops.expressions import tree as true_tree
from tasks.listops.generator import generate, hard_test
from tasks.listops.model import PRETRAINED, load_model
from tasks.listops.report import results_text
from tasks.listops.task import load_splits
from tasks.reporting.drawing import draw_tree, save_attention
from tasks.runs.options import check_at_least
from tasks.runs.run_directory import write_json

TestName = Literal[
    "standard",
    "200-300",
    "300-400",
    "400-500",
    "500-600",
    "600-700",
    "700-800",
    "800-900",
    "900-1000",
    "10-args",
    "15-args",
]


@dataclass
class EvaluateConfig:
    """Evaluate a trained model: accuracy by length and depth, span F1 with baselines."""

    checkpoint: Path = PRETRAINED
    """A run's best.safetensors; by default the model that comes with the project."""
    test: TestName = "standard"
    """The run's own test data, or a harder test: a range of lengths in tokens, or more arguments."""
    file: Path | None = None
    """Read a file in the official format instead."""
    size: int = 2_000
    """Expressions in a harder test."""
    seed: int = 1
    """Of a harder test."""
    num_slots: int | None = None
    """Memory slots, where the model has any; by default as many as in the final test of its run."""
    occupancy_threshold: float | None = None
    """Slot occupancies below this fraction count as empty; by default as in training."""
    batch_size: int = 256
    """The most expressions in a batch."""
    json: Path | None = None
    """Also write the results to this file."""


@dataclass
class ParseConfig:
    """Answer one expression and draw the tree that the model reads it with."""

    expression: Annotated[str, tyro.conf.Positional]
    """Such as "[MAX 2 9 [MIN 4 7 ] 0 ]"."""
    checkpoint: Path = PRETRAINED
    """A run's best.safetensors; by default the model that comes with the project."""
    heat_map: Path = Path("heat_map.png")
    """Where to draw p_t, token by token."""
    num_slots: int | None = None
    """Memory slots; by default as many as in the final test of the model's run."""


@dataclass
class GenerateConfig:
    """Write generated expressions to a file in the official format."""

    output: Annotated[Path, tyro.conf.Positional]
    """The file to write."""
    test: TestName = "standard"
    """The standard distribution, or a harder test."""
    size: int = 2_000
    """How many different expressions."""
    seed: int = 1
    """The same seed gives the same file."""


def run_evaluate(config: EvaluateConfig) -> None:
    """Print the table of results of a checkpoint on a test."""
    check_at_least(1, config, "batch_size", "size", "num_slots")
    check_at_least(0, config, "seed")
    model, trained = load_model(config.checkpoint, config.occupancy_threshold)
    if config.file is not None:
        dataset = read_tsv(config.file)
    elif config.test == "standard":
        dataset = load_splits(trained).test
    else:
        dataset = _draw(config.test, config.size, config.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    evaluation = evaluate(
        model.to(device),
        dataset,
        batch_size=config.batch_size,
        num_slots=config.num_slots or trained.test_num_slots,
        device=device,
    )
    results = evaluation.summary()
    print(results_text(results))
    if config.json is not None:
        write_json(config.json, results)


def run_parse(config: ParseConfig) -> None:
    """Print the answer and the tree of one expression, and save its heat map."""
    tokens = tokenize(config.expression)
    answer = evaluate_expression(tokens)
    check_at_least(1, config, "num_slots")
    model, trained = load_model(config.checkpoint)
    batch = Dataset.from_texts([config.expression]).batch([0])
    with torch.inference_mode():
        prediction = model(batch, config.num_slots or trained.test_num_slots)
    probabilities = prediction.logits.softmax(-1)[0]
    value = int(probabilities.argmax())
    verdict = "right" if value == answer else f"wrong, it is {answer}"
    print(f"answer: {value} (probability {probabilities[value]:.3f}; {verdict})")
    if prediction.attention is None:
        print("this model has no slots and so no tree")
        return
    tree = from_attention(prediction.attention, batch_first=True)[0]
    print(f"\n{draw_tree(tree, tokens)}")
    print("the tree is the true one" if tree == true_tree(tokens) else "the tree is not the true one")
    save_attention(config.heat_map, prediction.attention[0].numpy(), tokens)
    print(f"heat map: {config.heat_map}")


def run_generate(config: GenerateConfig) -> None:
    """Write a generated data set."""
    check_at_least(1, config, "size")
    check_at_least(0, config, "seed")
    write_tsv(config.output, _draw(config.test, config.size, config.seed))
    print(f"{config.output}: {config.size:,} expressions")


def _draw(test: str, size: int, seed: int) -> Dataset:
    if test == "standard":
        return Dataset.from_expressions(generate(size, seed=seed))
    return Dataset.from_expressions(hard_test(test, size, seed=seed))
