"""The verbs of sentiment that do not train: evaluate, predict, trace, stats."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ordered_memory.draw import tree_text
from ordered_memory.trees import Span
from tasks.classifiers import commands
from tasks.classifiers.commands import draw_heat_map, read_example, run_trace
from tasks.classifiers.traces import answer_of
from tasks.reporting.drawing import LONGEST_DRAWN
from tasks.reporting.traces import answer_text
from tasks.runs.options import check_at_least
from tasks.sst.config import SentimentConfig
from tasks.sst.model import CLASSES, SentimentModel
from tasks.sst.stats import stats_text
from tasks.sst.task import PRETRAINED, SST, load_treebank, node_values
from tasks.sst.treebank import NEUTRAL

SIGNS = tuple(name.split()[0] for name in CLASSES[5])


@dataclass
class EvaluateConfig(commands.EvaluateConfig):
    """Evaluate a trained model: accuracy of sentences and nodes, by length, with negation and "but"; F1."""

    classes: Literal[2, 5] = 5
    """Which of the models that come with the project, where --checkpoint is not given."""


@dataclass(kw_only=True)
class SentenceConfig:
    """What is read, and by which model."""

    sentence: Annotated[str, tyro.conf.Positional]
    """The sentence, such as "neither bad nor dull"."""
    classes: Literal[2, 5] = 5
    """Which of the models that come with the project, where --checkpoint is not given."""


@dataclass(kw_only=True)
class PredictConfig(SentenceConfig, commands.ReadConfig):
    """Tell the sentiment of a sentence, and of every node of the tree that the model induces."""


@dataclass(kw_only=True)
class TraceConfig(SentenceConfig, commands.TraceConfig):
    """Tell step by step what the model does with a sentence."""


@dataclass
class StatsConfig:
    """Count the sentences, phrases and labels of the data."""

    data_dir: Path | None = None
    """Directory with train.txt, dev.txt and test.txt; None to draw or fetch them."""
    generated: int = 0
    """Number of sentences to draw; 0 for the treebank."""
    seed: int = 1
    """Seed of the drawn sentences."""


def run_evaluate(config: EvaluateConfig) -> None:
    """Print the results of a trained model on the test data; see `tasks.classifiers.commands.run_evaluate`.

    Args:
        config: the options.
    """
    checkpoint = config.checkpoint or PRETRAINED[config.classes]
    commands.run_evaluate(SST, replace(config, checkpoint=checkpoint))


def run_predict(config: PredictConfig) -> None:
    """Print the probabilities of the sentiments and the induced tree with a sentiment at each node.

    Args:
        config: the options.
    Raises:
        UserError: bad options or checkpoint, or no word.
    """
    data = SentimentModel.read_text(config.sentence)
    words = data.words_of(0)
    checkpoint = config.checkpoint or PRETRAINED[config.classes]
    reading, model, trained = read_example(SST, replace(config, checkpoint=checkpoint), data)
    classes = CLASSES[trained.classes]
    print(answer_text(answer_of(reading, data, 0, classes)))
    for name, probability in zip(classes, reading.probabilities.tolist(), strict=True):
        print(f"  {name:<16}  {probability:.4f}")
    if reading.trees is None:
        print("this model induces no tree")
        return
    if len(words) > LONGEST_DRAWN:
        print(f"the tree has {len(words):,} words and is not drawn: at most {LONGEST_DRAWN} are")
    else:
        [sentence] = data.sentences(0)
        values = node_values(model, sentence, reading.trees[0])
        print(f"\n{tree_text(reading.trees[0], words, _signs(values))}")
        print(f"\n{' '.join(SIGNS)}: from very negative to very positive")
    if config.heat_map is not None and reading.attention is not None:
        draw_heat_map(config.heat_map, reading.attention[0], words)


def run_sentence_trace(config: TraceConfig) -> None:
    """Tell what a trained model does with a sentence; see `tasks.classifiers.commands.run_trace`.

    Args:
        config: the options.
    """
    checkpoint = config.checkpoint or PRETRAINED[config.classes]
    run_trace(SST, replace(config, checkpoint=checkpoint), SentimentModel.read_text(config.sentence))


def _signs(values: dict[Span, float]) -> dict[Span, str]:
    """A sign for each node; neutral words have none."""
    signs = {span: SIGNS[round(2 * value) + NEUTRAL] for span, value in values.items()}
    return {span: sign for span, sign in signs.items() if sign != "0" or span[0] < span[1]}


def run_stats(config: StatsConfig) -> None:
    """Print what a treebank holds.

    Args:
        config: the options.
    Raises:
        UserError: bad options or data.
    """
    check_at_least(0, config, "generated", "seed")
    treebank = load_treebank(
        SentimentConfig(data_dir=config.data_dir, generated=config.generated, seed=config.seed)
    )
    print(stats_text(treebank))
