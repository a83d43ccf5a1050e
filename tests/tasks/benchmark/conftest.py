"""What the tests of the benchmark share."""

import pytest

from tests.tasks.benchmark.tiny import STAND_IN


@pytest.fixture
def timed_by(monkeypatch):
    """A function that watches the `interleave` of a module, and returns a list that gets its contenders."""

    def watch(module):
        timed, interleave = [], module.interleave

        def interleave_and_note(one, *rest, **options):
            timed.append(one)
            return interleave(one, *rest, **options)

        monkeypatch.setattr(module, "interleave", interleave_and_note)
        return timed

    return watch


@pytest.fixture
def checkout(tmp_path):
    """A checkout that holds a module of the same interface."""
    directory = tmp_path / "checkout"
    directory.mkdir()
    (directory / "ordered_memory.py").write_text(STAND_IN.replace("SCALE", "1.0"))
    return directory
