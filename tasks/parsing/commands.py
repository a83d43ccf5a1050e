"""The verbs of the command line: evaluate, parse, trace."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro
from tqdm import tqdm

from ordered_memory.draw import distances_figure, distances_text, tree_text
from ordered_memory.span_f1 import CORPUS_LEVEL, SENTENCE_LEVEL
from ordered_memory.tree_recovery import DECODINGS, Decoding
from tasks.language_model.config import DEMO_CHECKPOINT
from tasks.language_model.corpus import draw_parts
from tasks.language_model.model import Trained
from tasks.language_model.ptb_spelling import coverage, spell
from tasks.language_model.reading import (
    ABOUT,
    LONGEST_TRACED,
    UNITS,
    layers_of,
    load_with_distances,
    read_sentence,
    read_sentences,
    split_sentence,
    trace_sentence,
)
from tasks.parsing.evaluation import decode, evaluate
from tasks.parsing.report import results_text, write_page
from tasks.parsing.treebank import Sentence, Treebank, read_treebank
from tasks.reporting.drawing import LONGEST_DRAWN, figure_png
from tasks.reporting.traces import FilesConfig
from tasks.runs.errors import UserError
from tasks.runs.evaluation import ResultsConfig
from tasks.runs.files import check_writable_file, write_atomically
from tasks.runs.options import check_at_least
from tasks.runs.record import this_process
from tasks.runs.run_directory import config_to_dict

TEMPERATURES = (1e-6, 1e6)
NAMES = {"onlstm": "ON-LSTM", "prpn": "PRPN"}

DROPPED = "Punctuation, currency signs and null elements are dropped by their tags, neither read nor scored"
KEPT = "Punctuation and currency signs are kept, null elements dropped"
NONE_DRAWN = "The drawn sentences have no punctuation"


@dataclass
class ModelConfig:
    """The trained model, and what is decoded."""

    checkpoint: Path = DEMO_CHECKPOINT
    """A language model of ON-LSTM layers, or PRPN: a run's best.safetensors."""
    layer: int | None = None
    """Only this layer, from 1; by default all. PRPN's parsing network counts as one."""
    temperature: float = 1.0
    """CKY's temperature: divides distances, which are in master-gate entries for ON-LSTM and in (0, 1) for
    PRPN."""

    def check(self) -> None:
        """Raise a UserError for an option out of range."""
        lowest, highest = TEMPERATURES
        if not lowest <= self.temperature <= highest:
            raise UserError(f"--temperature must lie in [{lowest:g}, {highest:g}], got {self.temperature}")


@dataclass
class EvaluateConfig(ModelConfig, ResultsConfig):
    """Score the trees of every layer of a language model, and baselines: span F1, recall by label, depth."""

    treebank: Path | None = None
    """True trees in the Penn Treebank's bracket format: a file, a directory of .mrg, .tree and .ptb (or else
    .txt) files at any depth, or a .zip of them such as NLTK's treebank.zip, of at most 1 GiB unpacked. By
    default, for a model of drawn sentences, their test part."""
    max_words: int | None = None
    """Leave out longer sentences; dropped words do not count."""
    keep_punctuation: bool = False
    """Read and score the words of every tag, punctuation and currency signs included."""
    output: Path | None = None
    """The page to write; by default parsing.html beside the checkpoint."""


@dataclass(kw_only=True)
class SentenceConfig(ModelConfig):
    """What is read."""

    sentence: Annotated[str, tyro.conf.Positional]
    """Words between spaces, without punctuation, such as "the cat does n't sleep"."""


@dataclass(kw_only=True)
class ParseConfig(SentenceConfig):
    """Show the distances of a sentence in every layer, and the trees decoded from them."""

    decoding: Decoding | None = None
    """Only this decoding of distances; by default all, and prpn for the plot."""
    plot: Path | None = None
    """Also draw distances and trees to this PNG file."""


@dataclass(kw_only=True)
class TraceConfig(SentenceConfig, FilesConfig):
    """Tell what the model does with a sentence: distances in every layer, and all trees decoded from them."""


class GoldSentences(NamedTuple):
    """Sentences with true trees, and facts about them for the report.

    Args:
        sentences: the sentences to score.
        source: where they come from.
        punctuation: how punctuation was handled.
        empty: number of trees without words.
        too_long: number of sentences with too many words.
        dropped_tags: number of dropped words by tag, null elements excluded.
        unknown_tags: those of them whose tags the Penn Treebank does not have.
        published: whether to show published results for comparison.
    """

    sentences: list[Sentence]
    source: str
    punctuation: str
    empty: int
    too_long: int
    dropped_tags: dict[str, int]
    unknown_tags: dict[str, int]
    published: bool


