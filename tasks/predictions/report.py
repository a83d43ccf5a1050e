"""Format a comparison of runs as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ordered_memory.span_f1 import ONE_TOKEN, fraction_text
from tasks.formatting.tables import count_text, number, text_table, wrap
from tasks.predictions.comparison import CONSENSUS, ENSEMBLE, FEWEST_WORDS_TO_DIFFER, RANDOMIZATION
from tasks.predictions.measures import ACCURACY, F1, FEWEST_WORDS, PERPLEXITY
from tasks.predictions.significance import DRAWS

NOTES = {
    ENSEMBLE: "Ensemble: the class with the highest mean probability.",
    CONSENSUS: "Consensus: for each sentence the binary tree that agrees most with those of the runs.",
}
F1_NAMES = [measure.name for measure in F1.values()]
SEVERAL_TESTS = "The p-values are not corrected for the number of tests."
SIGNED = "Differences are the first run minus the second."


def results_text(results: Mapping[str, Any], width: int | None = None) -> str:
    """Format a comparison.

    Args:
        results: results of `compare_runs`.
        width: maximum length of a line; None for no maximum in tables.
    """
    scores, tests, agreement = results["scores"], results["tests"], results["agreement"]
    counts = [count_text(len(results["runs"]), "run"), count_text(results["examples"], "example")]
    scored_trees = next((count for name, count in results["scored"].items() if name in F1_NAMES), 0)
    if scored_trees:
        counts.append(f"{count_text(scored_trees, 'tree')} over {FEWEST_WORDS} words or more")
    parts = [", ".join(counts)]
    if scores:
        names = dict.fromkeys(name for values in scores.values() for name in values)
        rows = [
            [name, *(_value(measure, values.get(name)) for measure, values in scores.items())]
            for name in names
        ]
        parts.append(text_table(["", *scores], rows, width))
        notes = [text for name, text in NOTES.items() if name in names]
        notes += [ONE_TOKEN] if scored_trees else []
        parts += ["\n".join(wrap(" ".join(notes), width))] if notes else []
    if (scored := results["scored"].get(ACCURACY.name, results["examples"])) < results["examples"]:
        parts.append(f"Accuracy is that of the {count_text(scored, 'example')} that all runs score.")
    for measure in scores:
        parts.append(_tests_text(measure, [test for test in tests if test["measure"] == measure], width))
    if tests:
        parts.append("\n".join(wrap(SIGNED + (f" {SEVERAL_TESTS}" if len(tests) > 1 else ""), width)))
    return "\n\n".join([*parts, *_agreement_texts(agreement, width)])


def _value(measure: str, value: float | None) -> str:
    if value is None or measure == PERPLEXITY.name:
        return number(value, 2)
    return fraction_text(value)


def _tests_text(measure: str, tests: Sequence[Mapping[str, Any]], width: int | None) -> str:
    """The tests of a measure, which all are of the same kind."""
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "difference": lambda test: f"{test['difference']:+.4f}",
        "p": lambda test: _p_text(test["p"], test["test"]),
    }
    if "only_first_right" in tests[0]:
        columns["only first right"] = lambda test: f"{test['only_first_right']:,}"
        columns["only second right"] = lambda test: f"{test['only_second_right']:,}"
    rows = [[_pair(test), *(column(test) for column in columns.values())] for test in tests]
    title = wrap(f"{measure}: {tests[0]['test']}", width)
    return "\n".join([*title, text_table(["", *columns], rows, width)])


def _p_text(p: float, test: str) -> str:
    """A p-value; of a randomization test, the smallest that it can have is a bound."""
    is_bound = test == RANDOMIZATION and p <= 1 / (DRAWS + 1)
    return f"≤ {p:.1g}" if is_bound else "< 1e-300" if p < 1e-300 else f"{p:.3g}"


def _agreement_texts(agreement: Mapping[str, Any], width: int | None) -> list[str]:
    texts = []
    for convention, scores in agreement.get("f1", {}).items():
        rows = [[_pair(pair), fraction_text(pair["f1"])] for pair in scores["pairs"]]
        rows.append(["mean (self-F1)", fraction_text(scores["self_f1"])])
        rows.append(["with random trees", fraction_text(scores["random"])])
        title = (
            f"F1 between the trees of two runs, {convention}, of "
            f"{count_text(agreement['sentences'], 'sentence')} of {FEWEST_WORDS_TO_DIFFER} words or more"
        )
        texts.append("\n".join([*wrap(title, width), text_table(["", "F1"], rows, width)]))
    return texts


def _pair(row: Mapping[str, Any]) -> str:
    return f"{row['first']}, {row['second']}"
