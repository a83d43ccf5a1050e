"""The subcommands `logic` and `sst`: time a training step and a forward pass of all models of the task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import torch

from tasks.benchmark.config import MeasurementConfig
from tasks.benchmark.contender import ModuleContender, as_in_training
from tasks.benchmark.figures import contender_figures, tables
from tasks.benchmark.measure import describe, interleave, machine_line
from tasks.benchmark.workloads import spread_batches
from tasks.classifiers.classification import LabeledData, Prediction, compute_losses
from tasks.classifiers.classifier import Classifier
from tasks.classifiers.config import EncoderConfig, ModelName
from tasks.classifiers.word_embedding import WordEmbedding
from tasks.logic.config import LogicConfig, presets_of
from tasks.logic.data import Dataset
from tasks.logic.generator import generate
from tasks.logic.model import LogicModel
from tasks.runs.batching import Indices
from tasks.runs.command_line import Subcommand
from tasks.runs.command_options import print_after
from tasks.runs.errors import UserError
from tasks.runs.machine import to_device
from tasks.runs.optimization import PlateauAdam
from tasks.runs.options import MOST_EXAMPLES, check_at_least
from tasks.sst.config import PRESETS, SentimentConfig
from tasks.sst.dataset import PhraseData
from tasks.sst.grammar import generate_treebank
from tasks.sst.model import SentimentModel
from tasks.sst.treebank import phrases, read_directory


@dataclass
class ClassifierModelsConfig(MeasurementConfig):
    """Models and batches."""

    models: tuple[ModelName, ...] = get_args(ModelName)
    """Models to time."""
    batches: int = 4
    """Number of batches, evenly spaced over the lengths of a training epoch."""
    batch_size: int = 128
    """Batch size."""
    slot_size: int = 200
    """Hidden size of all models; the slot size of Ordered Memory."""
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    """Floating-point precision; bf16-mixed uses autocast."""

    quick_options: ClassVar = {
        **MeasurementConfig.quick_options,
        "batches": 2,
        "batch_size": 4,
        "slot_size": 80,
    }
    unit: ClassVar[str]

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "batches", "batch_size", "slot_size")
        if not self.models:
            raise UserError("--models must name at least one model")
        for model in self.models:
            self.model_config(model).check()

    def model_config(self, model: ModelName) -> EncoderConfig:
        """The configuration of a model.

        Args:
            model: a value of `--model` of the task.
        """
        raise NotImplementedError

    def data(self) -> LabeledData:
        """Training data, with true trees."""
        raise NotImplementedError

    def build(self, config: Any, data: Any) -> Classifier:
        """Build a model with random weights.

        Args:
            config: options from `model_config`.
            data: data set from `data`.
        """
        raise NotImplementedError


@dataclass
class LogicModelsConfig(ClassifierModelsConfig):
    """Time a training step and a forward pass of all models of the logic task.

    A training step includes the optimizer. All models have the same hidden size, that of Ordered Memory in
    the paper, and otherwise the options of their `paper` preset. Data are generated pairs with at most 6
    operations.
    """

    pairs: int = 60_000
    """Number of pairs to generate; with many pairs, batches have similar lengths, as in training."""

    quick_options: ClassVar = {**ClassifierModelsConfig.quick_options, "pairs": 400}
    unit = "pairs"

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "pairs", largest=MOST_EXAMPLES)

    def model_config(self, model: ModelName) -> LogicConfig:
        return replace(
            presets_of(model)["paper"],
            model=model,
            seed=self.seed,
            slot_size=self.slot_size,
            embedding_size=self.slot_size,
        )

    def data(self) -> Dataset:
        train, _ = generate(self.pairs, seed=self.seed)
        return Dataset([pair for group in train[:7] for pair in group], include_trees=True)

    def build(self, config: LogicConfig, data: Dataset) -> LogicModel:
        return LogicModel(config)


@dataclass
class SentimentModelsConfig(ClassifierModelsConfig):
    """Time a training step and a forward pass of all models of the sentiment task.

    A training step includes the optimizer. Models have the sizes of the paper; data are distinct phrases with
    random word vectors.
    """

    slot_size: int = 300
    """Hidden size of all models; the slot size of Ordered Memory."""
    vector_size: int = 300
    """Size of a word vector."""
    classes: Literal[2, 5] = 2
    """Number of classes; 2 classes leave out neutral phrases."""
    data_dir: Path | None = None
    """Directory with the treebank; None to generate sentences."""

    unit = "phrases"

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "vector_size")

    def model_config(self, model: ModelName) -> SentimentConfig:
        paper = PRESETS["paper"]
        return replace(paper, model=model, seed=self.seed, slot_size=self.slot_size, classes=self.classes)

    def data(self) -> PhraseData:
        if self.data_dir is None:
            treebank = generate_treebank(60 if self.quick else 6_000, self.seed)
        else:
            treebank = read_directory(self.data_dir)
        return PhraseData(
            treebank.train, phrases(treebank.train, self.classes, merge=True), include_trees=True
        )

    def build(self, config: SentimentConfig, data: PhraseData) -> SentimentModel:
        vocabulary = sorted({word.lower() for tree in data.trees for word in tree.words})
        embedding = WordEmbedding(vocabulary, self.vector_size)
        torch.nn.init.normal_(embedding.weight)
        return SentimentModel(config, embedding)


def _run(config: ClassifierModelsConfig) -> None:
    """Time the models and print the tables; with `--json`, write the results."""
    config.set_up()
    data = config.data()
    lengths = data.sentence_lengths.sum(1).tolist()
    chosen = spread_batches(lengths, config.batch_size, config.batches, config.seed)
    contenders: dict[str, ModuleContender[Any]] = {
        name: _contender(config, name, data, chosen) for name in config.models
    }
    times = interleave(contenders, len(chosen), repeats=config.repeats, device=config.device)
    epoch_factor = len(lengths) / config.batch_size / config.batches  # batches per epoch / timed batches
    details = {
        name: {
            "parameters": sum(parameter.numel() for parameter in contender.module.parameters()),
            "epoch_s": sum(times[name].train) * epoch_factor / 1000,
        }
        for name, contender in contenders.items()
    }
    figures = contender_figures(times, config.unit, config.batches * config.batch_size, details)
    machine = describe(config)
    batches = f"{len(chosen)} x {config.batch_size} {config.unit}"
    heading = machine_line(machine, f"{batches}, {config.precision}, random weights")
    sizes = {name: getattr(config, name) for name in ("batches", "batch_size", "slot_size", "precision")}
    with print_after(f"{heading}\n{tables(figures, config.unit, lstm='lstm')}"):
        config.write({**machine, **sizes, "contenders": figures})


def _contender(
    config: ClassifierModelsConfig, name: ModelName, data: LabeledData, batches: Sequence[Indices]
) -> ModuleContender[Any]:
    """A model, trained as in the task."""
    model_config = config.model_config(name)
    torch.manual_seed(config.seed)
    model = config.build(model_config, data).to(config.device)

    def predict(batch: Any) -> Prediction:
        with torch.autocast(config.device.split(":")[0], torch.bfloat16, config.precision == "bf16-mixed"):
            prediction: Prediction = model(batch)
        return prediction._replace(logits=prediction.logits.float())

    return as_in_training(
        model,
        [to_device(data.batch(indices), config.device) for indices in batches],
        losses=lambda batch: compute_losses(predict(batch), batch.labels),
        forward=lambda batch: predict(batch).logits,
        optimizer=PlateauAdam(model, model_config).optimizer,
        gradient_clip=model_config.gradient_clip,
    )


LOGIC_MODELS = Subcommand(LogicModelsConfig, _run)
SENTIMENT_MODELS = Subcommand(SentimentModelsConfig, _run)
