"""How padded sequences are packed, and packed ones padded.

Axes: B batch, T time, P tokens of a packed batch.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.utils.rnn import PackedSequence

from ordered_memory.devices import copy_to
from ordered_memory.modes import is_jit_tracing


def check_packed(packed: PackedSequence, name: str) -> None:
    """Check that a PackedSequence has a token for each entry of its batch, unless its values are traced.

    Args:
        packed: the caller's batch.
        name: name of the argument, for the error message.
    Raises:
        ValueError: the batch sizes are not positive and non-increasing, or their sum is not P; or there
            is not one index for each sequence.
    """
    if torch.compiler.is_compiling() or is_jit_tracing() or isinstance(packed.batch_sizes, FakeTensor):
        return
    sizes: list[int] = packed.batch_sizes.tolist()
    rows = packed.data.shape[0]
    if sum(sizes) != rows or sorted(sizes, reverse=True) != sizes or not sizes or sizes[-1] < 1:
        raise ValueError(
            f"the batch_sizes of {name} must be positive and non-increasing, and their sum {rows}, the "
            f"number of rows of its data, got {sizes[:20]}"
        )
    for field in ("sorted_indices", "unsorted_indices"):
        indices = getattr(packed, field)
        if indices is not None and tuple(indices.shape) != (sizes[0],):
            raise ValueError(
                f"the {field} of {name} must have shape {(sizes[0],)}, one for each sequence, got "
                f"{tuple(indices.shape)}"
            )


def pack_indices(lengths: Tensor, steps: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """How to pack padded sequences.

    Args:
        lengths: number of tokens of each sequence, (B,) int64 on the CPU.
        steps: T.
        device: the device of the tokens.
    Returns:
        The index t * B + b of each packed token in the padded batch, (P,); the batch sizes, on the CPU; and
        the index of each sequence of the packed batch, longest first, (B,).
    """
    order = lengths.argsort(descending=True, stable=True)
    t = torch.arange(steps, device="cpu").unsqueeze(1)
    running = t < lengths[order]
    positions = (t * lengths.shape[0] + order)[running]
    if torch.compiler.is_compiling():
        torch._check(positions.shape[0] > 0)  # which a graph cannot know otherwise
    batch_sizes = running.sum(1)
    return copy_to(positions, device), batch_sizes[batch_sizes > 0], copy_to(order, device)


def unpack(packed: Tensor, axis: int, positions: Tensor, count: int) -> Tensor:
    """Put packed tokens at their positions in the padded batch, and zeros elsewhere.

    Args:
        packed: values of the packed tokens, with P entries along `axis`.
        axis: axis of the tokens.
        positions: from `pack_indices` or `unpack_indices`.
        count: T · B, the size of that axis in the result.
    """
    shape = (*packed.shape[:axis], count, *packed.shape[axis + 1 :])
    return packed.new_zeros(shape).index_copy(axis, positions, packed)


def batch_size_of(batch_sizes: Tensor, order: Tensor | None, state_size: int | None = None) -> int:
    """B, if possible without reading values of `batch_sizes`, which tracing does not have.

    Args:
        batch_sizes: number of tokens of each step, on the CPU.
        order: the index of each sequence of the packed batch, (B,); None if not known.
        state_size: B of the initial state, or None. The caller compares it with the result.
    """
    if order is not None:
        return order.shape[0]
    if torch.compiler.is_compiling() and state_size is not None:
        return state_size
    if is_jit_tracing():  # there sizes are tensors, and a number would be that of the example
        return cast(int, batch_sizes[0])
    return cast(int, batch_sizes[0].item())  # non-strict export cannot trace int()


def unpack_indices(batch_sizes: Tensor, data: Tensor, order: Tensor | None) -> tuple[Tensor, Tensor]:
    """How to unpack a PackedSequence.

    Args:
        batch_sizes: number of tokens of each step, on the CPU.
        data: packed tokens, (P, ·), for their number and device.
        order: the index of each sequence of the packed batch, (B,), for their number; None if not known.
    Returns:
        The index t * B + b of each packed token in the padded batch, (P,), with the sequences in the order of
        the packed batch; and the length of each sequence, (B,), on the CPU.
    """
    batch_size = batch_size_of(batch_sizes, order)
    if not is_jit_tracing():
        torch._check(batch_size > 0)
    ends = batch_sizes.cumsum(0)
    token = torch.arange(data.shape[0], device="cpu")
    t = torch.searchsorted(ends, token, right=True)
    position = t * batch_size + token - (ends - batch_sizes)[t]
    running = torch.arange(batch_size, device="cpu") < batch_sizes.unsqueeze(1)
    return copy_to(position, data.device), running.sum(0)
