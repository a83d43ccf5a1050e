"""The subcommand score: trees of any parser, from a file, against a treebank."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from ordered_memory.brackets import from_brackets
from ordered_memory.trees import Tree, keep_leaves
from tasks.formatting.tables import count_text, terminal_width
from tasks.parsing.evaluation import Evaluation, TreeSource, baseline_trees
from tasks.parsing.gold import TreebankConfig
from tasks.parsing.report import CONVENTION_NAMES, results_text
from tasks.parsing.treebank import Treebank, TreebankSentence
from tasks.runs.command_line import Subcommand
from tasks.runs.command_options import ResultsConfig, print_after
from tasks.runs.errors import UserError
from tasks.runs.text_files import read_text


@dataclass(kw_only=True)
class ScoreConfig(TreebankConfig, ResultsConfig):
    """Score the trees of any parser against a treebank, beside those of the baselines."""

    trees: Annotated[Path, tyro.conf.Positional]
    """A file with a line for each sentence of the treebank: its tree, such as "( ( the cat ) sleeps )".
    Sentences that --max-words leaves out must have one, too, and those of punctuation alone may have one.
    Either all trees have labels or none. Empty lines are skipped. Each tree must have as many words as its
    sentence in the treebank, with punctuation, which is removed from both, or without. Words may be spelled
    differently; there is a warning if more than half are. The file may be compressed (.gz, .bz2, .xz)."""
    treebank: Path
    """True trees, as for the subcommand evaluate; see --keep-punctuation and --drop-tags."""


def _score(config: ScoreConfig) -> None:
    """Print the scores of the trees in a file."""
    config.set_up()
    gold = config.read_gold(config.treebank)
    predicted = zip(_read_predicted(config.trees, gold.treebank), gold.sentences, strict=True)
    gold = gold.at_most(config.max_words)
    trees = [
        tree
        for tree, sentence in predicted
        if config.max_words is None or len(sentence.words) <= config.max_words
    ]
    source = TreeSource(config.trees.name, None, "file")
    evaluation = Evaluation(gold.sentences, {source: trees} | baseline_trees(gold.sentences), [], gold.labels)
    results: dict[str, Any] = {
        **gold.facts(),
        "conventions": CONVENTION_NAMES,
        **evaluation.summary(),
    }
    with print_after(results_text(results, terminal_width())):
        config.write(results)


def _read_predicted(path: Path, treebank: Treebank) -> list[Tree]:
    """Read a tree for each sentence, without constituents that have a single child.

    Raises a UserError if a line is not a tree, or the trees do not have the leaves of the sentences.
    """
    predicted, sentences = _read_trees(path, treebank), treebank.sentences
    if len(predicted) != len(sentences):
        raise UserError(
            f"{path}: expected a tree for each of {count_text(len(sentences), 'sentence')}, "
            f"got {len(predicted):,}"
        )
    pairs = [
        pair
        for line, sentence in zip(predicted, sentences, strict=True)
        for pair in zip(line.words, sentence.words, strict=True)
    ]
    same_words, total_words = sum(a.lower() == b.lower() for a, b in pairs), len(pairs)
    if 2 * same_words < total_words:
        print(
            f"warning: {path}: only {same_words:,} of {total_words:,} words match the treebank; are the "
            "sentences in the same order?",
            file=sys.stderr,
        )
    return [keep_leaves(line.tree, range(len(line.words))) for line in predicted]


def _check_words(path: Path, predicted: Sequence[_TreeLine], sentences: Sequence[TreebankSentence]) -> None:
    """Raise a UserError unless each tree has as many words as its sentence."""
    for (number, _, words), sentence in zip(predicted, sentences, strict=False):
        if len(words) != len(sentence.words):
            raise UserError(
                f"{path}, line {number}: expected a tree over the {count_text(len(sentence.words), 'word')} "
                f"of {sentence.where}, got {count_text(len(words), 'word')}; both must be with or without "
                "punctuation (--keep-punctuation, --drop-tags)"
            )


class _TreeLine(NamedTuple):
    """The number of a line, its tree, and its words."""

    number: int
    tree: Tree
    words: list[str]


def _read_trees(path: Path, treebank: Treebank) -> list[_TreeLine]:
    """Read the trees of a file, which all have labels or all have none.

    What they look like is tried first. It may be wrong: labeled trees without part-of-speech tags do not look
    labeled, and unlabeled trees look labeled if their constituents begin with words.
    """
    _parse_lines(path, labels=False)  # raises for brackets that are no tree, with labels or without
    try:
        _parse_lines(path, labels=None)
        guesses = (False, True)
    except UserError:
        guesses = (True, False)
    errors = []
    for labels in guesses:
        try:
            predicted = _without_punctuation(_parse_lines(path, labels), treebank)
            _check_words(path, predicted, treebank.sentences)
            return predicted
        except UserError as error:
            errors.append(error)
    raise errors[0] from None


def _without_punctuation(predicted: Sequence[_TreeLine], treebank: Treebank) -> list[_TreeLine]:
    """Remove from trees over all words of their sentences the words that were removed from the treebank.

    If the sentences of punctuation alone have trees, too, these are left out.
    """
    lines, removed = list(predicted), treebank.removed
    if len(lines) == len(treebank.sentences) + len(removed) and all(
        len(lines[place].words) == words for place, words in removed.items()
    ):
        lines = [line for place, line in enumerate(lines) if place not in removed]
    for i, (line, sentence) in enumerate(zip(lines, treebank.sentences, strict=False)):
        if len(line.words) == len(sentence.kept) > len(sentence.words):
            kept = [place for place, is_kept in enumerate(sentence.kept) if is_kept]
            words = [line.words[place] for place in kept]
            lines[i] = _TreeLine(line.number, keep_leaves(line.tree, kept), words)
    return lines


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


SCORE = Subcommand(ScoreConfig, _score)
