"""The Stanford Sentiment Treebank: sentences with a sentiment label at every node of their trees.

Each line is a tree, such as `(3 (2 It) (4 (2 's) (4 good)))`. Labels range from 0 (very negative) over 2
(neutral) to 4 (very positive).
"""

from __future__ import annotations

import re
import reprlib
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ordered_memory.trees import Span, Tree
from tasks.classifiers.files import read_lines
from tasks.runs.errors import UserError
from tasks.runs.text_files import find_file, find_files, uncompressed_name

FILES = ("train.txt", "dev.txt", "test.txt")
OFFICIAL = dict(zip(FILES, (8_544, 1_101, 2_210), strict=True))
"""Number of sentences of each file."""
RETOKENIZED = dict(zip(FILES, (8_527, 1_095, 2_203), strict=True))
"""Number of sentences of another edition, which has other words and trees."""
TRAIN_AND_DEV = OFFICIAL["train.txt"] + OFFICIAL["dev.txt"]

LABELS = ("0", "1", "2", "3", "4")
NEUTRAL = 2
TOKEN = re.compile("[()]|[^() ]+")
"""Only the ASCII space separates words: three words contain a no-break space."""


class LabeledTree(NamedTuple):
    """A sentence with a sentiment label at every node.

    Args:
        words: its n words, as they are written.
        tree: binary, over positions 0 … n - 1.
        labels: label 0 … 4 of each node, single words (i, i) included, by first and last word, both
            inclusive; children come before parents, left before right.
    """

    words: tuple[str, ...]
    tree: Tree
    labels: dict[Span, int]

    @property
    def label(self) -> int:
        """The label of the sentence."""
        return self.labels[0, len(self.words) - 1]


class Treebank(NamedTuple):
    """The splits of the treebank.

    Args:
        train, validation: training and validation sentences.
        test: test sentences; None if there is no test.txt.
    """

    train: list[LabeledTree]
    validation: list[LabeledTree]
    test: list[LabeledTree] | None


class Phrase(NamedTuple):
    """A labeled phrase.

    Args:
        sentence: index of its sentence.
        first, last: its first and last word in the sentence, both inclusive.
        label: 0 … 4 for five classes; for two classes, 0 is negative and 1 positive.
        count: number of equal phrases that it represents.
    """

    sentence: int
    first: int
    last: int
    label: int
    count: int  # type: ignore[assignment]  # not the method of tuples


def read_directory(directory: Path) -> Treebank:
    """Read the official treebank.

    Args:
        directory: contains train.txt, dev.txt and, optionally, test.txt; they may be compressed.
    Raises:
        UserError: a file is missing, malformed or of another edition; the message names file and line.
    """
    names = FILES if find_file(directory / "test.txt").exists() else FILES[:2]
    train, validation, *test = (
        read_lines(path, _parse_line, check_count=partial(_check_edition, path))
        for path in find_files(directory, names)
    )
    return Treebank(train, validation, test[0] if test else None)


def read_trees(path: Path) -> list[LabeledTree]:
    """Read a file with one tree per line.

    Args:
        path: path of the file, which may be compressed.
    Raises:
        UserError: the file is missing or empty, or a line is not UTF-8 or not a binary tree with a label from
            0 to 4 at every node and one word at every leaf; the message names the line.
    """
    return read_lines(path, _parse_line)


def phrases(
    trees: Sequence[LabeledTree],
    classes: Literal[2, 5],
    *,
    merge: bool = False,
    cased: bool = False,
    by_tree: bool = False,
) -> list[Phrase]:
    """List all labeled nodes as examples; neutral ones are left out if there are two classes.

    With `merge`, phrases with the same words and the same class become one example, and `count` is their
    number. Then Σ count × loss is the total loss over all phrases, for any model that reads a phrase without
    its context. For one that is given the true trees, `by_tree` keeps phrases with different trees apart.

    Args:
        trees: labeled sentences.
        classes: 2 or 5.
        merge: whether to merge equal phrases.
        cased: whether words that differ in case are different words, as they are for an --encoder.
        by_tree: whether to merge only phrases that also have the same tree.
    Returns:
        Phrases in the order of the sentences; within a sentence children before parents, left before right.
    """
    examples: list[Phrase] = []
    index_of: dict[tuple[Any, ...], int] = {}
    for sentence_index, tree in enumerate(trees):
        words = tuple(word if cased else word.lower() for word in tree.words)
        nodes = list(tree.labels)
        for number, ((first, last), sentiment) in enumerate(tree.labels.items()):
            label = _class(sentiment, classes)
            if label is None:
                continue
            index = len(examples)
            if merge:
                key: tuple[Any, ...] = (words[first : last + 1], label)
                if by_tree:  # the nodes of a subtree over k words are the 2k - 1 up to its root
                    below = nodes[number - 2 * (last - first) : number + 1]
                    key += (tuple((a - first, b - first) for a, b in below),)
                index = index_of.setdefault(key, index)
            if index < len(examples):
                examples[index] = examples[index]._replace(count=examples[index].count + 1)
            else:
                examples.append(Phrase(sentence_index, first, last, label, 1))
    return examples


