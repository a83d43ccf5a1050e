"""Fixtures that several files have in common."""

import shutil

import pytest
import torch

from ordered_memory.backends import BACKENDS
from ordered_memory.backends.runtime import build
from tests.small_library import CODE


@pytest.fixture
def threads_as_before():
    """The number of threads that a test sets is its own."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def backends(monkeypatch, uninitialised_memory_is_nan, threads_as_before):
    """Every backend that is tested has a name, uninitialised memory is NaN, and there is one thread."""
    from tests.recurrences import EVERY_SLOT, TESTED

    monkeypatch.setitem(BACKENDS, EVERY_SLOT, TESTED[EVERY_SLOT])
    torch.set_num_threads(1)  # for sizes as small as these


@pytest.fixture
def nothing_compiled():
    torch.compiler.reset()


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """A cache directory for the test alone, empty, and nothing loaded."""
    directory = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(directory))
    build.load.cache_clear()
    yield directory / "ordered_memory"
    build.load.cache_clear()


@pytest.fixture(scope="session")
def compiled_source(tmp_path_factory):
    """The source of the small library, and the file it was compiled into: once for all tests."""
    source = tmp_path_factory.mktemp("source") / "a" / "b" / "c" / "scale.c"
    source.parent.mkdir(parents=True)
    source.write_text(CODE)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        try:
            file = build._compiled(source, torch.float32)
            build._open(file)
        except (OSError, RuntimeError) as error:  # no compiler, or temporary files are mounted with noexec
            pytest.skip(str(error))
        return source, file


@pytest.fixture
def source(compiled_source, own_cache):
    """The source, with a cache of its own that holds a copy: not loaded, so that it may be damaged."""
    source, file = compiled_source
    shutil.copy(file, build._cache_directory())
    return source


@pytest.fixture(scope="session")
def library(compiled_source):
    """The small library, loaded once, for what does not concern the cache."""
    source, file = compiled_source
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("XDG_CACHE_HOME", str(file.parents[1]))
        return build.load(source, torch.float32)
