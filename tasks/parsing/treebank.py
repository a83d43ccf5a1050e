"""Read trees in the Penn Treebank's bracket format: their words, shape and labeled constituents.

A file contains trees such as `( (S (NP-SBJ (DT The) (NN cat)) (VP (VBD sat)) (. .)) )`, on any number of
lines. Null elements are removed. By default, words whose part-of-speech tag is not in `WORD_TAGS` are
removed, too: punctuation, currency signs and words with tags that the Penn Treebank does not have. For
treebanks with other tags, the tags to remove are named.
"""

from __future__ import annotations

import io
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import IO, NamedTuple

from ordered_memory.trees import Tree
from tasks.formatting.tables import count_text
from tasks.runs.errors import UserError
from tasks.runs.text_files import ZIP_ERRORS, decode, read_bytes, uncompressed_name, without_copies

WORD_TAGS = {
    *("CC", "CD", "DT", "EX", "FW", "IN", "JJ", "JJR", "JJS", "LS", "MD", "NN", "NNS", "NNP", "NNPS", "PDT"),
    *("POS", "PRP", "PRP$", "RB", "RBR", "RBS", "RP", "SYM", "TO", "UH", "VB", "VBD", "VBG", "VBN", "VBP"),
    *("VBZ", "WDT", "WP", "WP$", "WRB"),
}
"""Tags of words, as in the authors' evaluation."""
PUNCTUATION_TAGS = {"``", "''", ",", ".", ":", "-LRB-", "-RRB-", "$", "#"}
"""Tags of punctuation and currency signs."""
MAX_BYTES = 1 << 30
"""Maximum size of a treebank's text in bytes, decompressed."""
NULL_ELEMENT = "-NONE-"
EXPECTED_LABELS = (
    "expected trees with labels and part-of-speech tags, such as (S (NP (DT the) (NN cat)) (VBZ sleeps))"
)
SUFFIXES = (".mrg", ".tree", ".ptb")
OTHER_SUFFIXES = (".txt",)
"""Files with these suffixes are read if there is no file with one of `SUFFIXES`."""
UNKNOWN_TAGS_ALLOWED = 0.25
"""Largest fraction of words with tags that the Penn Treebank does not have."""
SHOWN_TAGS = 5
"""Maximum number of tags in an error message."""
SHOWN_CHARACTERS = 60
"""Maximum number of characters of a token in an error message."""

TOKEN = re.compile(r"[()]|[^\s()]+", re.ASCII)
LABELED, UNLABELED = re.compile(r"\([^\s()]", re.ASCII), re.compile(r"\(\s+[^\s()]", re.ASCII)
"""A bracket right before a label, or a space before a word."""

NUMBERED = re.compile(r"\d+=.")
"""A word of a discontinuous tree, with its place in the sentence: `(VP (VB 0=Wake) (RP 2=up))`."""

LabeledSpan = tuple[str, int, int]


class TreebankSentence(NamedTuple):
    """A sentence and its true tree.

    Args:
        words: words as written in the treebank.
        tree: over the words; unary constituents are collapsed.
        labeled_spans: label, first and last word of each constituent of two or more words, without
            duplicates, but with all labels of a unary chain. Functional tags are removed: NP-SBJ becomes NP.
        where: file and line, for error messages.
        kept: for each word of the treebank's tree, null elements aside, whether it is one of `words`.
    """

    words: list[str]
    tree: Tree
    labeled_spans: list[LabeledSpan]
    where: str
    kept: Sequence[bool] = ()


