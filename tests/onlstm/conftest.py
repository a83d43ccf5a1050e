"""Fixtures that several files have in common."""

import pytest
import torch

from onlstm.backends import native


@pytest.fixture
def small_work_is_shared(monkeypatch):
    """The native backend uses all its threads however small the work is."""
    monkeypatch.setattr(native, "MIN_WORK_PER_THREAD", 1)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def three_threads(small_work_is_shared):
    torch.set_num_threads(3)
