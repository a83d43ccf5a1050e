"""The tiny table, finished once for all tests."""

import shutil
from pathlib import Path

import pytest

from tests.tasks.reproduce.tiny import asked, commands_in_this_process


@pytest.fixture
def commands():
    with commands_in_this_process() as counts:
        yield counts


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A directory with the finished table of two seeds, and its results."""
    directory = tmp_path_factory.mktemp("finished")
    with commands_in_this_process() as counts:
        results = asked(directory, seeds=2)
    assert counts == {"train": 2, "evaluate": 2}
    return directory, results


@pytest.fixture
def again(finished, tmp_path):
    """A copy of that directory."""
    return Path(shutil.copytree(finished[0], tmp_path / "again"))
