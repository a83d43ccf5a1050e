"""Pairs that several tests read."""

import pytest

from tasks.logic.generator import generate


@pytest.fixture(scope="session")
def groups():
    """Generated training and test pairs by number of operations."""
    return generate(6_000, seed=3)
