"""The subcommands of the syntactic evaluation and their options."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from tasks.formatting.tables import count_text, terminal_width
from tasks.language_model.config import DEMO_CHECKPOINT
from tasks.language_model.grammar import generate_pairs
from tasks.language_model.model import Trained, load_model
from tasks.language_model.tokenization import Tokenization, Tokenizer
from tasks.language_model.vocabulary import END, UNKNOWN
from tasks.runs.command_line import Subcommand, run
from tasks.runs.command_options import PredictionsConfig, print_after
from tasks.runs.errors import UserError
from tasks.runs.files import prepare_output_file
from tasks.runs.options import MOST_EXAMPLES, check_at_least, check_text, check_unused
from tasks.runs.record import this_process
from tasks.runs.saved_config import config_to_dict
from tasks.syntax_eval.evaluation import ScoredComparison, Unknown, count_right, score_pairs
from tasks.syntax_eval.pairs import MinimalPair, read_pairs, spread
from tasks.syntax_eval.paper_table import PUBLISHED_MODELS
from tasks.syntax_eval.report import (
    FEW,
    FEW_MARK,
    PUBLISHED_NOTE,
    Line,
    construction_lines,
    lines_of,
    results_text,
    write_page,
)
from tasks.syntax_eval.scoring import word_log_probabilities


@dataclass(kw_only=True)
class ReadingConfig:
    """How sentences are read."""

    tokenization: Tokenization = "auto"
    """How sentences are split into words. `mikolov`: as in Mikolov's Penn Treebank text, in lower case,
    without punctuation, N for numbers. `treebank`: by the conventions of the Penn Treebank, with capital
    letters and punctuation as in the vocabulary. `spaces`: at spaces. `auto`: for each model the one that
    fits its vocabulary."""
    final_period: bool = True
    """With `treebank`: add a period to sentences without final punctuation, as in the evaluations of Marvin
    and Linzen and of ON-LSTM. These do not score the end of the sentence: add --no-end to do the same."""
    end: bool = True
    """Count the end of the sentence as a word, also after a period: log P(w_1 … w_n, <eos> | <eos>), not
    log P(w_1 … w_n | <eos>)."""

    @property
    def convention(self) -> str:
        """What is a log-probability, as a sentence without its period."""
        end = "and" if self.end else "without"
        words = f"the words {end} the end of the sentence"
        return f"Log-probability in nats of {words}, after <eos> and from a zero state"

    def tokenizers(self, models: Sequence[Trained]) -> list[Tokenizer]:
        """Make the tokenizer of each model.

        Args:
            models: the models.
        Raises:
            UserError: `--no-final-period` is given, but no model's tokenizer would add a period.
        """
        tokenizers = [
            Tokenizer(trained.vocabulary, self.tokenization, self.final_period) for trained in models
        ]
        if not any(tokenizer.tokenization == "treebank" for tokenizer in tokenizers):
            reason = f"where sentences are {tokenizers[0].description}"
            check_unused(self, ReadingConfig, {"final_period": reason})
        return tokenizers


@dataclass(kw_only=True)
class EvaluateConfig(ReadingConfig, PredictionsConfig):
    """Compute the accuracy on minimal pairs, such as Marvin and Linzen's or BLiMP.

    A model is right if the grammatical sentence is the more probable one.
    """

    checkpoint: tuple[Path, ...] = (DEMO_CHECKPOINT,)
    """The best.safetensors of one or more runs, directories that `export` wrote, or names of models on the
    Hugging Face Hub; each has a column, named after its directory."""
    pairs: Path | None = None
    """A JSON Lines file with the fields `good`, `bad` and, optionally, `construction`, `group` and
    `intrusive`; BLiMP's fields are read, too. Or a pickle of Marvin and Linzen (2018), or a directory of such
    files: BLiMP's `data`, Marvin and Linzen's `EMNLP2018/templates`. Files may be compressed (.gz, .bz2,
    .xz). The default, for models that were trained on generated sentences, is to generate pairs."""
    unknown: Unknown = "skip"
    """How to treat a pair with a word that a model does not know: skip the pair, or score the word as
    <unk>."""
    limit: int = 0
    """Maximum number of pairs to score for each construction, evenly spaced in the file; 0 for all."""
    count: int = 200
    """Number of pairs to generate for each construction."""
    seed: int = 1
    """Seed of generated pairs."""
    output: Path | None = None
    """Also write the results to this HTML file."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "count", largest=MOST_EXAMPLES)
        check_at_least(0, self, "limit", "seed")
        if self.pairs is not None:
            check_unused(self, EvaluateConfig, dict.fromkeys(("count", "seed"), "with --pairs"))
        if not self.checkpoint:
            raise UserError("--checkpoint must name at least one file")
        for path in self.checkpoint:
            if self.checkpoint.count(path) > 1:
                raise UserError(f"--checkpoint names {path} more than once")


