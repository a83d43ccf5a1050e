"""Lengths, wherever they are taken: by both layers, and for trees and traces of their results."""

import numpy as np
import pytest
import torch

from onlstm import ONLSTM
from ordered_memory import OrderedMemory
from ordered_memory import tree_recovery as recovery
from ordered_memory.trace import read_output


@pytest.fixture(params=["Ordered Memory", "ON-LSTM", "tree", "trace"])
def read(request):
    """Read two sequences of up to five tokens, of the given lengths; what is read can be compared."""
    layer, lstm = OrderedMemory(3, 8, 5, batch_first=True), ONLSTM(3, 8, batch_first=True)
    x = torch.randn(2, 5, 3)
    attention = layer(x, lengths=[5, 3]).attention
    return {
        "Ordered Memory": lambda lengths: layer(x, lengths=lengths).output.tolist(),
        "ON-LSTM": lambda lengths: lstm(x, lengths=lengths)[0].tolist(),
        "tree": lambda lengths: recovery.from_attention(attention, lengths, batch_first=True),
        "trace": lambda lengths: read_output(layer(x), [["a"] * 5, ["b"] * 3], lengths, batch_first=True),
    }[request.param]


@pytest.mark.parametrize(
    "kind", ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", ">i4", "<i2"]
)
def test_lengths_may_be_integers_of_any_type(read, kind):
    array, expected = np.array([5, 3], kind), read([5, 3])
    locked = array.copy()
    locked.flags.writeable = False
    for lengths in (array, list(array), tuple(array.tolist()), locked, array[::-1].copy()[::-1]):
        assert read(lengths) == expected
    if hasattr(torch, kind):
        tensor = torch.tensor([5, 3], dtype=getattr(torch, kind))
        assert read(tensor) == read(list(tensor)) == expected


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([True, True], r"one integer for each sequence, got \[True, True\]"),
        ([5, True], r"one integer for each sequence, got \[5, True\]"),
        ([5, None], r"one integer for each sequence, got \[5, None\]"),
        (list(np.array([True, True])), "one integer for each sequence"),
        (list(torch.tensor([True, True])), "one integer for each sequence"),
        (np.array([True, True]), "one integer for each sequence, .* dtype torch.bool"),
        (torch.tensor([True, True]), "one integer for each sequence, .* dtype torch.bool"),
        ([5.0, 3.0], r"one integer for each sequence, got \[5.0, 3.0\]"),
        (torch.tensor([5.0, 3.0]), "one integer for each sequence, .* dtype torch.float32"),
        (torch.tensor([[5], [3]]), r"one integer for each sequence, got shape \(2, 1\)"),
        (np.array([[5], [3]]), r"one integer for each sequence, got shape \(2, 1\)"),
        (5, r"one integer for each sequence, got shape \(\)"),
        ("53", "one integer for each sequence, got '53'"),
        ({3, 5}, "one integer for each sequence, got {3, 5}"),
        ([2**64, 3], "one integer for each sequence, got"),
        ([5], "one entry for each of 2 sequences, got 1$"),
        (
            [1] * 5,
            r"one entry for each of 2 sequences, got 5 \(as many as there are steps: check batch_first\)$",
        ),
        ([5, 6], r"lie in 1..5 \(T\), got lengths\[1\] = 6$"),
        ([0, 3], r"lie in 1..5 \(T\), got lengths\[0\] = 0( \(0 is allowed with an initial state\))?$"),
        ([5, -1], r"lie in 1..5 \(T\), got lengths\[1\] = -1$"),
    ],
)
def test_other_lengths_are_refused_by_layers_trees_and_traces_alike(read, lengths, message):
    with pytest.raises(ValueError, match=f"lengths must (be|have)? ?{message}"):
        read(lengths)
