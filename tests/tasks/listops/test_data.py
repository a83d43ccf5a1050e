"""What the generator draws, and what files and batches keep of it."""

import bz2
import os
import random
import statistics
from collections import Counter
from itertools import chain

import numpy as np
import pytest
import torch

from tasks.listops import data, expressions, generator
from tasks.listops.config import ListOpsConfig
from tasks.listops.data import Dataset
from tasks.listops.task import LISTOPS
from tasks.runs.errors import UserError


@pytest.fixture(scope="module")
def drawn():
    return generator.generate(100_000, seed=0)


@pytest.fixture(scope="module")
def parts(drawn):
    """Cut from the same 100,000, which it would take seconds to draw again."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(generator, "generate", lambda count, seed: {(100_000, 0): drawn}[count, seed])
        return generator.standard(0)


def words(expression):
    return expressions.decode(expression.tokens)


def nest(text):
    """Read official text into nested pairs of words."""
    pieces = iter(text.split())

    def read():
        piece = next(pieces)
        if piece != "(":
            return piece
        pair = (read(), read())
        assert next(pieces) == ")"
        return pair

    return read()


def value_of(nested):
    """Evaluate nested pairs: the left end of an operator's spine is its word, the right end its bracket."""
    if isinstance(nested, str):
        return int(nested)
    spine, bracket = nested
    assert bracket == "]"
    arguments = []
    while isinstance(spine, tuple):
        spine, argument = spine
        arguments.append(value_of(argument))
    return {
        "[MIN": lambda: min(arguments),
        "[MAX": lambda: max(arguments),
        "[MED": lambda: int(statistics.median(arguments)),
        "[SM": lambda: sum(arguments) % 10,
    }[spine]()


def argument_counts(tokens):
    open_counts, counts = [], []
    for token in tokens:
        if token == "]":
            counts.append(open_counts.pop())
        if token in expressions.OPERATORS:
            open_counts.append(0)
        elif open_counts:
            open_counts[-1] += 1
    return counts


def plain_draw(rng, depth, max_depth, max_args):
    """The distribution as it is described, one node at a time."""
    if depth < max_depth and rng.random() < 0.25:
        arguments = [plain_draw(rng, depth + 1, max_depth, max_args) for _ in range(rng.randint(2, max_args))]
        return [rng.choice(expressions.OPERATORS), *chain.from_iterable(arguments), "]"]
    return [str(rng.randrange(10))]


# Over the seeds 0..19 (mean ± standard deviation) the 100,000 have median 16, mean 42.74 ± 0.27, 90th
# percentile 106.7 ± 1.1; the 10,000 for testing median 15.7 ± 0.4, mean 42.6 ± 0.8, 90th percentile
# 105.6 ± 2.7.
def test_lengths_are_those_of_the_published_data(drawn, parts):
    lengths = np.array([len(expression.tokens) for expression in drawn])
    assert np.median(lengths) == 16
    assert lengths.mean() == pytest.approx(42.8, abs=1.0)
    assert np.percentile(lengths, 90) == pytest.approx(107, abs=4)
    assert 900 < lengths.max() < 2500
    test = np.array([len(expression.tokens) for expression in parts.test])
    assert np.median(test) == pytest.approx(16, abs=1)
    assert test.mean() == pytest.approx(42.8, abs=3)
    assert np.percentile(test, 90) == pytest.approx(107, abs=10)


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        (generator.Limits(), 10_000),
        (generator.Limits(max_depth=4, max_args=10, min_length=20, max_length=60), 2_000),
    ],
)
def test_distribution_is_that_of_the_plain_recursive_generator(limits, count):
    rng, plain = random.Random(1), set()
    while len(plain) < count:
        tokens = plain_draw(rng, 1, limits.max_depth, limits.max_args)
        if limits.min_length <= len(tokens) <= (limits.max_length or len(tokens)):
            plain.add(tuple(tokens))
    fast = [words(expression) for expression in generator.generate(count, seed=1, **limits._asdict())]
    for feature in (
        len,
        lambda tokens: expressions.parse(tokens).depth,
        lambda tokens: expressions.parse(tokens).value,
        lambda tokens: len(argument_counts(tokens)),
    ):
        ours, theirs = (np.sort([feature(tokens) for tokens in sample]) for sample in (fast, list(plain)))
        grid = np.union1d(ours, theirs)
        gap = np.searchsorted(ours, grid, "right") - np.searchsorted(theirs, grid, "right")
        assert np.abs(gap).max() / count < 1.95 * np.sqrt(2 / count)  # Kolmogorov-Smirnov, one in a thousand