class Treebank(NamedTuple):
    """Sentences in the order of the files.

    Args:
        sentences: sentences with at least one word each.
        empty: number of trees without words.
        dropped: number of removed words by tag, null elements excluded.
        drop_tags: the tags whose words were to be removed; None for all but `WORD_TAGS`.
        removed: the number of words of each tree whose words were all removed, by the number of trees before
            it; trees of null elements alone are not counted.
    """

    sentences: list[TreebankSentence]
    empty: int
    dropped: Counter[str]
    drop_tags: Collection[str] | None = None
    removed: Mapping[int, int] = MappingProxyType({})

    @property
    def unknown(self) -> dict[str, int]:
        """The part of `dropped` whose tags the Penn Treebank does not have, the most frequent tag first."""
        expected = PUNCTUATION_TAGS if self.drop_tags is None else self.drop_tags
        return {tag: count for tag, count in self.dropped.most_common() if tag not in expected}


def read_treebank(path: Path, drop_tags: Collection[str] | None = None) -> Treebank:
    """Read all trees of a file, a directory or a zip file.

    Directories and zip files are searched recursively for .mrg, .tree and .ptb files or, if there are none,
    for .txt files. These may be compressed (.mrg.gz, .mrg.bz2, .mrg.xz). Files are read in the order of their
    paths. A zip file is not unpacked to disk. If some files have trees, there is a warning for each one
    without.

    Args:
        path: a file of trees, which may be compressed, a directory, or a file whose name ends in .zip.
        drop_tags: the part-of-speech tags of punctuation, whose words are removed. None for those of the Penn
            Treebank: all but `WORD_TAGS`.
    Returns:
        The sentences.
    Raises:
        UserError: the file does not exist, there are no trees, they have no labels, brackets do not match
            (the message names file and line), there are more than `MAX_BYTES` of text, or `drop_tags` is None
            and more than a quarter of the words have tags that the Penn Treebank does not have.
    """
    dropped: Counter[str] = Counter()
    trees: list[tuple[TreebankSentence | None, int]] = []
    empty_files = []
    for name, text in _texts(path):
        _check_labels(text, name)
        found = list(read_trees(text, name, dropped, drop_tags))
        if not found:
            empty_files.append(name)
        trees += found
    if not trees:
        raise UserError(f"{empty_files[0]}: no trees in this file")
    for name in empty_files:
        print(f"warning: {name}: no trees in this file, which is skipped", file=sys.stderr)
    sentences = [sentence for sentence, _ in trees if sentence is not None]
    of_words = [(sentence, words) for sentence, words in trees if words]
    removed = {place: words for place, (sentence, words) in enumerate(of_words) if sentence is None}
    treebank = Treebank(sentences, len(trees) - len(sentences), dropped, drop_tags, removed)
    unknown, kept = sum(treebank.unknown.values()), sum(len(sentence.words) for sentence in sentences)
    if unknown > UNKNOWN_TAGS_ALLOWED * (unknown + kept):
        raise UserError(
            f"{path}: expected part-of-speech tags of the Penn Treebank, got other ones of {unknown:,} of "
            f"{unknown + kept:,} words: {tags_text(treebank.unknown, SHOWN_TAGS)}; --drop-tags names the "
            "tags of punctuation, and --keep-punctuation keeps the words of every tag"
        )
    if not sentences:
        raise UserError(
            f"{path}: expected words, got {count_text(len(trees), 'tree')} of punctuation and null elements"
        )
    return treebank


def tags_text(tags: dict[str, int], limit: int | None = None) -> str:
    """Format tags with their numbers of words.

    Args:
        tags: number of words by tag, in descending order.
        limit: maximum number of tags to list; None for all.
    Returns:
        For example "HYPH 3, NFP 1".
    Example:
        >>> tags_text({"HYPH": 3_000, "NFP": 1, "ADD": 1}, 2)
        'HYPH 3,000, NFP 1, …'
    """
    listed = [f"{tag[:SHOWN_CHARACTERS]} {count:,}" for tag, count in list(tags.items())[:limit]]
    return ", ".join([*listed, "…"] if len(listed) < len(tags) else listed)


