"""The subcommands of the sentiment task and their options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro
from torch import Tensor

from ordered_memory.trees import Span
from tasks.classifiers import commands
from tasks.classifiers.comparison import ReportConfig, run_report
from tasks.reporting.drawing import LONGEST_DRAWN
from tasks.runs.command_line import Subcommand, run
from tasks.runs.hub import ExportConfig
from tasks.runs.options import check_only_one
from tasks.sst.config import SentimentConfig
from tasks.sst.model import SentimentModel
from tasks.sst.stats import stats_text
from tasks.sst.task import PRETRAINED, SST, load_treebank


@dataclass
class ClassesConfig(commands.CheckpointConfig):
    """Model that comes with the project."""

    classes: Literal[2, 5] | None = None
    """In place of --checkpoint: the model that comes with the project for this number of classes; the default
    is the one for 5."""

    def __post_init__(self) -> None:
        check_only_one(self, "checkpoint", "classes")
        self.checkpoint = self.checkpoint or PRETRAINED[self.classes or 5]


@dataclass
class EvaluateConfig(ClassesConfig, commands.EvaluateConfig):
    """Evaluate a trained model: accuracy on sentences and nodes, by length, with negation, with "but"; F1."""


@dataclass(kw_only=True)
class SentenceConfig(ClassesConfig):
    """Input."""

    sentence: Annotated[str, tyro.conf.Positional]
    """The sentence, such as "neither bad nor dull"."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The sentence."""
        return (self.sentence,)


@dataclass(kw_only=True)
class PredictConfig(SentenceConfig, commands.ReadConfig):
    """Predict the sentiment of a sentence and of every node of the tree that the model induces."""


@dataclass(kw_only=True)
class PredictFileConfig(ClassesConfig, commands.PredictFileConfig):
    """Predict the sentiment of every line of a file: print the predictions, one JSON object per line."""


@dataclass(kw_only=True)
class TraceConfig(SentenceConfig, commands.TraceConfig):
    """Show step by step what the model does with a sentence."""


@dataclass
class StatsConfig:
    """Count the sentences, phrases and labels of the data."""

    data_dir: Path | None = None
    """Directory with train.txt, dev.txt and test.txt; None to generate or download them."""
    generated: int = 0
    """Number of sentences to generate; 0 for the treebank."""
    seed: int = 1
    """Seed of the generated sentences."""


def _predict(config: PredictConfig) -> None:
    data, prediction, model = commands.print_answer(SST, config)
    [sentence] = data.sentences(0)
    for name, probability in zip(model.classes, prediction.probabilities.tolist(), strict=True):
        print(f"  {name:<16}  {probability:.4f}")
    labels = legend = None
    if prediction.trees is not None and len(sentence.words) <= LONGEST_DRAWN:
        assert isinstance(model, SentimentModel)
        signs = [name.split()[0] for name in model.classes]
        labels = _signs(model.node_probabilities(sentence, prediction.trees[0]), signs)
        legend = f"{' '.join(signs)}: from {_sentiment(model.classes[0])} to {_sentiment(model.classes[-1])}"
    commands.show_trees(config, data, prediction, labels, legend)


def _signs(probabilities: Mapping[Span, Tensor], signs: Sequence[str]) -> dict[Span, str]:
    """The sign of the most probable class of each node except neutral words."""
    of_nodes = {span: signs[int(of_classes.argmax())] for span, of_classes in probabilities.items()}
    return {span: sign for span, sign in of_nodes.items() if sign != "0" or span[0] < span[1]}


def _sentiment(name: str) -> str:
    """The name of a class without its sign."""
    return name.partition(" ")[2]


def _stats(config: StatsConfig) -> None:
    commands.check_generated(config)
    print(stats_text(load_treebank(SentimentConfig(**vars(config)))))


SUBCOMMANDS = {
    "train": Subcommand(SentimentConfig, SST.train, SST.presets),
    "evaluate": Subcommand(EvaluateConfig, partial(commands.run_evaluate, SST)),
    "predict": Subcommand(PredictConfig, _predict),
    "predict-file": Subcommand(PredictFileConfig, partial(commands.run_predict_file, SST)),
    "trace": Subcommand(TraceConfig, partial(commands.run_trace, SST)),
    "stats": Subcommand(StatsConfig, _stats),
    "report": Subcommand(ReportConfig, partial(run_report, SST)),
    "export": Subcommand(ExportConfig, partial(commands.run_export, SST)),
}

main = partial(run, "tasks.sst", SUBCOMMANDS)
