"""Compiled code: building it, loading it, and the cache of what was built."""

import multiprocessing
import os
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
import torch

from ordered_memory.backends.runtime import build, compiler, processor
from ordered_memory.backends.runtime.build import Library, load
from tests.small_library import again, scale


def test_sources_are_read_as_utf_8_in_every_locale(source, monkeypatch):
    def named(encoding, stacklevel=2):
        assert encoding == "utf-8"
        return encoding

    monkeypatch.setattr("io.text_encoding", named)
    assert isinstance(again(source), Library)


def the_file(cache):
    (file,) = cache.iterdir()
    return file


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_compiled_once_for_a_dtype(source, own_cache, dtype):
    for file in own_cache.iterdir():
        file.unlink()
    scale(load(source, dtype))
    assert the_file(own_cache).stat().st_mode & 0o777 == 0o600
    assert own_cache.stat().st_mode & 0o777 == own_cache.parent.stat().st_mode & 0o777 == 0o700
    before = the_file(own_cache).stat()
    load.cache_clear()
    scale(load(source, dtype))
    assert the_file(own_cache).stat().st_mtime_ns == before.st_mtime_ns
    assert the_file(own_cache).stat().st_ino == before.st_ino


def test_another_source_is_another_file(source, own_cache):
    more = source.with_name("more.h")
    more.write_text("/* included or not */")
    try:
        again(source)
    finally:
        more.unlink()
    assert len(list(own_cache.iterdir())) == 2


def test_a_warm_cache_needs_no_compiler(source, monkeypatch):
    monkeypatch.setenv("PATH", "")
    scale(again(source))


@pytest.mark.parametrize("words", ["{} -O2", "env {}", "  {} -DMORE='1 2' "])
def test_the_compiler_may_have_arguments(source, monkeypatch, words):
    monkeypatch.setenv("CC", words.format(shlex.join(compiler.command())))
    scale(again(source))


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is called cc")
@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_variable_names_no_compiler(source, monkeypatch, empty):
    monkeypatch.setenv("CC", empty)
    scale(again(source))


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        ("no-such-compiler", "there is no C compiler"),
        ("/", "there is no C compiler"),
        ("false", "false failed with status 1"),
        ("true", "No such file"),
        ("gcc 'unbalanced", "CC is not a command: No closing quotation"),
        ("sh -c 'for last; do :; done; echo text > $last' sh", "XDG_CACHE_HOME"),
    ],
)
def test_no_compiler_is_a_reason(source, monkeypatch, compiler, reason):
    monkeypatch.setenv("CC", compiler)
    assert reason in again(source)


def truncated(file):
    os.truncate(file, file.stat().st_size // 2)


def emptied(file):
    os.truncate(file, 0)


def changed(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def without_symbols(file):
    other = file.with_name("other")
    words = [*compiler.command(), "-shared", "-x", "c", "-", "-o", other]
    subprocess.run(words, input=b"int other;", check=True)
    other.replace(file)


def writable(file):
    file.chmod(0o666)


def writable_by_the_group(file):
    file.chmod(0o660)


def of_another_user(file):
    try:
        os.chown(file, 65534, -1)
    except OSError:
        pytest.skip("needs the right to give files away")


def symbolic_link(file):
    file.rename(file.parent.parent / "elsewhere.so")
    file.symlink_to(file.parent.parent / "elsewhere.so")


def dangling_link(file):
    file.unlink()
    file.symlink_to("nowhere")


def pipe(file):
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    "damage",
    [
        truncated,
        emptied,
        changed,
        without_symbols,
        writable,
        writable_by_the_group,
        of_another_user,
        symbolic_link,
        dangling_link,
        pipe,
    ],
    ids=lambda damage: damage.__name__,
)
def test_what_may_not_be_loaded_is_compiled_anew(source, own_cache, damage):
    file = the_file(own_cache)
    damage(file)
    scale(again(source))
    assert the_file(own_cache).is_file()
    assert not file.is_symlink()
    status = file.stat()
    assert (status.st_uid, status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)) == (os.geteuid(), 0)