def test_every_choice_is_uniform(drawn):
    counts = Counter(token for expression in drawn[:30_000] for token in words(expression))
    operators, digits = counts["]"], sum(counts[token] for token in expressions.DIGITS)
    assert all(counts[token] / operators == pytest.approx(0.25, abs=0.005) for token in expressions.OPERATORS)
    assert all(counts[token] / digits == pytest.approx(0.1, abs=0.002) for token in expressions.DIGITS)


def test_every_label_is_the_value(parts):
    for expression in parts.test:
        assert value_of(nest(expressions.to_official(words(expression)))) == expression.label


def test_arguments_and_depth_are_bounded(drawn):
    tokens = [words(expression) for expression in drawn[:20_000]]
    assert {count for expression in tokens for count in argument_counts(expression)} == {2, 3, 4, 5}
    assert max(expressions.parse(one).depth for one in tokens) <= 19


def test_depth_bound_is_reached_and_kept():
    drawn = generator.generate(3_000, seed=0, max_depth=4)
    assert Counter(expressions.parse(words(expression)).depth for expression in drawn).keys() == {
        0,
        1,
        2,
        3,
    }


def test_nothing_is_drawn_twice_and_parts_are_disjoint(drawn, parts):
    assert len({expression.tokens for expression in drawn}) == len(drawn) == 100_000
    assert [len(parts.validation), len(parts.test)] == [5_000, 10_000]
    texts = [{expression.tokens for expression in part} for part in parts]
    assert sum(map(len, texts)) == len(set.union(*texts))


def test_the_parts_are_cut_from_what_is_drawn_and_a_tenth_is_above_a_hundred_tokens(drawn, parts):
    assert (parts.validation, parts.train, parts.test) == (drawn[:5_000], drawn[5_000:90_000], drawn[90_000:])
    for part in parts:
        lengths = np.array([len(expression.tokens) for expression in part])
        assert 0.88 < (lengths <= 100).mean() < 0.91
        assert lengths.max() > 500


@pytest.mark.parametrize("source", ["drawn", "official files", "Long Range Arena"])
def test_only_training_and_validation_are_cut_in_length(tmp_path, drawn, source):
    first, second, third = (Dataset(drawn[i : i + 400]) for i in (0, 400, 800))
    directory = None if source == "drawn" else tmp_path
    if source == "official files":
        data.write_tsv(tmp_path / data.TRAIN_FILE, first)
        data.write_tsv(tmp_path / data.TEST_FILE, second)
    elif source == "Long Range Arena":
        for name, part in zip(data.LONG_RANGE_ARENA, (first, second, third), strict=True):
            longer = part.select(part.lengths > 1)
            write_long_range_arena(tmp_path / name, longer)
    whole = data.load(directory, seed=3, count=2_000, validation=100)
    splits = LISTOPS.load_splits(
        ListOpsConfig(data_dir=directory, seed=3, expressions=2_000, validation_size=100, max_train_length=50)
    )
    assert equal(splits.train, whole.train.select(whole.train.lengths <= 50))
    assert equal(splits.validation, whole.validation.select(whole.validation.lengths <= 50))
    assert equal(splits.test, whole.test)
    assert all(len(part) > 0 and max(part.lengths) > 50 for part in whole)


def test_order_says_nothing_about_length(parts):
    # Without a shuffle the ten digits would all be in one part and the last rows would be the longest.
    places = [i for i, e in enumerate(generator.generate(1_000, seed=2)) if len(e.tokens) == 1]
    assert len(places) == 10
    assert max(places) > 500


def test_seed_determines_everything():
    first = generator.generate(500, seed=7)
    assert first == generator.generate(500, seed=7)
    assert first != generator.generate(500, seed=8)
    assert generator.hard_test("10-args", 20, seed=7) == generator.hard_test("10-args", 20, seed=7)
    assert generator.hard_test("10-args", 20, seed=7) != generator.hard_test("10-args", 20, seed=8)


def test_a_terminal_shows_how_many_expressions_are_generated(monkeypatch, capsys):
    generator.generate(7, seed=1)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    generator.generate(7, seed=1)
    assert "generating:   0%|" in capsys.readouterr().err


