"""Packed sequences, and the tensors of a layer's results."""

import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence


def flat(results):
    """The tensors of a layer's results."""
    for result in results:
        if isinstance(result, Tensor := torch.Tensor):
            yield result
        elif isinstance(result, PackedSequence):
            yield result.data
        else:
            assert all(isinstance(one, Tensor) for one in result)
            yield from result


def ragged(enforce_sorted):
    lengths = (5, 3, 2, 1) if enforce_sorted else (2, 5, 1, 3)
    return pack_sequence([torch.randn(n, 3) for n in lengths], enforce_sorted=enforce_sorted)
