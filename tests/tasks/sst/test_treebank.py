"""Reading labeled trees, and their nodes as examples."""

import lzma
from collections import Counter

import nltk
import pytest

from ordered_memory.trees import fold
from tasks.runs.errors import UserError
from tasks.sst.treebank import (
    OFFICIAL,
    RETOKENIZED,
    LabeledTree,
    Phrase,
    phrases,
    read_directory,
    read_trees,
    sentences,
)
from tests.small_trees import all_trees

LINES = [
    "(3 (2 It) (4 (2 's) (4 good)))",
    "(1 (2 (2 -LRB-) (2 (3 Fun) (2 -RRB-))) (1 (2 \\/) (0 BAD)))",
    "(2 (2 caf\u00e9) (2 .))",
    "(4 good)",
    "(0 (0 bad) (1 (2 (2 's) (4 Good)) (2 (2 it) (2 's))))",
    "(1 (2 It) (4 (2 's) (3 good)))",
]


@pytest.fixture
def trees(tmp_path):
    path = tmp_path / "trees.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return read_trees(path)


def nodes(tree, first=0):
    """Span, label and words of every node of an nltk tree, children before parents."""
    found, start = [], first
    for child in tree:
        if isinstance(child, nltk.Tree):
            found += nodes(child, start)
            start += len(child.leaves())
    words = tree.leaves()
    return [*found, ((first, first + len(words) - 1), int(tree.label()), words)]


def shape(tree, first=0):
    if not isinstance(tree[0], nltk.Tree):
        return first
    left, right = tree
    return shape(left, first), shape(right, first + len(left.leaves()))


def test_trees_are_those_that_nltk_reads(trees):
    for line, tree in zip(LINES, trees, strict=True):
        expected = nltk.Tree.fromstring(line)
        assert tree.words == tuple(expected.leaves())
        assert tree.tree == shape(expected)
        assert list(tree.labels.items()) == [(span, label) for span, label, _ in nodes(expected)]
        assert tree.label == int(expected.label())


def test_words_end_at_a_blank_only(tmp_path):
    path = tmp_path / "trees.txt"
    path.write_bytes("\ufeff(3 (2 1\u00a01\\/2) (3 a\u2028b\u0085c))\r\n( 2  (1 x )(2 y) )".encode())
    assert read_trees(path) == [
        LabeledTree(("1\u00a01\\/2", "a\u2028b\u0085c"), (0, 1), {(0, 0): 2, (1, 1): 3, (0, 1): 3}),
        LabeledTree(("x", "y"), (0, 1), {(0, 0): 1, (1, 1): 2, (0, 1): 2}),
    ]