def test_hard_tests_of_one_seed_are_independent(monkeypatch):
    seeds = []
    monkeypatch.setattr(generator, "generate", lambda count, seed, **limits: seeds.append(seed))
    for name in generator.HARD_TESTS:
        generator.hard_test(name, 1, seed=7)
    assert len(set(seeds)) == len(generator.HARD_TESTS)


@pytest.mark.parametrize("name", generator.HARD_TESTS)
def test_hard_tests_keep_their_limits(name):
    limits = generator.HARD_TESTS[name]
    drawn = generator.hard_test(name, 50, seed=0)
    assert len({expression.tokens for expression in drawn}) == 50
    for expression in drawn:
        tokens = words(expression)
        assert limits.min_length <= len(tokens) <= limits.max_length
        assert expressions.parse(tokens).depth < limits.max_depth
        assert 2 <= min(argument_counts(tokens)) <= max(argument_counts(tokens)) <= limits.max_args
        assert value_of(nest(expressions.to_official(tokens))) == expression.label
    assert max(count for e in drawn for count in argument_counts(words(e))) == limits.max_args


def test_hard_tests_cover_the_literature():
    assert list(generator.HARD_TESTS.items()) == [
        *((f"{n}-{n + 100}", (20, 5, n, n + 100)) for n in range(200, 1000, 100)),
        ("10-args", (9, 10, 100, 1000)),
        ("15-args", (9, 15, 100, 1000)),
        ("lra", (10, 10, 501, 1999)),
        ("operators", (2, 15, 4, 17)),
    ]
    with pytest.raises(ValueError, match="unknown test '20-args': expected one of 200-300, "):
        generator.hard_test("20-args", 1, seed=0)


def test_the_test_of_operators_has_every_operator_and_number_of_arguments_equally_often():
    drawn = [words(expression) for expression in generator.hard_test("operators", 5_600, seed=0)]
    assert {expressions.parse(tokens).depth for tokens in drawn} == {1}
    counts = Counter((tokens[0], len(tokens) - 2) for tokens in drawn)
    assert set(counts) == {(operator, n) for operator in expressions.OPERATORS for n in range(2, 16)}
    # Of two digits there are 100 a cell, and none is drawn twice.
    assert all(counts[operator, 2] <= 100 for operator in expressions.OPERATORS)
    assert all(60 < count < 145 for (_, n), count in counts.items() if n > 2)  # 100 ± 4.5 deviations


def test_groups_are_by_length_depth_and_for_flat_expressions_by_operator_and_arguments():
    texts = ["[MAX 1 2 ]", "[MAX 3 4 ]", "[SM 1 2 3 ]", "[MIN 1 [MED 1 2 ] ]", "7"]
    groups = {
        title: {name: np.flatnonzero(mask).tolist() for name, mask in masks.items() if mask.any()}
        for title, masks in LISTOPS.accuracy_groups(ListOpsConfig(), Dataset.from_texts(texts)).items()
    }
    assert groups == {
        "tokens": {"1–20": [0, 1, 2, 3, 4]},
        "depth": {"0": [4], "1": [0, 1, 2], "2": [3]},
        "arguments × operator, flat expressions": {"2 × MAX": [0, 1], "3 × SM": [2]},
    }
    assert list(LISTOPS.accuracy_groups(ListOpsConfig(), Dataset.from_texts(texts[3:]))) == [
        "tokens",
        "depth",
    ]


def test_too_many_to_exist_is_an_error(monkeypatch):
    monkeypatch.setattr(generator, "PATIENCE", 20_000)
    with pytest.raises(ValueError, match=r"count=11: found only 10 different .*max_length=1; "):
        generator.generate(11, seed=0, max_length=1)


def test_new_expressions_that_are_rare_are_waited_for(monkeypatch):
    monkeypatch.setattr(generator, "PATIENCE", 1)  # a single block of draws without a new one is too many
    drawn = generator.generate(300, seed=0, max_depth=2, max_args=2)  # of 410, and the first block has fewer
    assert len({expression.tokens for expression in drawn}) == 300


