"""The final report of a language model: a few lines in the terminal, the page to look at."""

from __future__ import annotations

from typing import Any

from tasks.language_model.config import LanguageModelConfig
from tasks.reporting.report import Report, Table, best_epoch, learning_curves, write_report
from tasks.runs.run_directory import RunDirectory, config_to_dict

PARTS = ("validation", "test")


def results_text(results: dict[str, Any]) -> str:
    """The results of a run as plain text.

    Args:
        results: of the best weights, as in results.json.
    """
    lines = [f"{results['parameters']:,} parameters", f"{'':>10}  perplexity  nats a word   words"]
    for part in PARTS:
        values = (results[f"{part}_{name}"] for name in ("perplexity", "loss", "tokens"))
        lines.append("{:>10}  {:10.2f}  {:11.4f}  {:,}".format(part, *values))
    return "\n".join(lines)


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
                columns=["text", "perplexity", "nats a word", "words"],
                rows=[
                    [part, *(results[f"{part}_{name}"] for name in ("perplexity", "loss", "tokens"))]
                    for part in PARTS
                ],
                note="Words include the end of each sentence; each text is read as one, from its first word.",
            )
        ],
    )
    write_report(run.report, report)
