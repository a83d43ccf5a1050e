"""Data of the logic task: files, splits, generated pairs, batches."""

import gzip
import re

import numpy as np
import pooch
import pytest

from tasks.logic import download
from tasks.logic.data import (
    PATTERNS,
    Dataset,
    file_names,
    make_pair,
    matches,
    read_directory,
    read_file,
    split,
    write_directory,
)
from tasks.logic.formulas import RELATIONS, TABLES, TAUTOLOGY, decode, parse, relation
from tasks.logic.generator import generate, longer
from tasks.runs.errors import UserError
from tests.served import served


def flat(groups):
    return [pair for group in groups for pair in group]


def test_generated_pairs_are_what_they_are_said_to_be(groups):
    train, tests = groups
    pairs = flat(train) + flat(tests)
    assert len(set(pairs)) == len(pairs)
    for number, (learnt, tested) in enumerate(zip(train, tests, strict=True)):
        assert len(learnt) == int(0.85 * (len(learnt) + len(tested)))
        assert all(min(pair.operations, 12) == number for pair in [*learnt, *tested])
    for pair in pairs:
        formulas = [parse(decode(clause)) for clause in (pair.left, pair.right)]
        assert all(formula.table not in (0, TAUTOLOGY) for formula in formulas)
        assert relation(formulas[0].table, formulas[1].table) == RELATIONS[pair.label]
        assert pair.operations == max(formula.operations for formula in formulas)
        assert len(set(decode(pair.left + pair.right)) & set(TABLES)) <= 4
    assert generate(6_000, seed=3) == groups
    assert generate(6_000, seed=4) != groups


def test_generated_pairs_are_distributed_as_the_official_ones(groups):
    """Against the frequencies of the 249,069 official pairs."""
    pairs = flat(groups[0]) + flat(groups[1])
    relations = np.bincount([pair.label for pair in pairs], minlength=7) / len(pairs)
    official = {"<": 0.110, ">": 0.110, "=": 0.019, "^": 0.018, "|": 0.107, "#": 0.531, "v": 0.107}
    # Doubles are dropped, so a small draw has more of the short pairs, where # is most common.
    assert np.abs(relations - [official[sign] for sign in RELATIONS]).max() < 0.06


def test_generated_formulas_have_as_many_of_each_operator_as_they_should(groups):
    pairs = [pair for part in groups for group in part[4:] for pair in group]  # few of which are doubles
    texts = [" ".join(decode(clause)) for pair in pairs for clause in (pair.left, pair.right)]
    counts = {word: sum(text.count(word) for text in texts) for word in ("( and", "( or", "( not")}
    assert counts["( and"] / counts["( or"] == pytest.approx(1, abs=0.05)
    variables = sum(len(re.findall(r"\b[a-f]\b", text)) for text in texts)
    negated = sum(len(re.findall(r"not [a-f]\b", text)) for text in texts)
    assert negated / variables == pytest.approx(1 / 3, abs=0.05)
    # A budget of 12 is enough for three operators inside one another, 7 in all, and no more.
    assert max(text.count("and") + text.count("or") for text in texts) == 7


def test_longer_pairs():
    pairs = longer(15, 20, seed=1)
    assert len(set(pairs)) == 20
    assert all(pair.operations == 15 for pair in pairs)
    assert pairs == longer(15, 20, seed=1) != longer(15, 20, seed=2)
    with pytest.raises(UserError, match="the number of pairs must be at least 1, got 0"):
        longer(15, 0, seed=1)
    with pytest.raises(UserError, match="the seed must not be negative, got -1"):
        generate(10, seed=-1)
    train, tests = generate(1, seed=0)  # the smallest of both
    assert len(flat(train) + flat(tests)) == 1


def test_what_cannot_be_drawn_is_an_error(monkeypatch):
    monkeypatch.setattr("tasks.logic.generator.PATIENCE", 50)
    with pytest.raises(UserError, match="found only 0 of 1 pairs with 60 operations"):
        longer(60, 1, seed=1)


def structure(tokens):
    """Nested lists as the parentheses have them."""
    stack = [[]]
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    return stack[0][0]


def right_operands(node):
    """(operator, right operand) of every binary node."""
    if isinstance(node, list):
        if node[0] in ("and", "or"):
            yield node[0], node[1]
        for part in node:
            yield from right_operands(part)


def by_tree(pair, name):
    found = [
        operand for clause in (pair.left, pair.right) for operand in right_operands(structure(decode(clause)))
    ]
    negations = [(operator, right) for operator, right in found if right[0] == "not"]
    if name == "A":
        return ("and", ["not", "a"]) in negations
    return any(operator == "and" or name == "C" for operator, _ in negations)


@pytest.mark.parametrize("name", ["A", "B", "C"])
def test_a_split_leaves_out_what_the_parse_tree_says(groups, name):
    pairs = flat(groups[0])
    found = [matches(pair, PATTERNS[name]) for pair in pairs]
    assert found == [by_tree(pair, name) for pair in pairs]
    assert 0 < sum(found) < len(found)


def test_splits(groups):
    train, tests = groups
    short = [pair for group in train[:7] for pair in group]
    full = split(train, tests, "full")
    assert full.left_out is None
    assert full.validation == short[9::10]
    assert full.train == [pair for i, pair in enumerate(short) if i % 10 != 9]
    assert full.tests == tests
    part = split(train, tests, "C")
    kept = [pair for pair in short if not matches(pair, PATTERNS["C"])]
    # What is left out goes first, then every tenth is held out.
    assert part.validation == kept[9::10]
    assert sorted(part.train + part.validation) == sorted(kept)
    assert part.tests == tests
    assert flat(part.left_out) == [pair for pair in flat(tests) if matches(pair, PATTERNS["C"])]