@dataclass(kw_only=True)
class ScoreConfig(ReadingConfig):
    """Print the log-probability of sentences, and of each word given all words before it."""

    sentences: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Sentences, each in quotes, such as "the author laughs". They are read as those of `--pairs`."""
    checkpoint: Path = DEMO_CHECKPOINT
    """A run's best.safetensors, a directory that `export` wrote, or the name of a model on the Hugging Face
    Hub."""


def _evaluate(config: EvaluateConfig) -> None:
    config.set_up()
    names, models = column_names(config.checkpoint), [load_model(path) for path in config.checkpoint]
    pairs = _get_pairs(config, models)
    chosen = spread(pairs, config.limit)
    tokenizers = dict(zip(names, config.tokenizers(models), strict=True))
    prepare_output_file("--output", config.output)
    start = time.perf_counter()
    scored = score_pairs(
        models,
        chosen,
        tokenizers=list(tokenizers.values()),
        unknown=config.unknown,
        include_end=config.end,
    )
    seconds = time.perf_counter() - start
    tallies = count_right(scored, len(models))
    lines = lines_of(tallies, names)
    results: dict[str, Any] = {
        "models": {name: str(path) for name, path in zip(names, config.checkpoint, strict=True)},
        "tokenization": {name: tokenizer.tokenization for name, tokenizer in tokenizers.items()},
        "seconds": round(seconds, 2),
        "lines": lines,
        "constructions": construction_lines(tallies, names),
        "options": config_to_dict(config) | {"checkpoint": [str(path) for path in config.checkpoint]},
        "notes": _notes(config, tokenizers, scored, lines, len(pairs), len(chosen), seconds),
    }
    with print_after(results_text(results, terminal_width())):
        config.write(results)
        config.write_predictions(pair.row(names) for pair in scored)
        if config.output is not None:
            write_page(config.output, results, this_process(next(models[0].model.parameters()).device))
    if config.output is not None:
        print(f"page: {config.output}")
    if not any(tally.scored for tally in tallies.values()):
        skips = config.unknown == "skip"
        known = "only words that all models know and " if skips else ""
        can_read_all = all(UNKNOWN in trained.vocabulary for trained in models)
        hint = f"; --unknown score reads unknown words as {UNKNOWN}" if skips and can_read_all else ""
        raise UserError(
            f"nothing could be scored: none of {count_text(len(chosen), 'pair')} has {known}sentences that "
            f"all models distinguish{hint}"
        )


def _score(config: ScoreConfig) -> None:
    if not config.sentences:
        raise UserError('give one or more sentences, each in quotes: "the author laughs"')
    trained = load_model(config.checkpoint)
    (tokenizer,) = config.tokenizers([trained])
    for number, text in enumerate(config.sentences, 1):
        check_text(text, f"sentence {number}")
        words = tokenizer(text)
        if not words:
            raise UserError(f"sentence {number} has no words: {text!r}")
        encoded = trained.vocabulary.encode(words, f"sentence {number}")
        log_probabilities = word_log_probabilities(trained.model, encoded).tolist()
        labels = [word if word in trained.vocabulary else f"{word} ({UNKNOWN})" for word in words]
        if config.end:
            labels.append(END)
        else:
            log_probabilities.pop()
        print(f"{sum(log_probabilities):10.4f}  {' '.join(words)}")
        for word, value in zip(labels, log_probabilities, strict=True):
            print(f"{value:10.4f}    {word}")
    print(f"{config.convention}. Sentences are {tokenizer.description}.")


def column_names(checkpoints: Sequence[Path]) -> list[str]:
    """Name each checkpoint after its directory or, if two have the same name, by its path.

    Args:
        checkpoints: paths of files or directories, or names on the Hugging Face Hub.
    """
    names = [(path.parent if path.suffix == ".safetensors" else path).resolve().name for path in checkpoints]
    return [
        str(path) if names.count(name) > 1 else name for name, path in zip(names, checkpoints, strict=True)
    ]


def _get_pairs(config: EvaluateConfig, models: Sequence[Trained]) -> list[MinimalPair]:
    """Read the pairs, or generate them from the grammar that the models were trained on."""
    if config.pairs is not None:
        return read_pairs(config.pairs)
    for path, trained in zip(config.checkpoint, models, strict=True):
        if trained.config.data_dir is not None:
            raise UserError(f"--pairs must name a file: {path} was not trained on generated sentences")
    return [
        MinimalPair(pair.construction, " ".join(pair.good), " ".join(pair.bad))
        for pair in generate_pairs(config.count, config.seed)
    ]


def _notes(
    config: EvaluateConfig,
    tokenizers: Mapping[str, Tokenizer],
    scored: Sequence[ScoredComparison],
    lines: Sequence[Line],
    num_read: int,
    num_used: int,
    seconds: float,
) -> list[str]:
    """The data and conventions, in sentences."""
    covered = sum(pair.covered for pair in scored)
    compared = [pair for pair in scored if pair.log_probabilities is not None]
    source = f"{count_text(num_read, 'pair')} {'generated' if config.pairs is None else f'in {config.pairs}'}"
    if config.limit:
        source += f"; {num_used:,} of them used (--limit {config.limit} for each construction, evenly spaced)"
    notes = [
        f"{source}.",
        f"{count_text(len(scored), 'comparison')} of two sentences; {covered:,} covered (all models know all "
        f"words); {len(compared):,} scored in {seconds:.1f} s.",
    ]
    in_unknown = sum(pair.differs_in_unknown for pair in compared)
    if in_unknown:
        compare = "compares" if in_unknown == 1 else "compare"
        notes.append(f"{in_unknown:,} of the scored ones {compare} a word with {UNKNOWN}.")
    num_equal = (covered if config.unknown == "skip" else len(scored)) - len(compared)
    if num_equal:
        notes.append(f"{num_equal:,} not comparable: to a model, both sentences are the same.")
    notes += [
        "Comparisons with unknown words are skipped."
        if config.unknown == "skip"
        else f"Unknown words are read as {UNKNOWN}.",
        f"{config.convention}; two sentences with the same probability count as wrong.",
        "The accuracy of a row is over all its scored comparisons; that of a section or group is the "
        "unweighted mean of its rows with scored comparisons, in published columns, too.",
    ]
    if config.pairs is None:
        notes.append("The grammar is small: generated training text has some of the good sentences, too.")
    else:
        notes += _tokenization_notes(tokenizers)
    num_few = sum(line["few"] for line in lines if line["level"] == 0)
    if num_few:
        notes.append(
            f"{FEW_MARK} fewer than {FEW} scored comparisons: {count_text(num_few, 'row')}, included in the "
            "means."
        )
    if any(name in PUBLISHED_MODELS for line in lines for name in line["accuracy"]):
        notes.append(PUBLISHED_NOTE)
    return notes


def _tokenization_notes(tokenizers: Mapping[str, Tokenizer]) -> list[str]:
    """Describe each tokenization that is used, in one sentence."""
    models: dict[str, list[str]] = {}
    for name, tokenizer in tokenizers.items():
        models.setdefault(tokenizer.description, []).append(name)
    if len(models) == 1:
        return [f"Sentences are {description}." for description in models]
    return [f"For {', '.join(names)}, sentences are {description}." for description, names in models.items()]


SUBCOMMANDS = {"evaluate": Subcommand(EvaluateConfig, _evaluate), "score": Subcommand(ScoreConfig, _score)}

main = partial(run, "tasks.syntax_eval", SUBCOMMANDS)
