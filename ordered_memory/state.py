"""The state of Ordered Memory between two time steps."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from ordered_memory.checks import check_device, check_dtype


class OrderedMemoryState(NamedTuple):
    """The state between two time steps; all zeros before the first token.

    Args:
        memory: M, (B, N, D).
        candidate: M̂, (B, N, D); its last slot is the output of the step.
        occupancy: (B, N + 1), fractions in [0, 1]: (→π_1 … →π_N, 1) after any token, zeros before the first.
    """

    memory: Tensor
    candidate: Tensor
    occupancy: Tensor

    def detach(self) -> OrderedMemoryState:
        """Detach the state from the autograd graph, for truncated backpropagation through time."""
        return OrderedMemoryState(*(tensor.detach() for tensor in self))

    def to(self, *args: Any, **kwargs: Any) -> OrderedMemoryState:
        """Move or cast the state.

        Args:
            *args, **kwargs: as for `Tensor.to`: a device, a dtype or both.
        """
        return OrderedMemoryState(*(tensor.to(*args, **kwargs) for tensor in self))


def check_loop(state: OrderedMemoryState, inputs: Tensor, lengths: Tensor | None) -> None:
    """Check that state and lengths match the inputs of the loop over time.

    Args:
        state: initial state, of any number of slots.
        inputs: x̃, (T, B, D).
        lengths: number of tokens of each sequence, (B,); None if nothing is padded. No values are read.
    Raises:
        ValueError: there is no step, a tensor has the wrong shape, or one of the state the wrong device or
            dtype.
    """
    steps, batch_size, size = inputs.shape
    if steps == 0:
        raise ValueError("inputs must have at least one step, got T = 0")
    check_state(state, (batch_size,), state.memory.shape[1], size, inputs)
    if lengths is not None and tuple(lengths.shape) != (batch_size,):
        raise ValueError(f"lengths must have shape {(batch_size,)}, got {tuple(lengths.shape)}")


def check_state(
    state: OrderedMemoryState, batch: tuple[int, ...], num_slots: int, size: int, like: Tensor
) -> None:
    """Check that an initial state matches the inputs.

    Args:
        state: initial state.
        batch: its leading axes, (B,) or (2, B) for both directions; without the batch axis () or (2,).
        num_slots: N.
        size: D.
        like: the inputs, whose device and dtype are expected.
    Raises:
        ValueError: a tensor of the state has the wrong shape, device or dtype.
    """
    slots = (*batch, num_slots, size)
    shapes = {"memory": slots, "candidate": slots, "occupancy": (*batch, num_slots + 1)}
    for name, shape in shapes.items():
        tensor = getattr(state, name)
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"state.{name} must have shape {shape} for these inputs and num_slots={num_slots}, got "
                f"{tuple(tensor.shape)}"
            )
        check_device(f"state.{name}", tensor, like)
        check_dtype(f"state.{name}", tensor, like)
