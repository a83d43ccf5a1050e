"""The final report of a language model: a few lines in the terminal, the page to look at."""

from __future__ import annotations

from typing import Any

from tasks.language_model.config import LanguageModelConfig
from tasks.reporting.report import Report, Table, best_epoch, learning_curves, write_report
from tasks.reporting.tables import table
from tasks.runs.run_directory import RunDirectory, config_to_dict

COLUMNS = ["text", "perplexity", "nats per word", "words"]


def results_text(results: dict[str, Any]) -> str:
    """The results of a run as plain text.

    Args:
        results: of the best weights, as in results.json.
    """
    rows = [[part, f"{ppl:.2f}", f"{loss:.4f}", f"{words:,}"] for part, ppl, loss, words in _rows(results)]
    return f"{results['parameters']:,} parameters\n{table(COLUMNS, rows)}"


def write_run_report(run: RunDirectory, config: LanguageModelConfig, results: dict[str, Any]) -> None:
    """Write report.html: learning curves and perplexities.

    Args:
        run: holds metrics.jsonl.
        config: of the run.
        results: of the best weights.
    """
    rows = run.read_metrics()
    report = Report(
        title=f"Language model: {config.model}",
        subtitle=(
            f"Test perplexity {results['test_perplexity']:.2f} on {results['test_tokens']:,} words "
            f"{best_epoch(rows, 'perplexity', lowest=True)}."
        ),
        config=config_to_dict(config),
        curves=learning_curves(rows),
        tables=[
            Table(
                title="Perplexity",
                columns=COLUMNS,
                rows=_rows(results),
                note="Words include the end of each sentence; each text is read as one stream.",
            )
        ],
    )
    write_report(run.report, report)


def _rows(results: dict[str, Any]) -> list[list[Any]]:
    return [
        [part, *(results[f"{part}_{name}"] for name in ("perplexity", "loss", "tokens"))]
        for part in ("validation", "test")
    ]