def test_a_depth_of_one_gives_digits():
    assert sorted(e.label for e in generator.generate(10, seed=0, max_depth=1)) == list(range(10))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"count": -1}, "count must be at least 0, not -1"),
        ({"count": 1, "max_depth": 0}, "max_depth must be at least 1, not 0"),
        ({"count": 1, "max_args": 1}, "max_args must be at least 2, not 1"),
        ({"count": 1, "min_length": 0}, "min_length must be at least 1, not 0"),
        ({"count": 1, "min_length": 9, "max_length": 8}, "max_length=8 is less than min_length=9"),
        ({"count": 1, "min_length": 2, "max_depth": 1}, "min_length=2 is impossible with max_depth=1"),
    ],
)
def test_impossible_requests_are_refused(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        generator.generate(seed=0, **arguments)


@pytest.mark.parametrize("validation", [-1, 90])
def test_validation_must_leave_something_to_train_on(validation):
    with pytest.raises(ValueError, match=rf"must be at least 0 and below 90, got {validation}"):
        generator.standard(0, count=100, validation=validation)


# Data sets and batches


@pytest.fixture(scope="module")
def dataset(drawn):
    return Dataset(drawn[:300])


def equal(left, right):
    return left.expressions == right.expressions and np.array_equal(left.labels, right.labels)


def test_dataset_holds_what_was_drawn(drawn, dataset):
    assert len(dataset) == 300
    assert dataset.lengths.tolist() == [len(expression.tokens) for expression in drawn[:300]]
    assert [dataset.tokens_of(i) for i in range(300)] == [words(expression) for expression in drawn[:300]]
    with pytest.raises(IndexError, match=r"index 300 is not in 0\.\.299"):
        dataset.tokens_of(300)


def test_selecting_by_indices_and_by_mask(dataset):
    chosen = dataset.select([7, 2, 2])
    assert [chosen.tokens_of(i) for i in range(3)] == [dataset.tokens_of(i) for i in (7, 2, 2)]
    assert chosen.labels.tolist() == dataset.labels[[7, 2, 2]].tolist()
    mask = dataset.lengths > 20
    assert equal(dataset.select(mask), dataset.select(np.flatnonzero(mask)))
    assert len(dataset.select([])) == 0
    with pytest.raises(ValueError, match=r"a mask must have the shape \(300,\), not \(2,\)"):
        dataset.select([True, False])


def test_batches_are_padded_on_the_right_with_nothing_else(dataset):
    indices = np.array([5, 250, 3, 3])
    batch = dataset.batch(indices)
    assert {tensor.dtype for tensor in batch[:3]} == {torch.int64}
    assert batch.trees is None
    assert batch.tokens.shape == (4, dataset.lengths[indices].max())
    assert torch.equal(batch.lengths, torch.from_numpy(dataset.lengths[indices]))
    assert torch.equal(batch.labels, torch.from_numpy(dataset.labels[indices]))
    for row, length, index in zip(batch.tokens, batch.lengths, indices, strict=True):
        assert row[:length].tolist() == [expressions.IDS[token] for token in dataset.tokens_of(index)]
        assert not row[length:].any()
    assert dataset.batch([]).tokens.shape == (0, 0)


# Files


def test_file_reads_back_and_is_official(tmp_path, dataset):
    path = tmp_path / "some.tsv"
    data.write_tsv(path, dataset)
    assert equal(data.read_tsv(path), dataset)
    label, text = path.read_text().splitlines()[0].split("\t")
    assert int(label) == dataset.labels[0]
    assert text == expressions.to_official(dataset.tokens_of(0))
    with pytest.raises(UserError, match="no such directory to write to"):
        data.write_tsv(tmp_path / "missing" / "some.tsv", dataset)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_flat_text_and_either_line_ending_are_read(tmp_path, ending):
    path = tmp_path / "some.tsv"
    path.write_bytes(f"9\t[MAX 2 9 ]{ending}3\t3{ending}".encode())
    assert data.read_tsv(path).labels.tolist() == [9, 3]


def write_long_range_arena(path, dataset):
    rows = [
        f"{expressions.to_official(dataset.tokens_of(i))}\t{dataset.labels[i]}\r\n"
        for i in range(len(dataset))
    ]
    path.write_bytes("".join(["Source\tTarget\r\n", *rows]).encode())


def test_files_of_long_range_arena_are_read(tmp_path, drawn):
    chosen = [one for one in drawn if len(one.tokens) > 1][:120]
    parts = [Dataset(chosen[i : i + 40]) for i in (0, 40, 80)]
    for name, part in zip(data.LONG_RANGE_ARENA, parts, strict=True):
        write_long_range_arena(tmp_path / name, part)
        assert equal(data.read_tsv(tmp_path / name), part)
    splits = data.load(tmp_path, seed=1)
    assert all(equal(ours, part) for ours, part in zip(splits, parts, strict=True))
    (tmp_path / "basic_val.tsv").unlink()
    with pytest.raises(UserError, match=r": no basic_val\.tsv in this directory"):
        data.load(tmp_path, seed=1)
    write_long_range_arena(tmp_path / "basic_val.tsv", parts[1].select([]))
    with pytest.raises(UserError, match=r"basic_val\.tsv: the file is empty"):
        data.load(tmp_path, seed=1)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("3", "expected 2 columns, label TAB expression, not 1"),
        ("3\t3\t3", "expected 2 columns, label TAB expression, not 3"),
        ("", "expected 2 columns, label TAB expression, not 1"),
        ("12\t3", "the label must be one of 0..9, not '12'"),
        ("x\t3", "the label must be one of 0..9, not 'x'"),
        (
            "3\t[MUL 3 1 ]",
            "unknown token '[MUL' at position 0: expected one of [MIN [MAX [MED [SM ] 0 1 2 3 4 5 6 7 8 9",
        ),
        ("3\t[MAX 3 1", "operator '[MAX' at position 0 has no closing ']'"),
        ("3\t( [MAX 3 1 ]", "unbalanced parentheses: 1 '(' but 0 ')'"),
        ("3\t", "the expression is empty"),
        ("[MAX 5 1 ]\tfive", "the label must be one of 0..9, not 'five'"),
        ("3\t[MAX 5 1 ]", "the label is 3 but the expression evaluates to 5"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, complaint):
    path = tmp_path / "some.tsv"
    path.write_text(f"3\t3\n{line}\n4\t4\n")
    with pytest.raises(UserError) as caught:
        data.read_tsv(path)
    assert str(caught.value) == f"{path}, line 2: {complaint}"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, ": no such file"), (b"", ": the file is empty"), (b"3\t\xff", ", line 1: not UTF-8 text")],
)
def test_unreadable_files_are_named(tmp_path, content, complaint):
    path = tmp_path / "some.tsv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        data.read_tsv(path)
    assert str(caught.value) == f"{path}{complaint}"


