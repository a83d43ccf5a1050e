"""The verb score: trees of any parser, from a file, against a treebank."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from ordered_memory.brackets import from_brackets
from ordered_memory.trees import Tree, keep_leaves
from tasks.parsing.evaluation import Evaluation, TreeSource, baseline_trees
from tasks.parsing.gold import TreebankConfig
from tasks.parsing.report import CONVENTION_NAMES, results_text
from tasks.parsing.treebank import TreebankSentence
from tasks.runs.command_line import Verb
from tasks.runs.command_options import ResultsConfig
from tasks.runs.errors import UserError
from tasks.runs.text_files import read_text


@dataclass(kw_only=True)
class ScoreConfig(TreebankConfig, ResultsConfig):
    """Score the trees of any parser against a treebank, beside those of the baselines."""

    trees: Annotated[Path, tyro.conf.Positional]
    """A file with a line for each sentence of the treebank: its tree, such as "( ( the cat ) sleeps )".
    Either all trees have labels or none. Empty lines are skipped. The number of words must be that of the
    treebank; their spelling may differ, but a warning is printed if most of them do. The file may be
    compressed (.gz, .bz2, .xz)."""
    treebank: Path
    """True trees, as for evaluate. The trees of the file must have the words that --keep-punctuation or
    --drop-tags keep."""


def _score(config: ScoreConfig) -> None:
    """Print the scores of the trees in a file."""
    config.set_up()
    gold = config.read_gold(config.treebank)
    sentences = gold.sentences
    trees = {TreeSource(config.trees.name, None, "file"): _read_predicted(config.trees, sentences)}
    evaluation = Evaluation(sentences, trees | baseline_trees(sentences), [], gold.labels)
    results: dict[str, Any] = {
        **gold.facts(),
        "conventions": CONVENTION_NAMES,
        **evaluation.summary(),
    }
    config.write(results)
    print(results_text(results))


def _read_predicted(path: Path, sentences: Sequence[TreebankSentence]) -> list[Tree]:
    """Read a tree for each sentence, without constituents that have a single child.

    Raises a UserError if a line is not a tree, or the trees do not have the leaves of the sentences.
    """
    predicted = _read_trees(path)
    same_words = total_words = 0
    for (number, _, words), sentence in zip(predicted, sentences, strict=False):
        if len(words) != len(sentence.words):
            raise UserError(
                f"{path}, line {number}: expected a tree over the {len(sentence.words)} words of "
                f"{sentence.where}, got {len(words)} words; both must be with or without punctuation "
                "(--keep-punctuation, --drop-tags)"
            )
        same_words += sum(a.lower() == b.lower() for a, b in zip(words, sentence.words, strict=True))
        total_words += len(words)
    if len(predicted) != len(sentences):
        raise UserError(
            f"{path}: expected a tree for each of {len(sentences):,} sentences, got {len(predicted):,}"
        )
    if 2 * same_words < total_words:
        print(
            f"warning: {path}: {same_words:,} of {total_words:,} words are those of the treebank; are the "
            "sentences in the same order?",
            file=sys.stderr,
        )
    return [keep_leaves(line.tree, range(len(line.words))) for line in predicted]


class _TreeLine(NamedTuple):
    """The number of a line, its tree, and its words."""

    number: int
    tree: Tree
    words: list[str]


def _read_trees(path: Path) -> list[_TreeLine]:
    """Read the trees of a file, which all have labels or all have none."""
    try:
        return _parse_lines(path, labels=None)
    except UserError as error:
        with suppress(UserError):
            return _parse_lines(path, labels=True)
        raise error from None


def _parse_lines(path: Path, labels: bool | None) -> list[_TreeLine]:
    tree_lines = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            tree, words = from_brackets(line, labels)
        except ValueError as error:
            raise UserError(f"{path}, line {number}: {error}") from None
        tree_lines.append(_TreeLine(number, tree, words))
    return tree_lines


SCORE = Verb(ScoreConfig, _score)