def run_evaluate(config: EvaluateConfig) -> None:
    """Print the tables of a model on a treebank, and write the page.

    Args:
        config: the options.
    Raises:
        UserError: bad options, checkpoint or treebank.
    """
    config.set_up()
    config.check()
    check_at_least(1, config, "max_words")
    trained = load_with_distances(config.checkpoint)
    layers = _layers(config.layer, trained)
    gold = gold_sentences(config, trained)
    output = config.output or config.checkpoint.with_name("parsing.html")
    output.parent.mkdir(parents=True, exist_ok=True)
    check_writable_file("--output", output)
    texts = [sentence.words for sentence in gold.sentences]
    places = [sentence.where for sentence in gold.sentences]
    with tqdm(total=len(texts), unit=" sentences", disable=None, leave=False) as bar:
        distances = read_sentences(trained, texts, places, bar.update)
    evaluation = evaluate(gold.sentences, distances, layers, config.temperature)
    spelt = [spell(words, trained.vocabulary) for words in texts]
    results: dict[str, Any] = {
        "model": NAMES[trained.config.model],
        "unit": UNITS[trained.config.model],
        **{name: value for name, value in gold._asdict().items() if name != "sentences"},
        "conventions": {"f1_corpus": str(CORPUS_LEVEL), "f1_sentence": str(SENTENCE_LEVEL)},
        "coverage": coverage(spelt, trained.vocabulary),
        "config": config_to_dict(config),
        **evaluation.summary(),
    }
    print(results_text(results))
    write_page(output, results, evaluation, this_process(next(trained.model.parameters()).device))
    print(f"\nreport: {output}")
    config.write(results)


def gold_sentences(config: EvaluateConfig, trained: Trained) -> GoldSentences:
    """The sentences to parse: a treebank's, or the test part of the sentences drawn for the model's run.

    Args:
        config: names the treebank.
        trained: the model, with the configuration of its run.
    Returns:
        One sentence or more.
    Raises:
        UserError: no treebank is named although the model was trained on a text, or there are no sentences.
    """
    if config.treebank is not None:
        treebank = read_treebank(config.treebank, config.keep_punctuation)
        source, punctuation = f"{config.treebank}", KEPT if config.keep_punctuation else DROPPED
    elif trained.config.data_dir is None:
        _, _, drawn = draw_parts(trained.config)
        sentences = [Sentence(*one, f"drawn sentence {i}") for i, one in enumerate(drawn, start=1)]
        treebank = Treebank(sentences, 0, Counter())
        source, punctuation = "the test part of the sentences that the model's run drew", NONE_DRAWN
    else:
        raise UserError("--treebank must name true trees: the model was trained on a text, which has none")
    found = treebank.sentences
    longest = config.max_words or max(len(sentence.words) for sentence in found)
    fitting = [sentence for sentence in found if len(sentence.words) <= longest]
    if not fitting:
        raise UserError(f"--max-words {longest} leaves none of {len(found):,} sentences")
    return GoldSentences(
        fitting,
        source,
        punctuation,
        empty=treebank.empty,
        too_long=len(found) - len(fitting),
        dropped_tags=dict(treebank.dropped.most_common()),
        unknown_tags=treebank.unknown,
        published=config.treebank is not None,
    )


def run_parse(config: ParseConfig) -> None:
    """Print distances and trees of one sentence.

    Args:
        config: the options.
    Raises:
        UserError: bad options or checkpoint, or a sentence of too many words.
    """
    if config.plot is not None:
        config.plot.parent.mkdir(parents=True, exist_ok=True)
        check_writable_file("--plot", config.plot)
    words, trained, layers = _prepare(config, LONGEST_DRAWN)
    distances, read = read_sentence(trained, words, layers)
    print(f"read as: {' '.join(read)}")
    decodings = DECODINGS if config.decoding is None else (config.decoding,)
    for layer, d in zip(layers, distances, strict=True):
        print(f"\nlayer {layer}: distances {UNITS[trained.config.model]}")
        print(distances_text(d.tolist(), words))
        for decoding in decodings:
            (tree,) = decode([d], decoding, config.temperature)
            print(f"\nlayer {layer}, {decoding}\n{tree_text(tree, words)}")
    if config.plot is not None:
        trees = decode(list(distances), decodings[0], config.temperature)
        names = [f"layer {layer}, {decodings[0]}" for layer in layers]
        write_atomically(config.plot, figure_png(distances_figure(distances, words, trees, names)))
        print(f"\nplot: {config.plot}")


def run_trace(config: TraceConfig) -> None:
    """Tell what a model does with one sentence.

    Args:
        config: the options.
    Raises:
        UserError: bad options or checkpoint, or a sentence of too many words.
    """
    config.check_files()
    words, trained, layers = _prepare(config, LONGEST_TRACED)
    trace = trace_sentence(trained, words, layers, config.temperature)
    config.write([trace], f"A sentence read by {NAMES[trained.config.model]}", ABOUT)


def _prepare(config: SentenceConfig, longest: int) -> tuple[list[str], Trained, list[int]]:
    """A sentence of at most so many words, the model that reads it, and the layers to look at."""
    config.check()
    words = split_sentence(config.sentence, longest)
    trained = load_with_distances(config.checkpoint)
    return words, trained, _layers(config.layer, trained)


def _layers(layer: int | None, trained: Trained) -> list[int]:
    """The layers to look at, from 1."""
    layers = layers_of(trained)
    if layer is not None and layer not in layers:
        raise UserError(f"--layer must lie in 1..{len(layers)}, the model's layers, got {layer}")
    return layers if layer is None else [layer]