def test_a_tree_may_be_as_deep_as_its_sentence_is_long(tmp_path):
    path = tmp_path / "trees.txt"
    path.write_text("(2 (2 a) " * 5_000 + "(2 b)" + ")" * 5_000)
    (tree,) = read_trees(path)
    assert len(tree.words) == 5_001
    assert len(tree.labels) == 10_001


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("(2 (2 a) (2 b)", "expected matching brackets, got 1 '(' that are never closed"),
        ("(2 (2 a) (2 b)))", "expected one tree, got ')' after its end"),
        (")", "got ')' outside of all brackets"),
        ("(2 a) (2 b)", "expected one tree, got '(' after its end"),
        ("(2 a) b", "expected one tree, got 'b' after its end"),
        ("a", "expected '(', got 'a' outside of all brackets"),
        ("(5 a)", "expected a label from 0 to 4 after '(', got '5'"),
        ("(-1 a)", "got '-1'"),
        ("(\u0663 a)", "got '\u0663'"),
        ("(a)", "expected a label from 0 to 4 after '(', got 'a'"),
        ("((2 a) (2 b))", "expected a label from 0 to 4 after '(', got '('"),
        ("(2 ((2 a) (2 b) 1) (2 c))", "expected a label from 0 to 4 after '(', got '('"),
        ("()", "expected a label from 0 to 4 after '(', got ')'"),
        ("(2)", "expected one word or two nodes in each bracket, got words [] and 0 nodes"),
        ("(2 (3 a))", "got words [] and 1 nodes in one that is labeled 2"),
        ("(2 (2 a) (2 b) (2 c))", "got words [] and 3 nodes"),
        ("(2 a b)", "got words ['a', 'b'] and 0 nodes"),
        ("(2 (2 a) b)", "got words ['b'] and 1 nodes"),
        ("(2 (2 a) b (2 c))", "got words ['b'] and 2 nodes"),
        ("(2 (2 a\tb) (2 c))", "expected a word without ASCII white space, got 'a\\tb'"),
        ("", "expected a tree, got an empty line"),
        (" ", "expected a tree, got an empty line"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    path = tmp_path / "train.txt"
    path.write_text(f"(2 a)\n{line}\n(2 b)\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"train.txt, line 2: ") as caught:
        read_trees(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_hold_no_text(tmp_path):
    path = tmp_path / "train.txt"
    with pytest.raises(UserError, match=r"train.txt: no such file"):
        read_trees(path)
    path.write_bytes(b"\n")
    with pytest.raises(UserError, match=r"train.txt: the file is empty"):
        read_trees(path)
    path.write_bytes(b"(2 a)\n(2 caf\xe9)\n")
    with pytest.raises(UserError, match=r"train.txt, line 2: not UTF-8 text"):
        read_trees(path)


def write(directory, **counts):
    for name, count in counts.items():
        (directory / f"{name}.txt").write_text("(3 (2 a) (3 b))\n" * count)


def test_the_official_directory_is_known_by_its_counts(tmp_path):
    write(tmp_path, train=8_544, dev=1_101)
    treebank = read_directory(tmp_path)
    assert (len(treebank.train), len(treebank.validation), treebank.test) == (8_544, 1_101, None)
    write(tmp_path, test=2_210)
    (tmp_path / "test.txt.xz").write_bytes(lzma.compress((tmp_path / "test.txt").read_bytes()))
    (tmp_path / "test.txt").unlink()
    assert len(read_directory(tmp_path).test) == 2_210


@pytest.mark.parametrize(
    ("name", "count", "message"),
    [
        ("train", 9_645, "train and dev in one file; the first 8,544 lines are the training data"),
        *((name.removesuffix(".txt"), count, "tokenized again") for name, count in RETOKENIZED.items()),
        ("dev", 1_100, "not the known edition"),
        ("test", 9_645, "not the known edition"),
    ],
)
def test_other_editions_are_refused_by_name(tmp_path, name, count, message):
    write(tmp_path, **{file.removesuffix(".txt"): number for file, number in OFFICIAL.items()})
    write(tmp_path, **{name: count})
    with pytest.raises(UserError, match=rf"{name}.txt: expected .* lines, got {count:,}: .*{message}"):
        read_directory(tmp_path)


def test_an_edition_is_told_before_its_lines_are_read(tmp_path):
    write(tmp_path, train=8_543, dev=1_101)
    (tmp_path / "train.txt").write_text("(9 a)\n" * 8_527)
    with pytest.raises(UserError, match="tokenized again"):
        read_directory(tmp_path)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(UserError, match=r"none: no such directory; it should hold train.txt, dev.txt"):
        read_directory(tmp_path / "none")
    write(tmp_path, train=8_544)
    with pytest.raises(UserError, match=r"no dev.txt in this directory"):
        read_directory(tmp_path)


BINARY = {0: 0, 1: 0, 3: 1, 4: 1}


@pytest.mark.parametrize("classes", [2, 5])
def test_phrases_are_the_nodes_of_the_trees(trees, classes):
    expected = [
        (Phrase(number, *span, BINARY[label] if classes == 2 else label, 1), words)
        for number, line in enumerate(LINES)
        for span, label, words in nodes(nltk.Tree.fromstring(line))
        if classes == 5 or label != 2
    ]
    assert phrases(trees, classes) == [phrase for phrase, _ in expected]
    keys = [(" ".join(words).lower(), phrase.label) for phrase, words in expected]
    counts = Counter(keys)
    merged = [
        phrase._replace(count=counts[key])
        for place, ((phrase, _), key) in enumerate(zip(expected, keys, strict=True))
        if key not in keys[:place]
    ]
    assert phrases(trees, classes, merge=True) == merged
    assert max(phrase.count for phrase in merged) > 1
    cased = phrases(trees, classes, merge=True, cased=True)
    assert len(merged) <= len(cased)
    assert sum(phrase.count for phrase in cased) == sum(phrase.count for phrase in merged)


def test_phrases_that_differ_in_case_are_merged_unless_case_counts():
    trees = [LabeledTree((word,), 0, {(0, 0): 3}) for word in ("good", "Good")]
    assert [phrase.count for phrase in phrases(trees, 5, merge=True)] == [2]
    assert [phrase.count for phrase in phrases(trees, 5, merge=True, cased=True)] == [1, 1]


def test_equal_phrases_along_other_trees_stay_apart_for_a_model_that_reads_along_them(tmp_path):
    lines = [
        "(3 (2 (2 a) (2 b)) (2 c))",
        "(3 (2 a) (2 (2 b) (2 c)))",
        "(4 (2 d) (3 (2 (2 a) (2 b)) (2 c)))",
    ]
    (tmp_path / "trees.txt").write_text("\n".join(lines))
    trees = read_trees(tmp_path / "trees.txt")
    whole = [
        phrase for phrase in phrases(trees, 2, merge=True, by_tree=True) if phrase.last - phrase.first == 2
    ]
    assert [(phrase.sentence, phrase.first, phrase.count) for phrase in whole] == [(0, 0, 2), (1, 0, 1)]
    merged = [phrase for phrase in phrases(trees, 2, merge=True) if phrase.last - phrase.first == 2]
    assert [phrase.count for phrase in merged] == [3]
    apart, plain = (phrases(trees, 5, merge=True, by_tree=by_tree) for by_tree in (True, False))
    assert sum(phrase.count for phrase in apart) == sum(phrase.count for phrase in plain)
    assert len(apart) == len(plain) + 1


def test_every_tree_over_the_same_words_is_another_example(tmp_path):
    every = all_trees(0, 4)
    lines = [fold(tree, lambda leaf: f"(3 {'abcde'[leaf]})", "(3 {0[0]} {0[1]})".format) for tree in every]
    (tmp_path / "trees.txt").write_text("\n".join(lines * 2))
    merged = phrases(read_trees(tmp_path / "trees.txt"), 5, merge=True, by_tree=True)
    roots = [(phrase.sentence, phrase.count) for phrase in merged if phrase.last - phrase.first == 4]
    assert roots == [(number, 2) for number in range(len(every))]


def test_sentences_are_the_roots(trees):
    assert sentences(trees, 5) == [
        Phrase(number, 0, len(tree.words) - 1, tree.label, 1) for number, tree in enumerate(trees)
    ]
    assert [(phrase.sentence, phrase.label) for phrase in sentences(trees, 2)] == [
        (0, 1), (1, 0), (3, 1), (4, 0), (5, 0),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="expected 2 or 5 classes, got 3"):
        sentences(trees, 3)
