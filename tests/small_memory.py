"""A small Ordered Memory in float64, and how two of its results are compared."""

import torch

from ordered_memory import OrderedMemory
from tests.tolerances import assert_close

F64 = torch.float64


def make(**arguments):
    return OrderedMemory(4, 6, 5, **{"batch_first": True, "dtype": F64, **arguments})


def assert_same(actual, expected, rows=slice(None), steps=slice(None)):
    assert_close(actual.output, expected.output[rows, steps], "output")
    assert_close(actual.attention, expected.attention[rows, steps], "attention")
    for name, tensor in actual.state._asdict().items():
        assert_close(tensor, getattr(expected.state, name)[rows], name)


X = torch.zeros(2, 5, 4, dtype=F64)