def cut_label(label: str) -> str:
    """Remove functional tags, indices and alternative labels from a label.

    Args:
        label: a label of the treebank.
    Example:
        >>> [cut_label(label) for label in ("NP-SBJ-1", "NP=2", "ADVP|PRT", "-LRB-", "PRP$")]
        ['NP', 'NP', 'ADVP', '-LRB-', 'PRP$']
    """
    return label if label.startswith("-") else re.split(r"[-=|]", label)[0]


def _check_labels(text: str, name: str) -> None:
    """Raise a UserError for trees such as `( the ( old cat ) )`: spaces after brackets, and no known tag.

    Words that follow a bracket would be read as labels and tags.
    """
    is_spaced = UNLABELED.search(text) and not LABELED.search(text)
    if is_spaced and WORD_TAGS.isdisjoint(TOKEN.findall(text)):
        raise UserError(f"{name}: {EXPECTED_LABELS}, got trees without")


@dataclass
class _OpenBracket:
    """An open bracket: the number of words before it, and its content so far."""

    line: int
    start: int
    tokens: list[str] = field(default_factory=list)
    """Its label and, possibly, its word."""
    children: list[Tree | None] = field(default_factory=list)


def read_trees(
    text: str, name: str, dropped: Counter[str], drop_tags: Collection[str] | None = None
) -> Iterator[tuple[TreebankSentence | None, int]]:
    """Read the trees of one text.

    Args:
        text: trees in bracket format.
        name: name of the file, for error messages.
        dropped: the numbers of removed words are added here, by tag.
        drop_tags: the same as for `read_treebank`.
    Yields:
        Each sentence, None for a tree without words; and its number of words before any were removed, null
        elements excluded.
    Raises:
        UserError: a constituent has no label, or brackets do not match.
    Example:
        >>> text = "((S (NP-SBJ (DT The) (NN cat)) (VP (VBD sat)) (. .)))"
        >>> [(sentence, words)] = read_trees(text, "cat.mrg", Counter())
        >>> words, sentence.words, sentence.tree
        (4, ['The', 'cat', 'sat'], ((0, 1), 2))
        >>> sentence.labeled_spans
        [('NP', 0, 1), ('S', 0, 2)]
    """
    stack: list[_OpenBracket] = []
    words: list[str] = []
    kept: list[bool] = []
    spans: dict[LabeledSpan, None] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        where = f"{name}, line {number}"
        for token in TOKEN.findall(line):
            if token == "(":
                if not stack:
                    words, kept, spans = [], [], {}
                stack.append(_OpenBracket(number, len(words)))
            elif token != ")":
                _add_token(stack, token, where)
            elif not stack:
                raise UserError(f"{where}: ')' closes nothing")
            else:
                bracket = stack.pop()
                if stack and not bracket.tokens and len(bracket.children) > 1:
                    raise UserError(f"{where}: {EXPECTED_LABELS}, got a constituent without")
                tree = _close_bracket(bracket, words, kept, spans, where, drop_tags, dropped)
                if stack:
                    stack[-1].children.append(tree)
                else:
                    location = f"{name}, line {bracket.line}"
                    _check_continuous(words, location)
                    sentence = None
                    if tree is not None:
                        sentence = TreebankSentence(words, tree, list(spans), location, kept)
                    yield sentence, len(kept)
    if stack:
        raise UserError(f"{name}, line {stack[0].line}: the first '(' of the tree is never closed")


def _add_token(stack: list[_OpenBracket], token: str, where: str) -> None:
    """Add a label or a word to the innermost bracket."""
    if not stack:
        raise UserError(f"{where}: {token[:SHOWN_CHARACTERS]!r} is outside of all brackets")
    bracket = stack[-1]
    if bracket.children or len(bracket.tokens) == 2:
        raise _missing_tag_error(token, where)
    bracket.tokens.append(token)


