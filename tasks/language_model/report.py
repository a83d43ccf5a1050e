"""The final report of a language model: a table in the terminal, and an HTML page."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ordered_memory.trace import Trace, add_true_tree
from ordered_memory.trees import depth
from tasks.formatting.tables import count_text, number, text_table, wrap
from tasks.language_model.corpus import generate_held_out, split_text
from tasks.language_model.model import Trained
from tasks.language_model.reading import ABOUT, DISTANCES, layers_of, trace_sentence
from tasks.language_model.samples import EMPTY, sample_sentences
from tasks.language_model.vocabulary import UNKNOWN
from tasks.reporting.examples import choose_examples
from tasks.reporting.report import Report, Table, best_epoch, learning_curves, write_report
from tasks.runs.record import run_facts
from tasks.runs.run_directory import RunDirectory
from tasks.runs.saved_config import config_to_dict

COLUMNS = ["text", "perplexity", "unigram perplexity", "nats per word", "words", UNKNOWN]
NO_CONTEXT = (
    "The test perplexity is not below the unigram perplexity: the model has not learned to use the preceding "
    "words, and its trees, if it has any, mean nothing. Train longer or, if the training loss does not fall, "
    "with a smaller --learning-rate."
)


def results_text(results: dict[str, Any]) -> str:
    """Format the results of a run as plain text.

    Args:
        results: the content of results.json.
    """
    rows = [
        [split, number(ppl, 2), number(unigram, 2), f"{loss:.4f}", f"{words:,}", number(unknown, 0)]
        for split, ppl, unigram, loss, words, unknown in _rows(results)
    ]
    lines = [f"{results['parameters']:,} parameters", text_table(COLUMNS, rows)]
    if not _uses_context(results):
        lines += wrap(NO_CONTEXT)
    return "\n".join(lines)


def perplexities(results: dict[str, Any]) -> dict[str, float]:
    """The numbers that are summarized over several seeds, by name.

    Args:
        results: the content of results.json.
    """
    return {f"{part} perplexity": results[f"{part}_perplexity"] for part in ("validation", "test")}


def write_run_report(
    run: RunDirectory, trained: Trained, results: dict[str, Any], validation: Tensor, columns: int
) -> None:
    """Write report.html: learning curves, perplexities, samples, and trees of validation sentences.

    Args:
        run: the run directory.
        trained: the model with the best weights.
        results: results of these weights.
        validation: word ids of the validation text, (N,) int64.
        columns: number of parts into which it was split during training.
    """
    config, rows = trained.config, run.read_history()
    report = Report(
        title=f"Language model: {config.model}",
        about=ABOUT,
        subtitle=(
            f"Test perplexity {number(results['test_perplexity'], 2)} on {results['test_tokens']:,} words "
            f"{best_epoch(rows)}."
        ),
        curves=learning_curves(rows),
        tables=[
            Table(
                title="Perplexity",
                columns=COLUMNS,
                rows=_rows(results),
                note=("" if _uses_context(results) else f"{NO_CONTEXT} ")
                + "Unigram perplexity: the perplexity under the word frequencies of the training text, with "
                f"add-one smoothing. The end of a sentence counts as a word, and so does {UNKNOWN}; the last "
                f"column has the number of {UNKNOWN}. Perplexities can be compared only between models with "
                f"the same vocabulary: where it is smaller, more words are {UNKNOWN}. Each text is read from "
                "start to end. "
                "In the learning curves, the validation text is split into "
                f"{count_text(columns, 'part')}, each of which starts without context.",
            )
        ],
        traces=_traces(trained, validation),
        samples=[" ".join(words) or EMPTY for words in sample_sentences(trained)],
        facts=run_facts(run),
        config=config_to_dict(config),
    )
    write_report(run.report, report)


def _traces(trained: Trained, validation: Tensor) -> list[Trace]:
    """Traces of some validation sentences, with the true trees if they were generated; none for an LSTM."""
    if trained.config.model not in DISTANCES:
        return []
    words = split_text(validation, trained.vocabulary)
    trees = None
    if trained.config.data_dir is None:
        trees = [sentence.tree for sentence in generate_held_out(trained.config)[0]]
    depths = [0] * len(words) if trees is None else [depth(tree) for tree in trees]
    traces = []
    for example, index in enumerate(choose_examples([len(sentence) for sentence in words], depths)):
        trace = trace_sentence(trained, words[index], layers_of(trained))
        trace["example"] = example
        if trees is not None:
            add_true_tree(trace, trees[index])
        traces.append(trace)
    return traces


def _rows(results: dict[str, Any]) -> list[list[Any]]:
    return [
        [
            split,
            *(
                results[f"{split}_{name}"]
                for name in ("perplexity", "unigram_perplexity", "loss", "tokens", "unknown")
            ),
        ]
        for split in ("validation", "test")
    ]


def _uses_context(results: dict[str, Any]) -> bool:
    """Whether the model is better than word frequencies."""
    return bool(results["test_perplexity"] < results["test_unigram_perplexity"])
