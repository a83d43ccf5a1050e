"""The subcommands of language modeling and their options."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from tasks.formatting.tables import count_text, number
from tasks.language_model.config import DEMO_CHECKPOINT, LanguageModelConfig, presets_of
from tasks.language_model.corpus import encode_text, generate_held_out, load_corpus, read_sentences
from tasks.language_model.model import load_model
from tasks.language_model.report import results_text
from tasks.language_model.samples import COUNT, LONGEST, sample_sentences
from tasks.language_model.task import filled_columns, perplexity, train, word_losses
from tasks.language_model.tokenization import Tokenizer
from tasks.language_model.vocabulary import UNKNOWN, Vocabulary
from tasks.runs.command_line import Subcommand, run
from tasks.runs.command_options import PredictionsConfig, ThreadsConfig, print_after
from tasks.runs.errors import UserError
from tasks.runs.files import check_writable_file, write_or_print
from tasks.runs.hub import ExportConfig, model_card_values
from tasks.runs.options import MOST_EXAMPLES, check_at_least, check_only_one, check_positive, check_text
from tasks.runs.text_files import find_file


@dataclass
class EvaluateConfig(PredictionsConfig):
    """Compute the perplexity of a trained model on a text."""

    checkpoint: Path = DEMO_CHECKPOINT
    """A run's best.safetensors, a directory that `export` wrote, or the name of a model on the Hugging Face
    Hub."""
    text: Path | None = None
    """A file with one sentence per line, words separated by spaces, possibly compressed (.gz, .bz2, .xz); by
    default the test text of the run."""
    data_dir: Path | None = None
    """Directory with the text of the run, if it has moved since training."""
    columns: int = 1
    """Split the text into this many parts and evaluate them in one batch. This is faster, but all parts
    except the first start without context."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "columns")
        check_only_one(self, "text", "data_dir")


@dataclass
class GenerateConfig(ThreadsConfig):
    """Generate sentences: sample them word by word from a trained model."""

    checkpoint: Path = DEMO_CHECKPOINT
    """A run's best.safetensors, a directory that `export` wrote, or the name of a model on the Hugging Face
    Hub."""
    count: int = COUNT
    """Number of sentences."""
    start: str = ""
    """Words that every sentence begins with, such as "the dog doesn't"."""
    temperature: float = 1.0
    """Divide the logits by this. Below 1, probable words become more probable."""
    max_words: int = LONGEST
    """Maximum number of words to generate for a sentence. A sentence that is cut off ends with "…"."""
    seed: int = 1
    """Random seed."""
    output: Path | None = None
    """Write the sentences to this file, one per line; by default they are printed."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "count", largest=MOST_EXAMPLES)
        check_at_least(1, self, "max_words")
        check_at_least(0, self, "seed")
        check_positive(self, "temperature")
        check_text(self.start, "--start")
        check_writable_file("--output", self.output)


def _evaluate(config: EvaluateConfig) -> None:
    config.set_up()
    model, vocabulary, trained = load_model(config.checkpoint)
    directory = config.data_dir or trained.data_dir
    if config.text is None and config.data_dir is None and directory is not None and not directory.exists():
        raise UserError(f"{directory}: the text of the run is not here; --data-dir names its directory")
    path = config.text or (find_file(directory / "test.txt") if directory is not None else None)
    if path is not None:
        sentences = read_sentences(path)
        text = encode_text(sentences, vocabulary, str(path))
    else:
        corpus = load_corpus(trained, None if trained.initial_weights is None else vocabulary)
        if corpus.vocabulary.words != vocabulary.words:
            raise UserError(f"{config.checkpoint}: its vocabulary is not that of the sentences generated now")
        _, test = generate_held_out(trained)
        sentences, text = [sentence.words for sentence in test], corpus.test
    coverage, columns = vocabulary.coverage(sentences), filled_columns(len(text), config.columns)
    losses = word_losses(model, text, trained, columns)
    loss = float(losses.mean())
    results = {
        "words": len(text),
        "loss": loss,
        "perplexity": perplexity(loss),
        "coverage": coverage.known_fraction,
        "unknown": coverage.unknown,
        "columns": columns,
    }
    cut = f", in {columns:,} columns that start without context" if columns > 1 else ""
    with print_after(
        f"perplexity {number(results['perplexity'], 2)} ({loss:.4f} nats per word) on "
        f"{count_text(len(text), 'word')}, ends of sentences included{cut}; {coverage}"
    ):
        config.write(results)
        config.write_predictions(_rows(sentences, text, losses, vocabulary))


def _generate(config: GenerateConfig) -> None:
    config.set_up()
    trained = load_model(config.checkpoint)
    start = Tokenizer(trained.vocabulary, final_period=False)(config.start)
    sentences = sample_sentences(
        trained,
        config.seed,
        count=config.count,
        max_words=config.max_words,
        temperature=config.temperature,
        start=start,
    )
    unknown = [word for word in dict.fromkeys(start) if word not in trained.vocabulary]
    if unknown:
        print(f"warning: --start: the model reads {' '.join(unknown)} as {UNKNOWN}", file=sys.stderr)
    content = "".join(" ".join(words) + "\n" for words in sentences)
    write_or_print(config.output, content)


def _export(config: ExportConfig) -> None:
    config.check()
    checkpoint = config.checkpoint or DEMO_CHECKPOINT
    trained = load_model(checkpoint)
    values = model_card_values("language_model", checkpoint, trained.config, presets_of, results_text)
    trained.save_pretrained(config.directory, **values)
    name = type(trained.model).__name__
    print(f"{config.directory}: {name}.from_pretrained({str(config.directory)!r}) loads it")


def _rows(
    sentences: Sequence[Sequence[str]], text: Tensor, losses: Tensor, vocabulary: Vocabulary
) -> Iterator[dict[str, Any]]:
    """For each sentence its words as the model reads them, and their log-probabilities, as JSON values."""
    lengths = [len(sentence) + 1 for sentence in sentences]  # with <eos>
    for ids, sentence_losses in zip(text.split(lengths), losses.split(lengths), strict=True):
        words = [vocabulary.words[i] for i in ids.tolist()]
        yield {"words": words, "log_probabilities": [round(-loss, 6) for loss in sentence_losses.tolist()]}


SUBCOMMANDS = {
    "train": Subcommand(LanguageModelConfig, train, presets_of),
    "evaluate": Subcommand(EvaluateConfig, _evaluate),
    "generate": Subcommand(GenerateConfig, _generate),
    "export": Subcommand(ExportConfig, _export),
}

main = partial(run, "tasks.language_model", SUBCOMMANDS)
