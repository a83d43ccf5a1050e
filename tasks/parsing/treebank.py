"""Trees in the Penn Treebank's bracket format: their words, shape and labelled constituents.

A file holds trees such as `( (S (NP-SBJ (DT The) (NN cat)) (VP (VBD sat)) (. .)) )`, over any number of
lines. Null elements go, and by their part-of-speech tags punctuation and currency signs.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ordered_memory.trees import Tree
from tasks.runs.errors import UserError

WORD_TAGS = {
    *("CC", "CD", "DT", "EX", "FW", "IN", "JJ", "JJR", "JJS", "LS", "MD", "NN", "NNS", "NNP", "NNPS", "PDT"),
    *("POS", "PRP", "PRP$", "RB", "RBR", "RBS", "RP", "SYM", "TO", "UH", "VB", "VBD", "VBG", "VBN", "VBP"),
    *("VBZ", "WDT", "WP", "WP$", "WRB"),
}
"""Tags of words; `` '' , . : -LRB- -RRB- $ # are not among them, as in the authors' evaluation."""
NULL_ELEMENT = "-NONE-"
SUFFIXES = (".mrg", ".txt")

TOKEN = re.compile(r"[()]|[^\s()]+", re.ASCII)

LabelledSpan = tuple[str, int, int]


class Sentence(NamedTuple):
    """A sentence and its true tree.

    Args:
        words: as they stand in the treebank.
        tree: over the words; a constituent with a single part is that part.
        labelled_spans: label, first and last word of every constituent of two words or more, without
            duplicates; all labels of a unary chain. Functional tags are cut: NP-SBJ is NP.
        where: file and line, for errors.
    """

    words: list[str]
    tree: Tree
    labelled_spans: list[LabelledSpan]
    where: str


class Treebank(NamedTuple):
    """Sentences in the order of the files.

    Args:
        sentences: each with a word or more.
        empty: how many trees had no word left.
    """

    sentences: list[Sentence]
    empty: int


def read_treebank(path: Path, keep_punctuation: bool = False) -> Treebank:
    """Read all trees of a file, a directory or a zip file.

    Of a directory or a zip file every .mrg file at any depth is read, or every .txt file where there is no
    .mrg file, in the order of their paths. A zip file is not unpacked to disk.

    Args:
        path: a file of trees, a directory, or a file whose name ends in .zip.
        keep_punctuation: drop null elements only.
    Returns:
        The sentences.
    Raises:
        UserError: no such file, no trees, or something that is no tree; says in which file and line.
    """
    trees = [tree for name, text in _texts(path) for tree in read_trees(text, name, keep_punctuation)]
    sentences = [sentence for sentence in trees if sentence is not None]
    if not sentences:
        raise UserError(f"{path}: {len(trees):,} trees, and no word with a tag of the Penn Treebank in them")
    return Treebank(sentences, len(trees) - len(sentences))


def read_trees(text: str, name: str, keep_punctuation: bool = False) -> list[Sentence | None]:
    """Read the trees of one text.

    Args:
        text: brackets.
        name: of the file, for errors.
        keep_punctuation: drop null elements only.
    Returns:
        Its sentences; None for a tree without words.
    Raises:
        UserError: no trees, or brackets that are none.
    Example:
        >>> (sentence,) = read_trees("((S (NP-SBJ (DT The) (NN cat)) (VP (VBD sat)) (. .)))", "cat.mrg")
        >>> sentence.words, sentence.tree
        (['The', 'cat', 'sat'], ((0, 1), 2))
        >>> sentence.labelled_spans
        [('NP', 0, 1), ('S', 0, 2)]
    """
    trees = list(_read(text.split("\n"), name, keep_punctuation))
    if not trees:
        raise UserError(f"{name}: no trees in this file")
    return trees


def cut_label(label: str) -> str:
    """A label without functional tags, indices and second choices.

    Example:
        >>> [cut_label(label) for label in ("NP-SBJ-1", "NP=2", "ADVP|PRT", "-LRB-", "PRP$")]
        ['NP', 'NP', 'ADVP', '-LRB-', 'PRP$']
    """
    return label if label.startswith("-") else re.split(r"[-=|]", label)[0]


