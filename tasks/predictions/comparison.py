"""Compare runs with each other: scores, significance tests, agreement and consensus of their trees."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from ordered_memory.baseline_trees import random_trees
from ordered_memory.consensus import consensus_trees
from ordered_memory.span_f1 import CONVENTIONS, CORPUS_LEVEL, read_spans, score_spans
from tasks.predictions.measures import ACCURACY, F1, Measure, f1_statistics
from tasks.predictions.reading import Run
from tasks.predictions.significance import DRAWS, Floats, mcnemar_test, randomization_test
from tasks.runs.errors import UserError

ENSEMBLE, CONSENSUS = "ensemble", "consensus"
FEWEST_RUNS = 3
"""The consensus of two runs has the trees of the first."""
FEWEST_WORDS_TO_DIFFER = 3
"""All binary trees over fewer words are the same, so they say nothing about agreement."""
MCNEMAR = "McNemar's exact test"
RANDOMIZATION = f"paired randomization test, {DRAWS:,} draws"


def compare_runs(runs: Sequence[Run]) -> dict[str, Any]:
    """Compare two runs or more.

    Args:
        runs: their names must differ.
    Returns:
        JSON values: "runs", their names; "examples", the number of examples; "scores", values by measure and
        run; "scored", how many examples or sentences they are of, which are those that all runs score;
        "tests", a significance test for each pair of runs and measure; and "agreement", if there are trees:
        "f1" between the trees of any two runs by convention, its mean (self-F1), and the mean with random
        trees.
    Raises:
        UserError: the runs are predictions for different examples, or have neither scores nor trees.
    """
    check_same_examples(runs)
    first = runs[0]
    measures = [measure for measure in first.statistics if all(measure in run.statistics for run in runs)]
    statistics = {measure: rows for measure in measures if (rows := _scored_by_all(measure, runs))}
    has_trees = all(run.trees for run in runs)
    if not statistics and not has_trees:
        raise UserError("these predictions have neither scored examples nor trees in common")
    scores = {
        measure.name: {name: float(measure.of_sums(values.sum(0))) for name, values in rows.items()}
        for measure, rows in statistics.items()
    }
    classes = {frozenset(values) for run in runs for values in run.probabilities}
    if ACCURACY in statistics and all(run.probabilities for run in runs) and len(classes) == 1:
        scores[ACCURACY.name][ENSEMBLE] = _accuracy_of_ensemble(runs)
    scored = {measure.name: len(rows[first.name]) for measure, rows in statistics.items()}
    if len(runs) >= FEWEST_RUNS and F1[CORPUS_LEVEL] in statistics:
        trees = consensus_trees([run.trees for run in runs])
        for measure, values in f1_statistics(trees, first.true_trees).items():
            scores[measure.name][CONSENSUS] = float(measure.of_sums(values.sum(0)))
    return {
        "runs": [run.name for run in runs],
        "examples": len(first.examples),
        "scores": scores,
        "scored": scored,
        "tests": [
            _test(measure, *pair)
            for measure, rows in statistics.items()
            for pair in combinations(rows.items(), 2)
        ],
        "agreement": _agreement(runs) if has_trees else {},
    }


def check_same_examples(runs: Sequence[Run]) -> None:
    """Raise a UserError unless runs are predictions for the same examples.

    Args:
        runs: one or more.
    """
    first = runs[0]
    for run in runs[1:]:
        if run.examples != first.examples or (run.trees and first.trees and run.sentences != first.sentences):
            raise UserError(f"{first.name} and {run.name} are predictions for different examples")


def _accuracy_of_ensemble(runs: Sequence[Run]) -> float:
    """How often the class with the highest mean probability is right."""
    right: list[bool] = []
    for (_, label), *of_runs in zip(runs[0].examples, *(run.probabilities for run in runs), strict=True):
        total = {name: sum(values[name] for values in of_runs) for name in of_runs[0]}
        right.append(max(total, key=total.__getitem__) == label)
    return sum(right) / len(right)


def _scored_by_all(measure: Measure, runs: Sequence[Run]) -> dict[str, Floats]:
    """The statistics of each run, of the examples that all runs score; empty if there are none."""
    scored = np.logical_and.reduce([run.statistics[measure][:, 1] > 0 for run in runs])
    return {run.name: run.statistics[measure][scored] for run in runs} if scored.any() else {}


def _test(measure: Measure, one: tuple[str, Floats], other: tuple[str, Floats]) -> dict[str, Any]:
    (first_name, first), (second_name, second) = one, other
    values = [float(measure.of_sums(statistics.sum(0))) for statistics in (first, second)]
    row = {
        "measure": measure.name,
        "first": first_name,
        "second": second_name,
        "difference": values[0] - values[1],
    }
    if measure != ACCURACY:
        return {**row, "p": randomization_test(first, second, measure.of_sums), "test": RANDOMIZATION}
    only_first = int((first[:, 0] > second[:, 0]).sum())
    only_second = int((first[:, 0] < second[:, 0]).sum())
    counts = {"only_first_right": only_first, "only_second_right": only_second}
    return {**row, **counts, "p": mcnemar_test(only_first, only_second), "test": MCNEMAR}


def _agreement(runs: Sequence[Run]) -> dict[str, Any]:
    sizes = [len(words) for words in runs[0].sentences]
    kept = [i for i, size in enumerate(sizes) if size >= FEWEST_WORDS_TO_DIFFER]
    if not kept:
        return {}
    spans = {run.name: read_spans([run.trees[i] for i in kept]) for run in runs}
    random = read_spans(random_trees([sizes[i] for i in kept], seed=1))
    found = {}
    for convention in CONVENTIONS:
        pairs = [
            {"first": first, "second": second, "f1": score_spans(spans[first], spans[second], convention).f1}
            for first, second in combinations(spans, 2)
        ]
        with_random = [score_spans(random, trees, convention).f1 for trees in spans.values()]
        found[str(convention)] = {
            "pairs": pairs,
            "self_f1": float(np.mean([pair["f1"] for pair in pairs])),
            "random": float(np.mean(with_random)),
        }
    return {"sentences": len(kept), "f1": found}