def test_a_failed_write_leaves_the_old_file_alone(tmp_path, dataset, monkeypatch):
    path = tmp_path / "some.tsv"
    path.write_text("old")
    tenth = dataset.tokens_of(9)

    def failing(tokens):
        assert path.read_text() == "old"
        if tokens == tenth:
            raise KeyboardInterrupt
        return expressions.to_official(tokens)

    monkeypatch.setattr(data, "to_official", failing)
    with pytest.raises(KeyboardInterrupt):
        data.write_tsv(path, dataset)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["some.tsv"]


# The three parts


def test_load_generates_without_a_directory():
    splits = data.load(seed=3, count=2_000, validation=100)
    expected = generator.standard(3, 2_000, validation=100)
    for ours, theirs in zip(splits, expected, strict=True):
        assert equal(ours, Dataset(theirs))


def test_load_reads_official_files(tmp_path, drawn):
    whole, test = (Dataset(some) for some in (drawn[:300], drawn[300:340]))
    data.write_tsv(tmp_path / data.TRAIN_FILE, whole)
    data.write_tsv(tmp_path / data.TEST_FILE, test)
    plain = tmp_path / data.TEST_FILE
    plain.with_name(f"{plain.name}.bz2").write_bytes(bz2.compress(plain.read_bytes()))
    plain.unlink()
    splits = data.load(tmp_path, seed=5, validation=50)
    assert [len(part) for part in splits] == [250, 50, 40]
    assert equal(splits.test, test)
    assert equal(data.read_test(tmp_path), test)
    held = [tuple(splits.validation.tokens_of(i)) for i in range(50)]
    trained = [tuple(splits.train.tokens_of(i)) for i in range(250)]
    assert sorted(held + trained) == sorted(tuple(whole.tokens_of(i)) for i in range(300))
    assert not equal(data.load(tmp_path, seed=6, validation=50).validation, splits.validation)
    with pytest.raises(ValueError, match="must be at least 0 and below 300, the number of lines"):
        data.load(tmp_path, seed=5, validation=300)


def test_missing_files_are_named(tmp_path, dataset):
    with pytest.raises(
        UserError, match=r"nowhere: no such directory; it should hold train_d20s\.tsv, test_d20s"
    ):
        data.load(tmp_path / "nowhere", seed=0)
    data.write_tsv(tmp_path / data.TRAIN_FILE, dataset)
    with pytest.raises(UserError, match=r": no test_d20s\.tsv in this directory"):
        data.load(tmp_path, seed=0)
