"""The verbs of a classification task that do not train: evaluating a data set, reading one example."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ordered_memory.draw import tree_text
from ordered_memory.trees import Tree, spans
from tasks.classifiers.classification import LabelledData
from tasks.classifiers.evaluation import Reading, read
from tasks.classifiers.report import results_text
from tasks.classifiers.task import ClassifierTask
from tasks.classifiers.traces import traces_of
from tasks.reporting.drawing import LONGEST_DRAWN, save_attention
from tasks.reporting.traces import FilesConfig
from tasks.runs.errors import UserError
from tasks.runs.evaluation import ResultsConfig
from tasks.runs.hub import ExportConfig, card_values, results_of
from tasks.runs.options import check_at_least, check_fraction, check_only_one
from tasks.runs.trained import text_of_saved

Presets = Callable[[str | None], Mapping[str, Any]]
"""Presets by name, given the value of `--model`."""


@dataclass
class CheckpointConfig:
    """The trained model."""

    checkpoint: Path | None = None
    """A run's best.safetensors, a directory that `export` wrote, or the name of such a model on the Hugging
    Face Hub; None for the model that comes with the project."""
    num_slots: int | None = None
    """Memory slots, for a model that has any; None for as many as in the final test of its run."""

    def check(self) -> None:
        """Raise a UserError for an option out of range."""
        check_at_least(1, self, "num_slots")


@dataclass
class EvaluateConfig(CheckpointConfig, ResultsConfig):
    """The data and the evaluation."""

    file: Path | None = None
    """Evaluate on this file in the official format."""
    data_dir: Path | None = None
    """Directory with the official files, if it is not that of the model's run."""
    occupancy_threshold: float | None = None
    """Slot occupancies below this fraction count as empty; None for the threshold of training."""
    batch_size: int = 256
    """The most examples in a batch."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "batch_size")
        check_fraction(self, "occupancy_threshold")
        check_only_one(self, "file", "data_dir")


@dataclass
class GeneratedConfig(EvaluateConfig):
    """Generated test data."""

    test: str = "standard"
    """`standard` is the test data of the model's own run; the others are generated and harder."""
    size: int = 2_000
    """Number of examples in a generated test."""
    seed: int = 1
    """Seed of a generated test."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "size")
        check_at_least(0, self, "seed")
        if self.test != "standard" and (self.file or self.data_dir):
            raise UserError(f"--test {self.test} draws its data: leave out --file and --data-dir")


@dataclass
class ReadConfig(CheckpointConfig):
    """The trained model and the picture."""

    heat_map: Path | None = None
    """Draw the attention p_t of each token over the slots into this PNG file."""


@dataclass
class TraceConfig(CheckpointConfig, FilesConfig):
    """The trained model and the files."""

    def check(self) -> None:
        super().check()
        self.check_files()


def run_evaluate(task: ClassifierTask[Any], config: EvaluateConfig) -> None:
    """Print the results of a trained model on test data, and write them where asked.

    Args:
        task: that the model belongs to.
        config: the options.
    Raises:
        UserError: bad options, checkpoint or data.
    """
    config.check()
    config.set_up()
    model, trained = task.load_model(config.checkpoint or task.pretrained, config.occupancy_threshold)
    if config.data_dir is not None:
        trained.data_dir = config.data_dir
    if config.file is not None:
        data = task.read_file(trained, config.file)
    elif task.draw is not None and isinstance(config, GeneratedConfig) and config.test != "standard":
        data = task.draw(trained, config.test, config.size, config.seed)
    else:
        data = task.load(trained).test
    if task.adapt is not None:
        task.adapt(trained, model, data)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    _, results = task.test(
        trained,
        model.to(device),
        data,
        batch_size=config.batch_size,
        num_slots=config.num_slots or trained.test_num_slots,
        device=device,
    )
    print(results_text(results))
    config.write(results)


def run_export(task: ClassifierTask[Any], presets: Presets, config: ExportConfig) -> None:
    """Write a trained model as a directory, and say how it is loaded.

    Args:
        task: that the model belongs to.
        presets: of the task, given the value of `--model`.
        config: the options.
    Raises:
        UserError: bad options or checkpoint.
    """
    config.check()
    checkpoint = config.checkpoint or task.pretrained
    model, trained = task.load_model(checkpoint)
    results = text_of_saved(results_of(checkpoint), results_text)
    name = type(model).__module__.split(".")[1]
    values = card_values(f"python -m tasks.{name}", trained, presets(trained.model)[trained.preset], results)
    model.save_pretrained(config.directory, model_card_kwargs=values)
    print(f"{config.directory}: {type(model).__name__}.from_pretrained({str(config.directory)!r}) loads it")


def read_example(
    task: ClassifierTask[Any], config: ReadConfig, data: LabelledData
) -> tuple[Reading, nn.Module, Any]:
    """What a trained model makes of the only example of a data set.

    Args:
        task: of the model.
        config: which model, and whether there will be a picture.
        data: one example.
    Returns:
        Answer, trees and attention; the model; the configuration of its run.
    Raises:
        UserError: an option out of range, or a picture of the attention of a model that has none.
    """
    config.check()
    if config.heat_map is not None:
        if not config.heat_map.name:
            raise UserError(f"--heat-map must name a file, got '{config.heat_map}'")
        if data.sentence_lengths.max() > LONGEST_DRAWN:
            raise UserError(
                f"--heat-map draws at most {LONGEST_DRAWN} tokens, got {data.sentence_lengths.max()}"
            )
    model, trained = _load_for(task, config, data)
    reading = read(model, data, 0, config.num_slots or trained.test_num_slots)
    if config.heat_map is not None and reading.attention is None:
        raise UserError(f"--heat-map draws attention over slots, and {trained.model} has none")
    return reading, model, trained


def run_trace(task: ClassifierTask[Any], config: TraceConfig, data: LabelledData) -> None:
    """Tell step by step what a trained model does with the only example of a data set.

    Args:
        task: of the model.
        config: the options.
        data: one example.
    Raises:
        UserError: bad options or checkpoint.
    """
    config.check()
    model, trained = _load_for(task, config, data)
    num_slots = config.num_slots or trained.test_num_slots
    traces = traces_of(model, data, 0, task.classes(trained), num_slots, task.node_values)
    config.write(traces, task.title(trained), task.about)


def _load_for(
    task: ClassifierTask[Any], config: CheckpointConfig, data: LabelledData
) -> tuple[nn.Module, Any]:
    """The model that the options name, which knows the words of the data, and the options of its run."""
    model, trained = task.load_model(config.checkpoint or task.pretrained)
    if task.adapt is not None:
        task.adapt(trained, model, data)
    return model, trained


def show_trees(config: ReadConfig, data: LabelledData, reading: Reading) -> None:
    """Print the induced trees of an example, the true ones where they differ, and draw the heat maps.

    Args:
        config: where to draw.
        data: one example.
        reading: what a model makes of it.
    """
    if reading.trees is None:
        print("this model induces no trees")
        return
    for place, (sentence, tree) in enumerate(zip(data.sentences(0), reading.trees, strict=True)):
        of = f" of the {sentence.name}" if sentence.name else ""
        same = set(spans(tree)) == set(spans(sentence.tree))
        print(f"\n{_drawn(tree, sentence.words)}")
        print(f"the tree{of} is the true one" if same else f"the tree{of} is not the true one, which is")
        if not same:
            print(f"\n{_drawn(sentence.tree, sentence.words)}")
        if config.heat_map is not None and reading.attention is not None:
            suffix = f"-{sentence.name.split()[0]}" if place else ""
            path = config.heat_map.with_stem(config.heat_map.stem + suffix)
            draw_heat_map(path, reading.attention[place], sentence.tokens)


def draw_heat_map(path: Path, attention: Tensor, tokens: list[str]) -> None:
    """Write the attention of a sentence as a picture, and say where.

    Args:
        path: of the PNG file.
        attention: p of each token, (T, N).
        tokens: T words.
    """
    save_attention(path, attention, tokens)
    print(f"heat map: {path}")


def _drawn(tree: Tree, words: list[str]) -> str:
    if len(words) > LONGEST_DRAWN:
        return f"a tree of {len(words):,} words, not drawn: at most {LONGEST_DRAWN} are"
    return tree_text(tree, words)
