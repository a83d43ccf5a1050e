"""Batches on a device."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from tasks.runs.machine import to_device


class Recorded(Tensor):
    """A tensor that stays where it is, and remembers how it should have been moved."""

    def to(self, device, non_blocking=False):
        moved = self.clone().as_subclass(Recorded)
        moved.call = (str(device), non_blocking)
        return moved


class Batch(NamedTuple):
    tokens: Tensor
    lengths: Tensor
    more: tuple
    words: list


@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda"), "mps", "cpu"])
def test_a_copy_to_a_gpu_does_not_wait_for_it_and_lengths_stay(device):
    def recorded():
        return torch.zeros(2).as_subclass(Recorded)

    batch = Batch(recorded(), recorded(), (recorded(), {"name": recorded()}), ["a", "b"])
    moved = to_device(batch, device)
    expected = (str(device), "cuda" in str(device))
    assert type(moved) is Batch
    assert [tensor.call for tensor in (moved.tokens, moved.more[0], moved.more[1]["name"])] == [expected] * 3
    assert moved.lengths is batch.lengths
    assert moved.words == ["a", "b"]
