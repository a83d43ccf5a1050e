"""The final report of a language model: a few lines in the terminal, the page to look at."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ordered_memory.trace import Trace, add_true_tree
from ordered_memory.trees import depth
from tasks.language_model.corpus import draw_parts, split_text
from tasks.language_model.model import Trained
from tasks.language_model.reading import ABOUT, UNITS, layers_of, trace_sentence
from tasks.language_model.samples import sample_sentences
from tasks.reporting.examples import choose
from tasks.reporting.report import Report, Table, best_epoch, learning_curves, write_report
from tasks.reporting.tables import table
from tasks.runs.record import facts_of
from tasks.runs.run_directory import RunDirectory, config_to_dict

COLUMNS = ["text", "perplexity", "nats per word", "words"]


def results_text(results: dict[str, Any]) -> str:
    """The results of a run as plain text.

    Args:
        results: of the best weights, as in results.json.
    """
    rows = [[part, f"{ppl:.2f}", f"{loss:.4f}", f"{words:,}"] for part, ppl, loss, words in _rows(results)]
    return f"{results['parameters']:,} parameters\n{table(COLUMNS, rows)}"


def write_run_report(
    run: RunDirectory, trained: Trained, results: dict[str, Any], validation: Tensor
) -> None:
    """Write report.html: learning curves, perplexities, samples, and trees of validation sentences.

    Args:
        run: holds metrics.jsonl.
        trained: the best weights.
        results: of them.
        validation: text, (N,) int64.
    """
    config, rows = trained.config, run.read_metrics()
    by = ("perplexity", True)
    report = Report(
        title=f"Language model: {config.model}",
        about=ABOUT,
        subtitle=(
            f"Test perplexity {results['test_perplexity']:.2f} on {results['test_tokens']:,} words "
            f"{best_epoch(rows, *by)}."
        ),
        curves=learning_curves(rows, *by),
        tables=[
            Table(
                title="Perplexity",
                columns=COLUMNS,
                rows=_rows(results),
                note="Words include the end of each sentence; each text is read as one stream. During "
                f"training the validation text is read in {config.evaluation_batch_size} parts side by side, "
                "which know little of what came before them.",
            )
        ],
        traces=_traces(trained, validation),
        samples=sample_sentences(trained),
        facts=facts_of(run),
        config=config_to_dict(config),
    )
    write_report(run.report, report)


def _traces(trained: Trained, validation: Tensor) -> list[Trace]:
    """Some validation sentences, with the true trees where the sentences are drawn; none of an LSTM."""
    if trained.config.model not in UNITS:
        return []
    words = split_text(validation, trained.vocabulary)
    trees = None
    if trained.config.data_dir is None:
        trees = [sentence.tree for sentence in draw_parts(trained.config)[1]]
    depths = [0] * len(words) if trees is None else [depth(tree) for tree in trees]
    traces = []
    for number, index in enumerate(choose([len(sentence) for sentence in words], depths)):
        trace = trace_sentence(trained, words[index], layers_of(trained))
        trace["example"] = number
        if trees is not None:
            add_true_tree(trace, trees[index])
        traces.append(trace)
    return traces


def _rows(results: dict[str, Any]) -> list[list[Any]]:
    return [
        [part, *(results[f"{part}_{name}"] for name in ("perplexity", "loss", "tokens"))]
        for part in ("validation", "test")
    ]