def test_files_come_back_as_they_were_written(tmp_path, groups):
    directory = tmp_path / "new" / "logic"
    write_directory(directory, *groups)
    train, tests = groups
    assert read_directory(directory) == (train[:7], tests)
    for name in {path.name for path in directory.iterdir()} - set(file_names()):
        assert read_file(directory / name) == train[int(name.removeprefix("train"))]
    whole = directory / "train3"
    whole.with_name("train3.gz").write_bytes(gzip.compress(whole.read_bytes()))
    whole.unlink()
    assert read_directory(directory) == (train[:7], tests)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("#\ta", "expected 3 columns"),
        ("?\ta\tb", "the relation must be one of"),
        ("=\ta\tb", "the relation is =, but these formulas have the relation #"),
        ("#\ta\t( b", "right formula: 1 unmatched ( at the end"),
        ("#\ta\tg", "right formula: unknown word 'g' at token 1"),
        ("", "expected 3 columns"),
    ],
)
def test_a_bad_row_names_file_and_line(tmp_path, line, message):
    path = tmp_path / "train0"
    path.write_text(f"#\ta\tb\n{line}\n#\ta\tb\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"train0, line 2: ") as caught:
        read_file(path)
    assert message in str(caught.value)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        read_file(tmp_path / "none")
    with pytest.raises(UserError, match="no such directory"):
        read_directory(tmp_path / "none")
    (tmp_path / "train0").write_text("")
    with pytest.raises(UserError, match="no train1, train2"):
        read_directory(tmp_path)
    (tmp_path / "bad").write_bytes(b"\xff\t")
    with pytest.raises(UserError, match="bad, line 1: not UTF-8 text"):
        read_file(tmp_path / "bad")


def test_a_batch_holds_the_formulas_padded(groups):
    pairs = flat(groups[0])[:50]
    batch = Dataset(pairs).batch([4, 40, 0])
    clauses = [pairs[i].left for i in (4, 40, 0)] + [pairs[i].right for i in (4, 40, 0)]
    assert batch.lengths.tolist() == [len(clause) for clause in clauses]
    for row, clause in zip(batch.tokens.tolist(), clauses, strict=True):
        assert row == [*clause, *[0] * (len(row) - len(clause))]
    assert batch.tokens.shape[1] == max(map(len, clauses))
    assert batch.labels.tolist() == [pairs[i].label for i in (4, 40, 0)]
    assert batch.trees is None


def test_a_batch_of_trees_has_every_node_once(groups):
    pairs = [*flat(groups[0])[-30:], make_pair("a", "b")]
    batch = Dataset(pairs, include_trees=True).batch(np.arange(len(pairs))[::-1])
    trees, longest = batch.trees, batch.tokens.shape[1]
    clauses = [pair.left for pair in pairs[::-1]] + [pair.right for pair in pairs[::-1]]
    waiting = [[] for _ in range(len(trees.sizes) + 1)]
    nodes, count = trees.words.tolist(), 0
    for height, (parents, sizes) in enumerate(zip(trees.parents, trees.sizes, strict=True)):
        if height:
            children = [waiting[height][position] for position in trees.children[height - 1].tolist()]
            nodes = list(zip(children[: len(children) // 2], children[len(children) // 2 :], strict=True))
        assert len(nodes) == sum(sizes)
        assert parents == sorted(set(parents))
        count += len(nodes)
        for parent, size in zip(parents, sizes, strict=True):
            waiting[parent] += nodes[:size]
            nodes = nodes[size:]
    for row, (clause, root) in enumerate(zip(clauses, trees.roots.tolist(), strict=True)):
        tokens = decode(clause)
        words = [row * longest + place for place, token in enumerate(tokens) if token not in "()"]
        assert waiting[-1][root] == with_leaves(parse(tokens).tree, words)
    assert count == 2 * len(trees.words) - len(clauses)


def with_leaves(tree, leaves):
    return leaves[tree] if isinstance(tree, int) else tuple(with_leaves(part, leaves) for part in tree)


def test_official_files_are_fetched_once_and_checked(tmp_path, monkeypatch):
    home, cache = tmp_path / "home", tmp_path / "cache"
    train, tests = generate(300, seed=1)
    write_directory(home, train, tests)
    registry = tmp_path / "checksums.txt"
    registry.write_text(
        "".join(f"{name} sha256:{pooch.file_hash(str(home / name))}\n" for name in file_names())
    )
    monkeypatch.setattr(download, "CHECKSUMS", registry)
    monkeypatch.setattr(download, "cache_directory", lambda name: cache)
    with served(home) as url:
        monkeypatch.setattr(download, "HOME", url)
        assert read_directory(download.fetch()) == (train[:7], tests)
        (cache / "train3").write_text("changed")
        (home / "train4").write_text("tampered")
        assert read_directory(download.fetch()) == (train[:7], tests)
        (cache / "train4").unlink()
        with pytest.raises(UserError, match=r"cannot download .*train4 .*--data-dir"):
            download.fetch()
    (cache / "train5").unlink()
    with pytest.raises(UserError, match=r"cannot download .*--generated 500000"):
        download.fetch()


def test_the_checksums_are_of_the_official_files():
    names = [line.split()[0] for line in download.CHECKSUMS.read_text().splitlines()]
    assert names == file_names()