@dataclass
class _Node:
    """A bracket that is open: the words before it, and what it holds so far."""

    line: int
    start: int
    label: str | None = None
    word: str | None = None
    parts: list[Tree | None] = field(default_factory=list)


def _read(lines: Iterable[str], name: str, keep_punctuation: bool) -> Iterator[Sentence | None]:
    nodes: list[_Node] = []
    words: list[str] = []
    spans: dict[LabelledSpan, None] = {}
    for number, line in enumerate(lines, start=1):
        where = f"{name}, line {number}"
        for token in TOKEN.findall(line):
            if token == "(":
                if not nodes:
                    words, spans = [], {}
                nodes.append(_Node(number, len(words)))
            elif token != ")":
                _add(nodes, token, where)
            elif not nodes:
                raise UserError(f"{where}: ')' closes nothing")
            else:
                node = nodes.pop()
                part = _close(node, words, spans, where, keep_punctuation)
                if nodes:
                    nodes[-1].parts.append(part)
                else:
                    started = f"{name}, line {node.line}"
                    yield None if part is None else Sentence(words, part, list(spans), started)
    if nodes:
        raise UserError(f"{name}, line {nodes[0].line}: the '(' that the tree starts with is never closed")


def _add(nodes: list[_Node], token: str, where: str) -> None:
    """A label or a word."""
    if not nodes:
        raise UserError(f"{where}: {token!r} stands outside of all brackets")
    node = nodes[-1]
    if node.label is None and not node.parts:
        node.label = token
    elif node.word is None and not node.parts:
        node.word = token
    else:
        raise UserError(f"{where}: the word {token!r} has no bracket with a part-of-speech tag of its own")


def _close(
    node: _Node, words: list[str], spans: dict[LabelledSpan, None], where: str, keep_punctuation: bool
) -> Tree | None:
    """The tree of a finished bracket, None when nothing of it is left; adds to words and spans."""
    label = cut_label(node.label or "")
    if node.word is not None:
        if node.parts:
            raise UserError(
                f"{where}: the word {node.word!r} has no bracket with a part-of-speech tag of its own"
            )
        if label == NULL_ELEMENT or not (keep_punctuation or label in WORD_TAGS):
            return None
        words.append(node.word)
        return len(words) - 1
    if not node.parts:
        raise UserError(f"{where}: a bracket with neither word nor parts")
    parts = tuple(part for part in node.parts if part is not None)
    if label and len(words) - node.start > 1:
        spans[label, node.start, len(words) - 1] = None
    return (parts[0] if len(parts) == 1 else parts) if parts else None


# ---- files


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """Name and text of every file."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        chosen = _choose([file.relative_to(path).as_posix() for file in files], f"{path}", "directory")
        for name in chosen:
            yield f"{path / name}", _decode((path / name).read_bytes(), f"{path / name}")
    elif path.suffix.lower() == ".zip":
        yield from _members(path)
    else:
        try:
            yield f"{path}", _decode(path.read_bytes(), f"{path}")
        except FileNotFoundError:
            raise UserError(f"{path}: no such file or directory") from None


def _members(path: Path) -> Iterator[tuple[str, str]]:
    try:
        with zipfile.ZipFile(path) as archive:
            for name in _choose(sorted(archive.namelist()), f"{path}", "zip file"):
                yield f"{path}/{name}", _decode(archive.read(name), f"{path}/{name}")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file or directory") from None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise UserError(f"{path}: not a zip file that can be read ({error})") from None


def _choose(names: list[str], where: str, kind: str) -> list[str]:
    """The files of trees among others; hidden ones are left alone."""
    for suffix in SUFFIXES:
        chosen = [
            name
            for name in names
            if name.lower().endswith(suffix) and not PurePosixPath(name).name.startswith(".")
        ]
        if chosen:
            return chosen
    raise UserError(f"{where}: no {' and no '.join(SUFFIXES)} files in this {kind}")


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{name}, line {line}: not UTF-8 text") from None