def sentences(trees: Sequence[LabeledTree], classes: Literal[2, 5]) -> list[Phrase]:
    """List whole sentences as examples; neutral ones are left out if there are two classes.

    Args:
        trees: labeled sentences.
        classes: 2 or 5.
    """
    labels = [_class(tree.label, classes) for tree in trees]
    return [
        Phrase(number, 0, len(tree.words) - 1, label, 1)
        for number, (tree, label) in enumerate(zip(trees, labels, strict=True))
        if label is not None
    ]


def _class(sentiment: int, classes: int) -> int | None:
    if classes not in (2, 5):
        raise ValueError(f"expected 2 or 5 classes, got {classes}")
    if classes == 5:
        return sentiment
    return None if sentiment == NEUTRAL else int(sentiment > NEUTRAL)


# ---- reading


def _check_edition(path: Path, count: int) -> None:
    name = uncompressed_name(path.name)
    if count == OFFICIAL[name]:
        return
    edition = "not the known edition"
    if name == "train.txt" and count == TRAIN_AND_DEV:
        edition = f"train and dev in one file; the first {OFFICIAL[name]:,} lines are the training data"
    elif count == RETOKENIZED[name]:
        edition = "the edition that was tokenized again, which has other words and trees"
    raise UserError(f"{path}: expected {OFFICIAL[name]:,} lines, got {count:,}: {edition}")


@dataclass
class _OpenBracket:
    """An open bracket and its content so far."""

    first: int
    label: str | None = None
    words: list[str] = field(default_factory=list)
    children: list[Tree] = field(default_factory=list)


def _parse_line(line: str) -> LabeledTree:
    words: list[str] = []
    labels: dict[Span, int] = {}
    stack: list[_OpenBracket] = []
    root: Tree | None = None
    for token in TOKEN.findall(line):
        if root is not None:
            raise ValueError(f"expected one tree, got {reprlib.repr(token)} after its end")
        if token == "(":
            if stack and stack[-1].label is None:
                raise ValueError("expected a label from 0 to 4 after '(', got '('")
            stack.append(_OpenBracket(len(words)))
        elif not stack:
            raise ValueError(f"expected '(', got {reprlib.repr(token)} outside of all brackets")
        elif token == ")":
            bracket = stack.pop()
            tree = _close_bracket(bracket, words)
            labels[bracket.first, len(words) - 1] = int(bracket.label or "")
            if stack:
                stack[-1].children.append(tree)
            else:
                root = tree
        elif stack[-1].label is not None:
            stack[-1].words.append(token)
        elif token in LABELS:
            stack[-1].label = token
        else:
            raise ValueError(f"expected a label from 0 to 4 after '(', got {reprlib.repr(token)}")
    if stack:
        raise ValueError(f"expected matching brackets, got {len(stack)} '(' that are never closed")
    if root is None:
        raise ValueError("expected a tree, got an empty line")
    return LabeledTree(tuple(words), root, labels)


def _close_bracket(bracket: _OpenBracket, words: list[str]) -> Tree:
    """Make the tree of a closed bracket; append its word, if it has one, to the words of the sentence."""
    if bracket.label is None:
        raise ValueError("expected a label from 0 to 4 after '(', got ')'")
    if len(bracket.words) == 1 and not bracket.children:
        if not set(bracket.words[0]).isdisjoint(string.whitespace):  # the treebank has other spaces in words
            raise ValueError(f"expected a word without ASCII white space, got {bracket.words[0]!r}")
        words.extend(bracket.words)
        return bracket.first
    if len(bracket.children) != 2 or bracket.words:
        raise ValueError(
            f"expected one word or two nodes in each bracket, got words {reprlib.repr(bracket.words)} and "
            f"{len(bracket.children)} nodes in one that is labeled {bracket.label}"
        )
    return tuple(bracket.children)
