"""Batches on a device, deterministic operations, and the name of the processor."""

import platform
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from tasks.runs.machine import deterministic_operations, device_name, to_device


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


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        (
            "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\n"
            "processor\t: 1\ncpu family\t: 1\nmodel\t\t: 1\nmodel name\t: another\n",
            "AMD EPYC (family 25, model 17)",
        ),
        ("processor\t: 0\nmodel name\t: Core: of ours\n", "Core: of ours"),
        ("processor\t: 0\nBogoMIPS\t: 50.00\n", "processor from the platform"),
        (None, "processor from the platform"),
    ],
)
def test_a_processor_is_named_with_its_generation(monkeypatch, cpuinfo, expected):
    def read_text(path, encoding=None):
        assert path == Path("/proc/cpuinfo")
        if cpuinfo is None:
            raise FileNotFoundError(path)
        return cpuinfo

    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr(platform, "processor", lambda: "processor from the platform")
    assert device_name("cpu") == expected


def test_operations_are_deterministic_on_a_gpu_only_and_only_as_long_as_asked():
    def modes():
        return (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.utils.deterministic.fill_uninitialized_memory,
        )

    before = modes()
    assert before == (False, False, True)
    with deterministic_operations("cpu"):
        assert modes() == before

    @deterministic_operations("cuda:1")
    def fail():
        assert modes() == (True, True, False)
        warnings.warn("cumsum_cuda_kernel does not have a deterministic implementation", stacklevel=1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert modes() == before
    torch.use_deterministic_algorithms(True)
    try:
        with deterministic_operations("cuda"):
            assert modes() == (True, False, True)  # the caller's choice
        assert modes() == (True, False, True)
    finally:
        torch.use_deterministic_algorithms(False)
