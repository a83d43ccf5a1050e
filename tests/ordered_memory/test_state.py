"""The state between two steps."""

import torch

from ordered_memory import OrderedMemory
from ordered_memory.memory import initial_state


def test_a_state_is_moved_and_cast_as_its_tensors_are():
    state = OrderedMemory(3, 4, 2)(torch.randn(5, 2, 3)).state
    double = state.to(torch.float64)
    assert type(double) is type(state)
    for one, other in zip(double, state, strict=True):
        assert torch.equal(one, other.double())
    assert all(tensor.device.type == "meta" for tensor in state.to("meta", torch.float16))


def test_the_parts_of_an_empty_memory_are_separate():
    state = initial_state(2, 3, torch.zeros(4))
    state.memory[0] = 1
    assert not state.candidate.any()
