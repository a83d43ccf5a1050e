"""Reading minimal pairs."""

import gzip
import json
import pickle
from collections import Counter

import pytest

from tasks.runs.errors import UserError
from tasks.syntax_eval.pairs import MinimalPair, read_pairs, spread
from tests.tasks.syntax_eval.tiny import pair, write_lines


def test_plain_compressed_and_blimp_in_a_directory(tmp_path):
    intrusive = pair("no author laughs", "the author laughs", "npi", intrusive="an author laughs")
    write_lines(tmp_path / "b.jsonl", pair("the author laughs", "the author laugh"), "", intrusive)
    blimp = {"sentence_good": "They laugh.", "sentence_bad": "They laughs.", "UID": "agreement"}
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write(json.dumps(blimp | {"linguistics_term": "subcommands"}) + "\n")
        file.write(json.dumps({"good": "x", "bad": "y"}))
    (tmp_path / "notes.txt").write_text("not read")
    (tmp_path / "b.jsonl.xz").write_text("a copy of b.jsonl, not read")
    (tmp_path / "._b.jsonl").write_bytes(b"\0\x05\x16\x07\xff: what macOS writes beside files, not read")
    assert read_pairs(tmp_path) == [
        MinimalPair("agreement", "They laugh.", "They laughs.", None, "subcommands"),
        MinimalPair("a", "x", "y"),
        MinimalPair("simple_agrmt", "the author laughs", "the author laugh"),
        MinimalPair("npi", "no author laughs", "the author laughs", "an author laughs"),
    ]
    assert read_pairs(tmp_path / "a.jsonl.gz") == read_pairs(tmp_path)[:2]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{good", "not JSON"),
        ("[1]", "expected a JSON object, got [1]"),
        (
            {"good": "a", "case": "b"},
            "expected the fields good and bad or sentence_good and sentence_bad",
        ),
        (pair("a", 3), "expected bad to be a string, got 3"),
        (pair("a", "b", ["c"]), "expected case to be a string, got ['c']"),
        (pair("a", "b", intrusive=3), "expected intrusive to be a string, got 3"),
        (pair("a", None), "expected bad to be a string, got None"),
        (pair("a", "b", key=1), "expected key to be a string, got 1"),
        (pair("", "b"), "expected words in good, got ''"),
        (pair("a", " . "), "expected words in bad, got ' . '"),
        (pair("a b", "a b"), "expected two different sentences, got 'a b' twice"),
        (pair("a", "\ud800 b"), "bad: expected Unicode text, got '\\ud800' as character 1"),
        (pair("a", "b", "c\udfff"), "case: expected Unicode text, got '\\udfff' as character 2"),
        (
            '{"good": ' + "[" * 100_000 + "]" * 100_000 + "}",
            "not JSON (brackets are nested too deep)",
        ),
        ("1" * 5_000, "not JSON"),
        (pair("a", "b" * (1 << 20)), "expected at most 1,048,576 bytes, got more"),
        ('{"good": "a", "bad": "' + "ü" * (1 << 19) + '"}', "expected at most 1,048,576 bytes, got more"),
    ],
)
def test_errors_name_file_line_and_value(line, message, tmp_path):
    path = write_lines(tmp_path / "pairs.jsonl", pair("a", "b"), line)
    with pytest.raises(UserError) as error:
        read_pairs(path)
    assert str(error.value).startswith(f"{path}, line 2: {message}")


TEMPLATES = {
    "sing_MS_MV": [("the author laughs", "the author laugh"), ("the author smiles", "the author smile")],
    "past": [("no author laughs", "the author laughs", "most authors laugh")],
}


@pytest.mark.parametrize("protocol", [0, 2, pickle.DEFAULT_PROTOCOL])
def test_pickles_as_they_were_published(protocol, tmp_path):
    content = pickle.dumps(TEMPLATES, protocol)
    (tmp_path / "simple_agrmt.pickle").write_bytes(content)
    (tmp_path / "vp_coord.pickle.gz").write_bytes(gzip.compress(content))
    expected = [
        MinimalPair("simple_agrmt", "the author laughs", "the author laugh", key="sing_MS_MV"),
        MinimalPair("simple_agrmt", "the author smiles", "the author smile", key="sing_MS_MV"),
        MinimalPair(
            "simple_agrmt", "no author laughs", "most authors laugh", "the author laughs", "", "past"
        ),
    ]
    assert read_pairs(tmp_path / "simple_agrmt.pickle") == expected
    assert read_pairs(tmp_path) == expected + [pair._replace(construction="vp_coord") for pair in expected]


def test_pickles_of_the_second_python(tmp_path):
    path = tmp_path / "simple_agrmt.pickle"
    path.write_bytes(b"(dp0\nS'sing'\np1\n(lp2\n(S'it is'\np3\nS'it are'\np4\ntp5\nas.")
    assert read_pairs(path) == [MinimalPair("simple_agrmt", "it is", "it are", key="sing")]