def _close_bracket(
    bracket: _OpenBracket,
    words: list[str],
    kept: list[bool],
    spans: dict[LabeledSpan, None],
    where: str,
    drop_tags: Collection[str] | None,
    dropped: Counter[str],
) -> Tree | None:
    """Make the tree of a closed bracket, None if it has no words; add to what its words and spans are in."""
    label = cut_label(bracket.tokens[0]) if bracket.tokens else ""
    if len(bracket.tokens) == 2:
        word = bracket.tokens[1]
        if bracket.children:
            raise _missing_tag_error(word, where)
        if label == NULL_ELEMENT:
            return None
        kept.append(label in WORD_TAGS if drop_tags is None else label not in drop_tags)
        if not kept[-1]:
            dropped[label] += 1
            return None
        words.append(word)
        return len(words) - 1
    if not bracket.children:
        raise UserError(f"{where}: a bracket with neither word nor parts")
    children = tuple(child for child in bracket.children if child is not None)
    if label and len(words) - bracket.start > 1:
        spans[label, bracket.start, len(words) - 1] = None
    return (children[0] if len(children) == 1 else children) if children else None


def _check_continuous(words: Sequence[str], where: str) -> None:
    """Raise a UserError if every word has its place in front of it: the words are out of order, then."""
    if len(words) > 1 and all(map(NUMBERED.match, words)):
        raise UserError(
            f"{where}: expected words, got {words[0][:SHOWN_CHARACTERS]!r}, a word with its place in the "
            "sentence; discontinuous trees cannot be read"
        )


def _missing_tag_error(word: str, where: str) -> UserError:
    return UserError(
        f"{where}: the word {word[:SHOWN_CHARACTERS]!r} has no bracket with a part-of-speech tag of its own"
    )


# ---- files

_HIDDEN = re.compile(r"(^|/)\.[^./]")
"""A part of a path such as `.ipynb_checkpoints`, which has old copies of files, but not `.` and `..`."""


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of each file."""
    try:
        if path.suffix.lower() == ".zip" and path.is_file():
            yield from _texts_of_zip(path)
        elif path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
            names = _choose_files(
                [file.relative_to(path).as_posix() for file in files], f"{path}", "directory"
            )
            yield from _decode_all(path, names, lambda name: (path / name).open("rb"))
        else:
            yield from _decode_all(path, [""], lambda name: path.open("rb"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file or directory") from None


def _texts_of_zip(path: Path) -> Iterator[tuple[str, str]]:
    content = path.read_bytes()  # errors of the disk are raised here, errors of the archive below
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            # A member that was replaced may be listed twice; `open` reads its last version.
            listed = sorted(dict.fromkeys(archive.namelist()), key=PurePosixPath)
            names = _choose_files(listed, f"{path}", "zip file")
            yield from _decode_all(path, names, archive.open)
    except UserError:
        raise
    except ZIP_ERRORS as error:
        raise UserError(
            f"{path}: not a zip file that can be read ({str(error) or type(error).__name__})"
        ) from None


def _decode_all(
    where: Path, names: Iterable[str], open_file: Callable[[str], IO[bytes]]
) -> Iterator[tuple[str, str]]:
    """Yield name and text of each file; refuse files that are too large in total."""
    remaining = MAX_BYTES
    for name in names:
        full_name = f"{where / name}"
        with open_file(name) as file:
            content = read_bytes(file, full_name, remaining)
        remaining -= len(content)
        if remaining < 0:
            raise UserError(f"{full_name}: expected at most {MAX_BYTES:,} bytes of text in all, got more")
        yield full_name, decode(content, full_name)


def _choose_files(names: list[str], where: str, kind: str) -> list[str]:
    """Choose the files with trees; hidden files, and those in hidden directories, are left out."""
    visible = [name for name in without_copies(names) if not _HIDDEN.search(name)]
    for suffixes in (SUFFIXES, OTHER_SUFFIXES):
        chosen = [name for name in visible if uncompressed_name(name).lower().endswith(suffixes)]
        if chosen:
            return chosen
    raise UserError(f"{where}: no {', '.join(SUFFIXES + OTHER_SUFFIXES)} files in this {kind}")
