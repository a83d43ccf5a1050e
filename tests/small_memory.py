"""A small Ordered Memory in float64, how two of its results are compared, and what tests run it with."""

import pytest
import torch

from ordered_memory import OrderedMemory
from ordered_memory.backends.native.call import SOURCE
from ordered_memory.backends.runtime.build import load
from tests.tolerances import assert_close

F64 = torch.float64

_library = load(SOURCE, F64)
NEEDS_NATIVE = pytest.mark.skipif(isinstance(_library, str), reason=str(_library))
EACH_BACKEND = pytest.mark.parametrize(
    "backend", [pytest.param("native", marks=NEEDS_NATIVE), "sequence", "reference"]
)
"""Those that run in float64 on a CPU."""
BOTH_SCORES = pytest.mark.parametrize("score", ["additive", "normalized"])
BOTH_CELLS = pytest.mark.parametrize("cell", ["gated", "tree-rnn"])


def make(**arguments):
    return OrderedMemory(4, 6, 5, **{"batch_first": True, "dtype": F64, **arguments})


def assert_same(actual, expected, rows=slice(None), steps=slice(None)):
    assert_close(actual.output, expected.output[rows, steps], "output")
    assert_close(actual.attention, expected.attention[rows, steps], "attention")
    for name, tensor in actual.state._asdict().items():
        assert_close(tensor, getattr(expected.state, name)[rows], name)


X = torch.zeros(2, 5, 4, dtype=F64)
