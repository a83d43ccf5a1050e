"""Texts are read as they are or compressed, and whatever is wrong with them is one line."""

import bz2
import errno
import gzip
import lzma

import pytest

from tasks.runs.errors import UserError
from tasks.runs.text_files import decompressed, find_file, find_files, read_text

COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
TEXT = "a caf\u00e9\r\nb\u2028c\rd\n" * 200
READ = "a caf\u00e9\nb\u2028c\nd\n" * 200


@pytest.fixture(params=list(COMPRESS))
def compressed(request, tmp_path):
    path = tmp_path / f"text.txt{request.param}"
    path.write_bytes(COMPRESS[request.param](TEXT.encode()))
    return path


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_a_compressed_text_is_the_text(compressed, tmp_path, monkeypatch, block):
    monkeypatch.setattr("tasks.runs.text_files.BLOCK", block)
    (tmp_path / "text.txt").write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert read_text(compressed) == read_text(tmp_path / "text.txt") == READ
    loud = compressed.rename(compressed.with_suffix(compressed.suffix.upper()))
    assert read_text(loud) == READ


def test_every_damage_of_a_compressed_text_is_one_line(compressed):
    whole = compressed.read_bytes()
    damaged = [whole[:end] for end in range(1, len(whole))]
    damaged += [whole[:i] + bytes([whole[i] ^ 0xFF]) + whole[i + 1 :] for i in range(len(whole))]
    damaged += [TEXT.encode(), b"\xff"]
    told = []
    for content in damaged:
        compressed.write_bytes(content)
        try:
            assert read_text(compressed) == READ  # some damage is of the header only, which does no harm
        except UserError as error:
            told.append(str(error))
    assert len(told) > 0.9 * len(damaged)
    start = f"{compressed}: truncated or damaged {compressed.suffix} file ("
    assert all(line.startswith(start) and "\n" not in line for line in told)


def test_what_expands_without_an_end_is_refused(compressed, monkeypatch):
    monkeypatch.setattr("tasks.runs.text_files.MAX_BYTES", 1_000)
    monkeypatch.setattr("tasks.runs.text_files.BLOCK", 100)
    with pytest.raises(UserError, match=r"text\.txt\.\w+: expected at most 1,000 bytes of text, got more"):
        read_text(compressed)


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
def test_what_is_no_text_is_named_with_its_line(tmp_path, suffix):
    path = tmp_path / f"text{suffix}"
    with pytest.raises(UserError, match=f"{path}: no such file"):
        read_text(path)
    # the byte order mark is no part of the line, nor of where the bad byte stands
    path.write_bytes(COMPRESS.get(suffix, bytes)(b"\xef\xbb\xbfa\n\xff"))
    with pytest.raises(UserError, match=f"{path}, line 2: not UTF-8 text"):
        read_text(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match=f"{path}: expected a file, got a directory"):
        read_text(path)


def test_an_error_of_the_disk_is_no_damage(compressed):
    def read_from_a_bad_disk():
        with compressed.open("rb") as file, decompressed(file, str(compressed)):
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        read_from_a_bad_disk()


def test_files_of_a_data_set_are_found_as_they_are_or_compressed(tmp_path):
    for name in ("train.txt", "train.txt.gz", "valid.txt.xz"):
        (tmp_path / name).touch()
    names = ["train.txt", "valid.txt", "test.txt", "notes.txt"]
    assert find_file(tmp_path / "train.txt") == tmp_path / "train.txt"
    with pytest.raises(UserError, match=r": no test\.txt, notes\.txt in this directory"):
        find_files(tmp_path, names)
    assert find_files(tmp_path, names[:2]) == [tmp_path / "train.txt", tmp_path / "valid.txt.xz"]
    assert find_file(tmp_path / "none") == tmp_path / "none"
    with pytest.raises(UserError, match=r"none: no such directory; it should hold a, b"):
        find_files(tmp_path / "none", ["a", "b"])
