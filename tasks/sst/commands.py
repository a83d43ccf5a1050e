"""The verbs of the sentiment task except train: evaluate, predict, trace, stats."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ordered_memory.draw import tree_text
from ordered_memory.trees import Span
from tasks.classifiers import commands
from tasks.classifiers.commands import draw_heat_map, load_and_predict, run_trace
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
    """Evaluate a trained model: accuracy on sentences and nodes, by length, with negation, with "but"; F1."""

    classes: Literal[2, 5] = 5
    """Without --checkpoint: use the model that comes with the project for this number of classes."""


@dataclass(kw_only=True)
class SentenceConfig:
    """Input and model."""

    sentence: Annotated[str, tyro.conf.Positional]
    """The sentence, such as "neither bad nor dull"."""
    classes: Literal[2, 5] = 5
    """Without --checkpoint: use the model that comes with the project for this number of classes."""


@dataclass(kw_only=True)
class PredictConfig(SentenceConfig, commands.ReadConfig):
    """Predict the sentiment of a sentence and of every node of the tree that the model induces."""


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


def run_evaluate(config: EvaluateConfig) -> None:
    """Evaluate a trained model on test data; see `tasks.classifiers.commands.run_evaluate`.

    Args:
        config: the options.
    """
    checkpoint = config.checkpoint or PRETRAINED[config.classes]
    commands.run_evaluate(SST, replace(config, checkpoint=checkpoint))


def run_predict(config: PredictConfig) -> None:
    """Print the probabilities of the classes, and the induced tree with a sentiment at each node.

    Args:
        config: the options.
    Raises:
        UserError: bad options or checkpoint, or a sentence without words.
    """
    data = SentimentModel.read_text(config.sentence)
    words = data.words_of(0)
    checkpoint = config.checkpoint or PRETRAINED[config.classes]
    prediction, model, trained = load_and_predict(SST, replace(config, checkpoint=checkpoint), data)
    classes = CLASSES[trained.classes]
    print(answer_text(answer_of(prediction, data, 0, classes)))
    for name, probability in zip(classes, prediction.probabilities.tolist(), strict=True):
        print(f"  {name:<16}  {probability:.4f}")
    if prediction.trees is None:
        print("this model induces no tree")
        return
    if len(words) > LONGEST_DRAWN:
        print(f"the tree has {len(words):,} words: not drawn, since it has more than {LONGEST_DRAWN}")
    else:
        [sentence] = data.sentences(0)
        values = node_values(model, sentence, prediction.trees[0])
        print(f"\n{tree_text(prediction.trees[0], words, _signs(values))}")
        print(f"\n{' '.join(SIGNS)}: from very negative to very positive")
    if config.heat_map is not None and prediction.attention is not None:
        draw_heat_map(config.heat_map, prediction.attention[0], words)


def run_sentence_trace(config: TraceConfig) -> None:
    """Show what a trained model does with a sentence; see `tasks.classifiers.commands.run_trace`.

    Args:
        config: the options.
    """
    checkpoint = config.checkpoint or PRETRAINED[config.classes]
    run_trace(SST, replace(config, checkpoint=checkpoint), SentimentModel.read_text(config.sentence))


def _signs(values: dict[Span, float]) -> dict[Span, str]:
    """A sign for each node except neutral words."""
    signs = {span: SIGNS[round(2 * value) + NEUTRAL] for span, value in values.items()}
    return {span: sign for span, sign in signs.items() if sign != "0" or span[0] < span[1]}


def run_stats(config: StatsConfig) -> None:
    """Print statistics of a treebank.

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
