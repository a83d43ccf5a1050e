"""Fixtures that several files have in common."""

import pytest
import torch

from ordered_memory.backends import BACKENDS
from tests.recurrences import EVERY_SLOT, TESTED


@pytest.fixture
def backends(monkeypatch):
    """Every backend that is tested has a name, uninitialised memory is NaN, and there is one thread."""
    monkeypatch.setitem(BACKENDS, EVERY_SLOT, TESTED[EVERY_SLOT])
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    deterministic, threads = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # for sizes as small as these
    assert torch.empty(3).isnan().all()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


@pytest.fixture
def threads_as_before():
    """The number of threads that a test sets is its own."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def nothing_compiled():
    torch.compiler.reset()
