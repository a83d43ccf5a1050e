"""Read the files that `evaluate --predictions` of the tasks writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ordered_memory.brackets import from_brackets
from ordered_memory.span_f1 import CONVENTIONS, Convention, read_spans, score_spans
from ordered_memory.trees import Tree
from tasks.predictions.significance import Floats
from tasks.reporting.induced_trees import MODEL
from tasks.runs.errors import UserError
from tasks.runs.files import is_finite_number, read_json_lines

FEWEST_WORDS = 2
"""Trees over fewer words are not scored."""


class Measure(NamedTuple):
    """What predictions are scored by: the ratio of two sums over the examples, or the exponential of it.

    Args:
        name: for tables.
        is_exponential: whether it is the exponential.
    """

    name: str
    is_exponential: bool = False

    def of_sums(self, sums: Floats) -> Any:
        """Its value.

        Args:
            sums: numerator and denominator, (..., 2).
        """
        ratio = sums[..., 0] / sums[..., 1]
        return np.exp(ratio) if self.is_exponential else ratio


ACCURACY = Measure("accuracy")
"""For each example 1 if it is right, and 1 if it is scored."""
PERPLEXITY = Measure("perplexity", is_exponential=True)
"""For each line of the text -log p, and its number of words."""
F1 = {convention: Measure(f"F1, {convention}") for convention in CONVENTIONS}
"""For each sentence that is scored twice its number of matched spans, and the number of predicted and true
ones; at sentence level its F1, and 1."""


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
    for key, read in READERS.items():
        if all(key in row for row in rows):
            try:
                return [run._replace(name=f"{title}{run.name}") for run in read(path, rows, names)]
            except UserError:
                raise
            except (KeyError, TypeError, ValueError, AttributeError):
                break
    raise UserError(f"{path}: not what `evaluate --predictions` writes")


def _read_parses(path: Path, rows: list[dict[str, Any]], names: Sequence[str]) -> list[Run]:
    """Of tasks.parsing. The names of runs follow a title, here and below."""
    sources = list(rows[0]["trees"])
    if not names and len(sources) > 1:
        raise UserError(f"{path} has several trees for each sentence: --trees must name {_choices(sources)}")
    examples = [[row["words"], row["true_tree"]] for row in rows]
    true = [row["true_tree"] for row in rows]
    return [
        _with_trees(
            _part(name, names),
            examples,
            {},
            [_entry(row["trees"], name, path) for row in rows],
            true,
        )
        for name in names or sources
    ]


def _read_answers(path: Path, rows: list[dict[str, Any]], names: Sequence[str]) -> list[Run]:
    """Of a classifier."""
    labeled = all("label" in row for row in rows)
    examples = [[row["texts"], row.get("label")] for row in rows]
    right = [[float(row["prediction"] == row["label"]), 1.0] for row in rows] if labeled else []
    answers_count = len(names) < 2  # otherwise trees of the same answers are compared
    statistics = {ACCURACY: np.array(right)} if labeled and answers_count else {}
    probabilities = [row["probabilities"] for row in rows] if answers_count else []
    if not all("trees" in row for row in rows):
        if names:
            raise UserError(f"{path}: the model induces no trees")
        return [Run("", examples, statistics, probabilities)]
    true = [text for row in rows for text in row.get("true_trees", [])]
    return [
        _with_trees(
            _part(name, names),
            examples,
            statistics,
            [
                text
                for row in rows
                for text in _entry({MODEL: row["trees"]} | row.get("other_trees", {}), name, path)
            ],
            true,
        )._replace(probabilities=probabilities)
        for name in names or [MODEL]
    ]


def _read_texts(path: Path, rows: list[dict[str, Any]], names: Sequence[str]) -> list[Run]:
    """Of a language model."""
    _refuse_trees(path, names)
    if not all(is_finite_number(value) for row in rows for value in row["log_probabilities"]):
        raise ValueError("expected finite log-probabilities")
    sums = [[-sum(row["log_probabilities"]), len(row["log_probabilities"])] for row in rows]
    return [Run("", [row["words"] for row in rows], {PERPLEXITY: np.array(sums, dtype=np.float64)})]


def _read_pairs(path: Path, rows: list[dict[str, Any]], names: Sequence[str]) -> list[Run]:
    """Of minimal pairs: a run for each model."""
    _refuse_trees(path, names)
    scores = [row["log_probabilities"] or {} for row in rows]
    models = list(dict.fromkeys(model for score in scores for model in score))
    if not models:
        raise UserError(f"{path}: no pair is scored")
    examples = [[row["construction"], row["good"], row["bad"]] for row in rows]
    return [
        Run(
            _part(model, models),
            examples,
            {
                ACCURACY: np.array(
                    [
                        [float(score[model]["right"]), 1.0] if model in score else [0.0, 0.0]
                        for score in scores
                    ]
                )
            },
        )
        for model in models
    ]


READERS = {
    "true_tree": _read_parses,
    "prediction": _read_answers,
    "good": _read_pairs,
    "log_probabilities": _read_texts,
}
"""What reads the predictions of a task, by a key that those of the tasks before it lack."""


def _with_trees(
    name: str,
    examples: Sequence[Any],
    statistics: Mapping[Measure, Floats],
    texts: Sequence[str],
    true_texts: Sequence[str],
) -> Run:
    """A run with trees."""
    parsed = [from_brackets(text) for text in texts]
    trees = [tree for tree, _ in parsed]
    true_trees = [from_brackets(text)[0] for text in true_texts]
    if true_trees:
        statistics = {
            **statistics,
            **{F1[convention]: f1_statistics(trees, true_trees, convention) for convention in CONVENTIONS},
        }
    sentences = [words for _, words in parsed]
    return Run(name, examples, statistics, sentences=sentences, trees=trees, true_trees=true_trees)


def f1_statistics(trees: Sequence[Tree], true_trees: Sequence[Tree], convention: Convention) -> Floats:
    """What the F1 of trees is computed from.

    Args:
        trees: the trees of n sentences.
        true_trees: their true trees.
        convention: what counts.
    Returns:
        Numerators and denominators, (n, 2); see `F1`. Trees over too few words have zeros.
    """
    statistics = np.zeros((len(trees), 2))
    for i, (tree, true) in enumerate(zip(read_spans(trees), read_spans(true_trees), strict=True)):
        if true.size >= FEWEST_WORDS:
            score = score_spans([tree], [true], convention)
            is_pooled = convention.level == "corpus"
            counts = 2 * score.matched, score.predicted + score.gold
            statistics[i] = counts if is_pooled else (score.f1, 1)
    return statistics


def _part(name: str, names: Sequence[str]) -> str:
    """What follows the title of a run: the name of the model or of the trees, if there are several."""
    return f": {name}" if len(names) > 1 else ""


def _entry(trees: Mapping[str, Any], name: str, path: Path) -> Any:
    """The trees of a name."""
    if name not in trees:
        raise UserError(f"{path}: no trees {name!r}: expected {_choices(trees)}")
    return trees[name]


def _choices(names: Iterable[str]) -> str:
    return " or ".join(repr(name) for name in names)


def _refuse_trees(path: Path, names: Sequence[str]) -> None:
    if names:
        raise UserError(f"{path}: --trees is for predictions with trees")
