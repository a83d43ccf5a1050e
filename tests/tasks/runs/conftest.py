"""A run that was not interrupted, to compare with."""

import pytest

from tests.outcome import outcome
from tests.tasks.runs.tiny import train


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "whole"
    assert train(directory) == 0
    return outcome(directory)
