"""The subcommands of the parsing task and their options; score is in `score.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from ordered_memory.brackets import to_brackets
from ordered_memory.cky import LONGEST_CKY
from ordered_memory.draw import distances_figure, distances_text, tree_text
from ordered_memory.tree_recovery import DECODINGS, Decoding
from tasks.formatting.tables import terminal_width
from tasks.language_model.config import DEMO_CHECKPOINT
from tasks.language_model.corpus import read_sentences
from tasks.language_model.model import Trained
from tasks.language_model.ptb_spelling import spell
from tasks.language_model.reading import (
    ABOUT,
    DISTANCES,
    LONGEST_TRACED,
    distances_and_words,
    distances_of_sentences,
    layers_of,
    load_with_distances,
    split_sentence,
    trace_sentence,
)
from tasks.language_model.tokenization import Tokenization, Tokenizer
from tasks.parsing.evaluation import decode, evaluate
from tasks.parsing.gold import TreebankConfig, generated_gold
from tasks.parsing.report import CONVENTION_NAMES, results_text, write_page
from tasks.parsing.score import SCORE
from tasks.reporting.drawing import LONGEST_DRAWN, figure_png
from tasks.reporting.traces import FilesConfig
from tasks.runs.command_line import Subcommand, run
from tasks.runs.command_options import CommandConfig, PredictionsConfig, ThreadsConfig, print_after
from tasks.runs.errors import UserError
from tasks.runs.files import (
    check_writable_file,
    prepare_output_file,
    write_atomically,
    write_or_print,
)
from tasks.runs.options import check_unused
from tasks.runs.record import this_process
from tasks.runs.saved_config import config_to_dict
from tasks.spelling.escapes import escape_parentheses

TEMPERATURES = (1e-6, 1e6)
"""Bounds of `--temperature`. Far beyond them, the scores that CKY compares overflow, or are rounded to the
same number."""


@dataclass
class ModelConfig(CommandConfig):
    """Trained model and decoding."""

    checkpoint: Path = DEMO_CHECKPOINT
    """A run's best.safetensors, a directory that `export` wrote, or the name of a model on the Hugging Face
    Hub: an ON-LSTM or PRPN language model."""
    layer: int | None = None
    """Use only this layer, counted from 1; by default all layers. PRPN has a single layer: its parsing
    network."""
    temperature: float | None = None
    """Temperature of CKY, by which distances are divided; by default 1 for ON-LSTM, whose distances are in
    master-gate entries, and 0.01 for PRPN, whose distances lie in (0, 1)."""

    def check(self) -> None:
        super().check()
        lowest, highest = TEMPERATURES
        if self.temperature is not None and not lowest <= self.temperature <= highest:
            raise UserError(f"--temperature must lie in [{lowest:g}, {highest:g}], got {self.temperature}")

    def temperature_for(self, trained: Trained) -> float:
        """The temperature that is given, or else the default one of the model.

        Args:
            trained: a model with distances.
        """
        return self.temperature or DISTANCES[trained.config.model].temperature


@dataclass(kw_only=True)
class EvaluateConfig(ModelConfig, TreebankConfig, PredictionsConfig):
    """Evaluate the trees of all layers of a language model: span F1, recall by label, depth; baselines."""

    treebank: Path | None = None
    """True trees in the Penn Treebank's bracket format: a file, a directory (searched recursively) of .mrg,
    .tree and .ptb files or, if it has none, of .txt files, or a .zip of such files, such as NLTK's
    treebank.zip. Files may be compressed (.gz, .bz2, .xz). Together they may hold at most 1 GiB of text. The
    default, for a model that was trained on generated sentences, is the test part of these sentences."""
    output: Path | None = None
    """The HTML page to write; by default parsing.html in the directory of the checkpoint or, for a model on
    the Hugging Face Hub, in the current directory."""

    def check(self) -> None:
        super().check()
        if self.treebank is None:
            options = ("keep_punctuation", "drop_tags")
            check_unused(self, EvaluateConfig, dict.fromkeys(options, "without --treebank"))


@dataclass(kw_only=True)
class SentenceConfig(ModelConfig):
    """Input."""

    sentence: Annotated[str, tyro.conf.Positional]
    """A sentence, such as "the cat doesn't sleep"."""
    tokenization: Tokenization = "auto"
    """How the sentence is split into words, as in tasks.syntax_eval; `auto`: as the text that the model was
    trained on. `spaces`: at spaces."""


@dataclass(kw_only=True)
class ParseConfig(SentenceConfig):
    """Print the distances of a sentence in all layers, and the trees decoded from them."""

    decoding: Decoding | None = None
    """Use only this algorithm to decode distances; by default all algorithms, and prpn for the plot."""
    plot: Path | None = None
    """Also plot distances and trees to this PNG file."""

    def check(self) -> None:
        super().check()
        if self.decoding not in ("cky", None):
            check_unused(self, ParseConfig, {"temperature": f"with --decoding {self.decoding}"})


@dataclass(kw_only=True)
class TreesConfig(ModelConfig, ThreadsConfig):
    """Parse a text: print the tree of each sentence in brackets, one per line."""

    text: Annotated[Path, tyro.conf.Positional]
    """A file with one sentence per line, words separated by spaces, without punctuation; or natural text,
    with --tokenization auto. It may be compressed (.gz, .bz2, .xz)."""
    tokenization: Tokenization = "spaces"
    """How lines are split into the words of the trees, as for parse."""
    layer: int | None = None
    """The layer whose distances are decoded, counted from 1; by default the middle one (2 of 3), as in the
    paper."""
    decoding: Decoding = DECODINGS[0]
    """The algorithm that decodes distances."""
    output: Path | None = None
    """Write the trees to this file; by default they are printed."""

    def check(self) -> None:
        super().check()
        check_writable_file("--output", self.output)
        if self.decoding != "cky":
            check_unused(self, TreesConfig, {"temperature": f"with --decoding {self.decoding}"})


@dataclass(kw_only=True)
class TraceConfig(SentenceConfig, FilesConfig):
    """Show what the model does with a sentence: distances in all layers, and all trees decoded from them."""


def _evaluate(config: EvaluateConfig) -> None:
    config.set_up()
    trained = load_with_distances(config.checkpoint)
    layers = _layers(config.layer, trained)
    if config.treebank is not None:
        gold = config.read_gold(config.treebank)
    else:
        gold = generated_gold(trained.config)
    gold = gold.at_most(config.max_words)
    texts = [sentence.words for sentence in gold.sentences]
    locations = [sentence.where for sentence in gold.sentences]
    _check_lengths(texts, locations, "--max-words leaves out longer sentences")
    output = config.output or _default_output(config.checkpoint)
    prepare_output_file("--output", output)
    distances = distances_of_sentences(trained, texts, locations)
    kind, temperature = DISTANCES[trained.config.model], config.temperature_for(trained)
    evaluation = evaluate(gold.sentences, distances, layers, temperature, gold.labels)
    spelled = [spell(words, trained.vocabulary) for words in texts]
    has_punctuation = Tokenizer(trained.vocabulary).tokenization == "treebank"
    results: dict[str, Any] = {
        "model": kind.name,
        "unit": kind.unit,
        **gold.facts(),
        "lacks_punctuation": has_punctuation and bool(gold.treebank.dropped),
        "conventions": CONVENTION_NAMES,
        "coverage": trained.vocabulary.coverage(spelled).known_fraction,
        "config": config_to_dict(config) | {"temperature": temperature},
        **evaluation.summary(),
    }
    with print_after(results_text(results, terminal_width())):
        config.write(results)
        config.write_predictions(evaluation.rows())
        write_page(output, results, evaluation, this_process(next(trained.model.parameters()).device))
    print(f"\nreport: {output}")


def _default_output(checkpoint: Path) -> Path:
    """The default of `--output`."""
    if checkpoint.is_dir():  # that `export` wrote
        return checkpoint / "parsing.html"
    return checkpoint.with_name("parsing.html") if checkpoint.is_file() else Path("parsing.html")


def _parse(config: ParseConfig) -> None:
    words, trained, layers = _prepare(config, LONGEST_DRAWN)
    prepare_output_file("--plot", config.plot)
    distances, words_read = distances_and_words(trained, words, layers)
    unit, temperature = DISTANCES[trained.config.model].unit, config.temperature_for(trained)
    print(f"read as: {' '.join(words_read)}")
    decodings = DECODINGS if config.decoding is None else (config.decoding,)
    for layer, d in zip(layers, distances, strict=True):
        print(f"\nlayer {layer}: distances {unit}")
        print(distances_text(d.tolist(), words))
        for decoding in decodings:
            (tree,) = decode([d], decoding, temperature)
            print(f"\nlayer {layer}, {decoding}\n{tree_text(tree, words)}")
    if config.plot is not None:
        trees = decode(list(distances), decodings[0], temperature)
        names = [f"layer {layer}, {decodings[0]}" for layer in layers]
        write_atomically(config.plot, figure_png(distances_figure(distances, words, trees, names)))
        print(f"\nplot: {config.plot}")


def _trees(config: TreesConfig) -> None:
    config.set_up()
    trained = load_with_distances(config.checkpoint)
    layers = layers_of(trained)
    (layer,) = _layers(layers[len(layers) // 2] if config.layer is None else config.layer, trained)
    tokenizer = Tokenizer(trained.vocabulary, config.tokenization, final_period=False)
    sentences = [tokenizer(" ".join(words)) for words in read_sentences(config.text)]
    indices = [i for i, words in enumerate(sentences) if words]  # an empty line has no tree
    texts = [sentences[i] for i in indices]
    locations = [f"{config.text}, line {i + 1}" for i in indices]
    if config.decoding == "cky":
        _check_lengths(texts, locations, "--decoding names other algorithms")
    distances = distances_of_sentences(trained, texts, locations)
    tree_lines = [""] * len(sentences)
    for i, words, d in zip(indices, texts, distances, strict=True):
        (tree,) = decode([d[layer - 1]], config.decoding, config.temperature_for(trained))
        tree_lines[i] = to_brackets(tree, escape_parentheses(words))
    content = "\n".join(tree_lines) + "\n"
    write_or_print(config.output, content)


def _trace(config: TraceConfig) -> None:
    words, trained, layers = _prepare(config, LONGEST_TRACED)
    trace = trace_sentence(trained, words, layers, config.temperature)
    config.write([trace], f"A sentence read by {DISTANCES[trained.config.model].name}", ABOUT)


def _prepare(config: SentenceConfig, max_words: int) -> tuple[list[str], Trained, list[int]]:
    """Check the sentence, and load the model; return words, model and layers."""
    config.check()
    trained = load_with_distances(config.checkpoint)
    tokenizer = Tokenizer(trained.vocabulary, config.tokenization, final_period=False)
    words = split_sentence(config.sentence, tokenizer, max_words)
    return words, trained, _layers(config.layer, trained)


def _check_lengths(sentences: Sequence[Sequence[str]], locations: Sequence[str], hint: str) -> None:
    """Refuse sentences for which CKY would take all memory."""
    for words, where in zip(sentences, locations, strict=True):
        if len(words) > LONGEST_CKY:
            raise UserError(f"{where}: CKY takes at most {LONGEST_CKY} words, got {len(words):,}; {hint}")


def _layers(layer: int | None, trained: Trained) -> list[int]:
    """The layers to use, counted from 1."""
    layers = layers_of(trained)
    if layer is not None and layer not in layers:
        raise UserError(f"--layer must be in 1..{len(layers)}, got {layer}")
    return layers if layer is None else [layer]


SUBCOMMANDS = {
    "evaluate": Subcommand(EvaluateConfig, _evaluate),
    "parse": Subcommand(ParseConfig, _parse),
    "trees": Subcommand(TreesConfig, _trees),
    "score": SCORE,
    "trace": Subcommand(TraceConfig, _trace),
}

main = partial(run, "tasks.parsing", SUBCOMMANDS)
