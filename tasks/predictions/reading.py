"""Read the files that `evaluate --predictions` of the tasks writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ordered_memory.brackets import from_brackets
from ordered_memory.trees import Tree
from tasks.predictions.measures import ACCURACY, PERPLEXITY, Measure, f1_statistics
from tasks.predictions.significance import Floats
from tasks.reporting.induced_trees import MODEL
from tasks.runs.errors import UserError
from tasks.runs.files import is_finite_number, read_json_lines


class Run(NamedTuple):
    """The predictions of a run.

    Args:
        name: for tables and error messages.
        examples: what they are predictions for, n JSON values. Only runs with the same examples can be
            compared.
        statistics: numerator and denominator of each measure, (n, 2).
        probabilities: of a classifier, those of each class for each example.
        sentences: the words of each sentence, if there are trees.
        trees: the tree of each sentence.
        true_trees: the true trees, if they are known.
    """

    name: str
    examples: Sequence[Any]
    statistics: Mapping[Measure, Floats]
    probabilities: Sequence[Mapping[str, float]] = ()
    sentences: Sequence[Sequence[str]] = ()
    trees: Sequence[Tree] = ()
    true_trees: Sequence[Tree] = ()


class _Predictions(NamedTuple):
    """What a file contains.

    Args:
        examples: what is predicted, n JSON values.
        statistics: numerator and denominator of each measure, (n, 2), by model; "" if there is only one.
        probabilities: of a classifier, those of each class for each example.
        trees: by name, the tree of each sentence in brackets.
        true_trees: the true tree of each sentence, if they are known.
    """

    examples: list[Any]
    statistics: Mapping[str, Mapping[Measure, Floats]]
    probabilities: Sequence[Mapping[str, float]] = ()
    trees: Mapping[str, list[str]] = {}
    true_trees: Sequence[str] = ()


def read_runs(path: Path, title: str, names: Sequence[str] = ()) -> list[Run]:
    """Read the predictions of a file: those of one run or, of minimal pairs, of each model.

    Args:
        path: the file; it may be compressed.
        title: the name of a run, which is followed by that of the trees or model if there are several.
        names: which trees to read, one run for each: "model" or a name in `other_trees` of a classifier, a
            name in `trees` of a parser. None for the usual trees.
    Raises:
        UserError: no such file, not a file of predictions, or it has no such trees.
    """
    rows = [row for _, row in read_json_lines(path)]
    if not rows:
        raise UserError(f"{path}: no predictions")
    read = next((read for key, read in READERS.items() if all(key in row for row in rows)), None)
    try:
        if read is None:
            raise ValueError("fields of no task")
        return _runs(read(rows), path, title, names)
    except UserError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(f"{path}: not what `evaluate --predictions` writes") from None


def _runs(found: _Predictions, path: Path, title: str, names: Sequence[str]) -> list[Run]:
    """A run for each name of trees or, without trees, for each model."""
    if not found.statistics:
        raise UserError(f"{path}: nothing is scored")
    if found.trees:
        return _runs_with_trees(found, path, title, names)
    if names:
        raise UserError(f"{path}: there are no trees, which --trees names")
    return [
        Run(
            f"{title}: {model}" if len(found.statistics) > 1 else title,
            found.examples,
            statistics,
            found.probabilities,
        )
        for model, statistics in found.statistics.items()
    ]


def _runs_with_trees(found: _Predictions, path: Path, title: str, names: Sequence[str]) -> list[Run]:
    """A run for each name of trees."""
    choices = " or ".join(map(repr, found.trees))
    if not names and MODEL not in found.trees and len(found.trees) > 1:
        raise UserError(f"{path} has several trees for each sentence: --trees must name {choices}")
    for name in names:
        if name not in found.trees:
            raise UserError(f"{path}: no trees {name!r}: expected {choices}")
    chosen = names or [MODEL if MODEL in found.trees else next(iter(found.trees))]
    true_trees = [from_brackets(text)[0] for text in found.true_trees]
    [statistics] = found.statistics.values()
    runs = []
    for name in chosen:
        parsed = [from_brackets(text) for text in found.trees[name]]
        trees, sentences = [tree for tree, _ in parsed], [words for _, words in parsed]
        f1 = f1_statistics(trees, true_trees) if true_trees else {}
        run = Run(title, found.examples, f1, (), sentences, trees, true_trees)
        if len(chosen) > 1:
            runs.append(run._replace(name=f"{title}: {name}"))
        else:  # of several trees, the answers are the same
            runs.append(run._replace(statistics={**statistics, **f1}, probabilities=found.probabilities))
    return runs


def _read_parses(rows: list[dict[str, Any]]) -> _Predictions:
    """Of tasks.parsing."""
    return _Predictions(
        [[row["words"], row["true_tree"]] for row in rows],
        {"": {}},
        trees={name: [row["trees"][name] for row in rows] for name in rows[0]["trees"]},
        true_trees=[row["true_tree"] for row in rows],
    )


def _read_answers(rows: list[dict[str, Any]]) -> _Predictions:
    """Of a classifier."""
    is_labeled = all("label" in row for row in rows)
    right = [[row["prediction"] == row["label"], 1] for row in rows] if is_labeled else []
    trees = [{MODEL: row["trees"], **row.get("other_trees", {})} for row in rows if "trees" in row]
    return _Predictions(
        [[row["texts"], row.get("label")] for row in rows],
        {"": {ACCURACY: np.array(right, dtype=np.float64)} if is_labeled else {}},
        [row["probabilities"] for row in rows],
        {name: [text for of_row in trees for text in of_row[name]] for name in (trees[0] if trees else ())},
        [text for row in rows for text in row.get("true_trees", [])],
    )


def _read_texts(rows: list[dict[str, Any]]) -> _Predictions:
    """Of a language model."""
    if not all(is_finite_number(value) for row in rows for value in row["log_probabilities"]):
        raise ValueError("expected finite log-probabilities")
    sums = [[-sum(row["log_probabilities"]), len(row["log_probabilities"])] for row in rows]
    return _Predictions([row["words"] for row in rows], {"": {PERPLEXITY: np.array(sums, dtype=np.float64)}})


def _read_pairs(rows: list[dict[str, Any]]) -> _Predictions:
    """Of minimal pairs, with one model or more."""
    scores = [row["log_probabilities"] or {} for row in rows]
    right = {
        model: [[score[model]["right"], 1] if model in score else [0, 0] for score in scores]
        for model in dict.fromkeys(model for score in scores for model in score)
    }
    return _Predictions(
        [[row["construction"], row["good"], row["bad"]] for row in rows],
        {model: {ACCURACY: np.array(values, dtype=np.float64)} for model, values in right.items()},
    )


READERS = {
    "true_tree": _read_parses,
    "prediction": _read_answers,
    "good": _read_pairs,
    "log_probabilities": _read_texts,
}
"""What reads the predictions of a task, by a key that those of the tasks before it lack."""
