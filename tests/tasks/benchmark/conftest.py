"""What the tests of the benchmark share."""

import pytest


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