def test_what_another_process_has_compiled_meanwhile_stays(source, own_cache, monkeypatch):
    file = the_file(own_cache)
    content, run = file.read_bytes(), compiler.run
    file.write_bytes(b"damaged")

    def slower(flags, built):
        run(flags, built)
        file.write_bytes(content)

    monkeypatch.setattr(compiler, "run", slower)
    before = file.stat().st_ino
    scale(again(source))
    assert the_file(own_cache).stat().st_ino == before


def test_a_directory_of_its_name_is_a_reason(source, own_cache):
    file = the_file(own_cache)
    file.unlink()
    file.mkdir()
    (file / "something").touch()
    descriptors = len(os.listdir("/proc/self/fd"))
    reason = again(source)
    assert f"-> '{file}'; XDG_CACHE_HOME may name another directory" in reason
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_cache_that_cannot_be_written_to_is_a_reason(source, own_cache, monkeypatch):
    the_file(own_cache).unlink()

    def refuse(**_):
        raise OSError(30, "Read-only file system", str(own_cache))

    monkeypatch.setattr(build.tempfile, "TemporaryDirectory", refuse)
    assert again(source) == (
        f"cannot write [Errno 30] Read-only file system: '{own_cache}'; "
        "XDG_CACHE_HOME may name another directory"
    )


def test_a_cache_that_others_may_write_to_is_a_reason(source, own_cache):
    own_cache.chmod(0o777)
    assert f"{own_cache} belongs to another user, or others may write to it" in again(source)


def test_the_cache_of_another_user_is_a_reason(source, own_cache):
    of_another_user(own_cache)
    assert f"{own_cache} belongs to another user" in again(source)


def test_a_cache_below_a_file_is_a_reason(source, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert str(tmp_path / "file") in again(source)


@pytest.mark.parametrize("where", ["home", "cache", "none"])
def test_what_may_not_be_searched_or_written_is_a_reason(source, monkeypatch, where):
    """For root every directory can be searched, so what the system would say is put in its place."""

    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    advice = "no directory to compile into, name one with XDG_CACHE_HOME: "
    if where == "none":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home directory")))
        assert again(source) == f"{advice}no home directory"
        return
    monkeypatch.setattr(Path, "mkdir" if where == "home" else "stat", refuse)
    assert f"{advice if where == 'home' else ''}[Errno 13] Permission denied" in again(source)


@pytest.mark.parametrize("relative", ["here", "./here", ""])
def test_a_relative_cache_directory_is_ignored(source, monkeypatch, tmp_path, relative):
    monkeypatch.setenv("XDG_CACHE_HOME", relative)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    scale(again(source))
    assert not (tmp_path / "here").exists()
    assert (tmp_path / "home" / ".cache" / "ordered_memory").is_dir()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_many_first_builds_at_once(source, own_cache):
    the_file(own_cache).unlink()
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=lambda: scale(again(source))) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    the_file(own_cache)


X86 = """processor\t: 0
vendor_id\t: GenuineIntel
flags\t\t: fpu avx2
vmx flags\t: vnmi

processor\t: 1
flags\t\t: fpu avx2 other
"""
ARM = """processor\t: 0
BogoMIPS\t: 50.00
Features\t: fp asimd
CPU implementer\t: 0x41
CPU architecture: 8
CPU part\t: 0xd0c

processor\t: 1
BogoMIPS\t: 51.00
Features\t: fp asimd
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        (X86, "flags\t\t: fpu avx2"),
        (ARM, "Features\t: fp asimd CPU implementer\t: 0x41 CPU part\t: 0xd0c CPU part\t: 0xd40"),
        ("isa\t: rv64\n", "a name"),
        ("", "a name"),
    ],
)
def test_features_name_the_processor_that_code_is_compiled_for(monkeypatch, cpuinfo, expected):
    monkeypatch.setattr(processor, "_lines", cpuinfo.splitlines)
    monkeypatch.setattr(processor.platform, "processor", lambda: "a name")
    assert processor.features.__wrapped__() == expected