class Calls:
    def __reduce__(self):
        raise_if_called = "raise AssertionError"
        return exec, (raise_if_called,)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps(Calls()), "not a pickle of sentences ('builtins.exec')"),
        (pickle.dumps(Counter(a=1)), "not a pickle of sentences ('collections.Counter')"),
        (pickle.dumps({"a": [("a", 1)]}), "key 'a', item 1: expected bad to be a string, got 1"),
        (pickle.dumps({1: [("a", "b")]}), "key 1, item 1: expected key to be a string, got 1"),
        (pickle.dumps(TEMPLATES, 0)[:-20], "not a pickle of sentences ("),
        (b"(dp999999999\n.", "not a pickle of sentences ('999999999 is too large')"),
        (b"", "not a pickle of sentences ("),
        (pickle.dumps(["a"], 0), "expected a dictionary of lists, got ['a']"),
        (pickle.dumps({"a": "b"}, 0), "expected a dictionary of lists, got {'a': 'b'}"),
        (pickle.dumps({"a": [], "b": 1}), "expected a dictionary of lists, got {'a': [], 'b': 1}"),
        (
            pickle.dumps({"a\n": [("a",)]}, 2),
            "key 'a\\n', item 1: expected two or three sentences, got ('a',)",
        ),
        (
            pickle.dumps({"a": [["a", "b"]]}, 2),
            "key 'a', item 1: expected two or three sentences, got ['a', 'b']",
        ),
        (pickle.dumps({"a": [("a", ["b"])]}, 2), "key 'a', item 1: expected bad to be a string, got ['b']"),
        (
            pickle.dumps({"a": [("a", "a")]}, 2),
            "key 'a', item 1: expected two different sentences, got 'a' twice",
        ),
    ],
)
def test_other_pickles_are_refused(content, message, tmp_path):
    path = tmp_path / "pairs.pickle"
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        read_pairs(path)
    assert str(error.value).removeprefix(str(path)).lstrip(":, ").startswith(message)


def test_null_is_as_good_as_absent(tmp_path):
    optional = ("case", "UID", "linguistics_term", "intrusive", "key")
    path = write_lines(
        tmp_path / "pairs.jsonl",
        {"good": "a", "bad": "b"} | dict.fromkeys(optional),
        pair("a", "b", None, UID="c", key="k"),
    )
    assert read_pairs(path) == [MinimalPair("pairs", "a", "b"), MinimalPair("c", "a", "b", key="k")]


def test_the_pairs_of_blimp_whose_sentences_are_the_same_are_read(tmp_path):
    path = write_lines(tmp_path / "pairs.jsonl", {"sentence_good": "a", "sentence_bad": "a"})
    assert read_pairs(path) == [MinimalPair("pairs", "a", "a")]


def test_a_file_of_predictions_names_its_constructions(tmp_path):
    path = write_lines(
        tmp_path / "rows.jsonl",
        {"good": "a", "bad": "b", "construction": "order", "group": "all", "kind": "s", "key": ""},
        {"sentence_good": "a", "sentence_bad": "b", "construction": "", "UID": "c", "linguistics_term": "d"},
    )
    first, second = read_pairs(path)
    assert first == MinimalPair("order", "a", "b", group="all")
    assert second == MinimalPair("c", "a", "b", group="d")


def test_of_several_names_of_a_construction_the_first_counts(tmp_path):
    record = {"good": "a", "bad": "b", "UID": "of BLiMP", "case": "of Marvin and Linzen"}
    path = write_lines(tmp_path / "pairs.jsonl", record, record | {"construction": "of predictions"})
    assert [pair.construction for pair in read_pairs(path)] == ["of Marvin and Linzen", "of predictions"]


def test_more_than_a_file_may_hold(tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.syntax_eval.pairs.MAX_BYTES", 100)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"\n" * 101))
    with pytest.raises(UserError, match=r"a\.jsonl\.gz: expected at most 100 bytes of text, got more"):
        read_pairs(tmp_path / "a.jsonl.gz")


def test_no_pairs(tmp_path):
    with pytest.raises(UserError, match=r"no pairs \(no files \*\.jsonl"):
        read_pairs(tmp_path)
    path = write_lines(tmp_path / "empty.jsonl")
    with pytest.raises(UserError, match=f"{path}: no pairs"):
        read_pairs(path)
    with pytest.raises(UserError, match=r"none\.jsonl: no such file"):
        read_pairs(tmp_path / "none.jsonl")


def test_not_text_and_not_compressed(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"\xff\n")
    with pytest.raises(UserError, match=r"a\.jsonl, line 1: not UTF-8 text"):
        read_pairs(tmp_path / "a.jsonl")
    path = write_lines(tmp_path / "b.jsonl.gz", pair("a", "b"))
    with pytest.raises(UserError, match=r"b\.jsonl\.gz: truncated or damaged \.gz file"):
        read_pairs(path)
    path.write_bytes(gzip.compress(b'{"good": "a", "bad": "b"}' * 100)[:-20])
    with pytest.raises(UserError, match=r"b\.jsonl\.gz: truncated or damaged \.gz file"):
        read_pairs(path)


def test_limit_spreads_within_each_construction():
    pairs = [MinimalPair("ab"[i % 2], (str(i),), ("x",)) for i in range(20)]
    chosen = [one.good[0] for one in spread(pairs, 2)]
    assert chosen == ["0", "1", "18", "19"]
    assert spread(pairs, 0) == pairs
    assert spread(pairs, 50) == pairs
