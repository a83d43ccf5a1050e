"""One call of the C in `recurrence.c`: the struct that it reads, and the tensors that it points into."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ordered_memory.backends.contract import Arguments, Dropout, OrderedMemoryState, Weights
from ordered_memory.backends.runtime import buffers
from ordered_memory.backends.runtime.build import Library, load
from ordered_memory.backends.runtime.threads import run_team

SOURCE = Path(__file__).with_name("recurrence.c")
TAPE_WIDTHS = (2, 4, 4, 1)
"""Of what is kept of a pair, in units of D: inputs of the cell, hidden units, gates, what was composed."""
SMALL = 1 << 18
"""Bytes that are as fast to fill with zeros as to take from the buffers that wait."""
MATRICES = ("key", "w_in", "w_out")


def compiled(dtype: torch.dtype) -> Library | str:
    """The functions of recurrence.c, compiled for a dtype.

    Args:
        dtype: float32 or float64.
    Returns:
        The library, or why there is none.
    """
    return load(SOURCE, dtype)


def tape_sizes(
    steps: int, batch_size: int, num_slots: int, size: int, dtype: torch.dtype, shares: int
) -> list[int]:
    """Sizes of the buffers for the reverse pass, as if every slot were active; pages never written take no
    memory.

    Args:
        steps: T.
        batch_size: B.
        num_slots: N.
        size: D.
        dtype: of the inputs.
        shares: into which the sequences are divided.
    Returns:
        Bytes of each buffer, share by share.
    """
    pairs = steps * num_slots * ((batch_size + shares - 1) // shares)
    return [pairs * width * size * dtype.itemsize for width in TAPE_WIDTHS] * shares


class Outputs(NamedTuple):
    """What the forward pass gives: `MemoryRecurrence`, and what the reverse pass needs besides."""

    output: Tensor
    attention: Tensor
    memory: Tensor
    candidate: Tensor
    occupancy: Tensor
    top: Tensor
    tape: list[Tensor]


def check(arguments: Arguments) -> None:
    """Check the shapes that the C code relies on.

    Args:
        arguments: of the recurrence.
    Raises:
        ValueError: a tensor has another shape.
    """
    (steps, batch_size, size), (num_slots,) = arguments.inputs.shape, arguments.state.memory.shape[1:2]
    slots = (batch_size, num_slots, size)
    expected: dict[str, tuple[int, ...]] = {
        "queries": (steps, batch_size, size),
        "lengths": (batch_size,),
        "memory": slots,
        "candidate": slots,
        "occupancy": (batch_size, num_slots + 1),
        "key": (size, size),
        "w_in": (4 * size, 2 * size),
        "b_in": (4 * size,),
        "w_out": (4 * size, 4 * size),
        "b_out": (4 * size,),
        "cell_input_mask": (steps, *slots[:2], 2 * size),
        "hidden_mask": (steps, *slots[:2], 4 * size),
        "key_mask": (steps, *slots),
        "feature_mask": (steps, *slots),
        "seed": (),
    }
    given = {"queries": arguments.queries, "lengths": arguments.lengths, **arguments.state._asdict()}
    given |= arguments.weights._asdict() | arguments.dropout._asdict()
    for name, tensor in given.items():
        shape = expected.get(name, (size,))
        if isinstance(tensor, Tensor) and tuple(tensor.shape) != shape:
            raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")


def forward(arguments: Arguments, shares: int, keep: bool) -> Outputs:
    """Run the recurrence.

    Args:
        arguments: of the recurrence.
        shares: into which the sequences are divided, one for each thread.
        keep: whether a reverse pass may follow; the tape is empty otherwise.
    """
    inputs, state = arguments.inputs, arguments.state
    steps, batch_size, size = inputs.shape
    num_slots = state.memory.shape[1]
    sizes = tape_sizes(steps, batch_size, num_slots, size, inputs.dtype, shares) if keep else []
    memory, candidate, occupancy = (t.clone(memory_format=torch.contiguous_format) for t in state)
    outputs = Outputs(
        inputs.new_zeros(inputs.shape),
        inputs.new_zeros(steps, batch_size, num_slots),
        *(memory, candidate, occupancy),
        inputs.new_zeros(steps, batch_size, dtype=torch.int32),
        [_tape(length) for length in sizes],
    )
    _run(
        "forward", arguments, outputs.tape, shares, **dict(zip(Outputs._fields[:6], outputs[:6], strict=True))
    )
    return outputs


def _tape(size: int) -> Tensor:
    """A buffer of which only the start will be written. Small ones are zero beyond: the same every time."""
    if size <= SMALL:
        return torch.zeros(size, dtype=torch.uint8, device="cpu")
    return buffers.empty(size, torch.uint8)


def backward(
    arguments: Arguments,
    results: tuple[Tensor, Tensor, Tensor],
    tape: list[Tensor],
    shares: int,
    upstream: Sequence[Tensor | None],
) -> list[Tensor]:
    """Gradients of inputs, queries, the initial state's three tensors and the weights that there are.

    Args:
        arguments: of the forward pass.
        results: its output, attention and top.
        tape: as it gave it.
        shares: of the forward pass.
        upstream: gradients of its output, attention and final state.
    """
    wanted = {"inputs": arguments.inputs, "queries": arguments.queries, **_initial(arguments)}
    gradients = {
        f"d_{name}": torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")
        for name, tensor in wanted.items()
    }
    for name, final in zip(OrderedMemoryState._fields, upstream[2:], strict=True):
        if final is not None:  # sequences without a token hand it on; the others overwrite it
            gradients[f"d_{name}0"].copy_(final)
    weights = {f"d_{name}": weight for name, weight in _present(arguments.weights).items()}
    sums = {name: weight.new_zeros(shares, *weight.shape) for name, weight in weights.items()}
    given = dict(
        zip(("d_output", "d_attention", "d_memory", "d_candidate", "d_occupancy"), upstream, strict=True)
    )
    named = dict(zip(("output", "attention", "top"), results, strict=True))
    _run("backward", arguments, tape, shares, **named, **given, **gradients, **sums)
    return [*gradients.values(), *(total.sum(0) if shares > 1 else total[0] for total in sums.values())]


def _run(function: str, arguments: Arguments, tape: list[Tensor], shares: int, **more: Tensor | None) -> None:
    """Call a function of C: fill in the struct of `arguments.h`, `more` by the names there."""
    inputs, dropout = arguments.inputs, arguments.dropout
    library = compiled(inputs.dtype)
    assert isinstance(library, Library)
    struct: Any = library.struct("Pass")()
    (struct.T, struct.B, struct.D), struct.N = inputs.shape, arguments.state.memory.shape[1]
    struct.threshold, struct.norm_epsilon, struct.key_epsilon = arguments[6:9]
    struct.cell_level, struct.score_level = dropout.cell_level, dropout.score_level
    struct.gemm, struct.bf16_gemm = library.gemm, library.bf16_gemm if arguments.bfloat16 else None
    lengths, order = _by_length(arguments.lengths, struct.T, struct.B)
    struct.rows, struct.shares, struct.keep = len(order), shares, bool(tape)
    tensors: dict[str, Tensor | None] = {
        "order": order,
        "lengths": lengths,
        "inputs": inputs,
        "queries": arguments.queries,
        **_initial(arguments),
        **_operands(arguments.weights, arguments.bfloat16),
        **{name: getattr(dropout, name) for name in Dropout._fields[:5]},
        "tape": torch.tensor([tensor.data_ptr() for tensor in tape], dtype=torch.int64, device="cpu"),
        **more,
    }
    struct.point(**{name: None if t is None else t.contiguous() for name, t in tensors.items()})
    scratch_size = library.code.scratch_size
    scratch_size.restype = ctypes.c_int64
    size = shares * scratch_size(ctypes.byref(struct), ctypes.c_int64(function == "backward"))
    struct.point(scratch=buffers.empty(size, torch.uint8))
    run_team(library, function, struct, shares)


def _initial(arguments: Arguments) -> dict[str, Tensor]:
    return {f"{name}0": tensor for name, tensor in arguments.state._asdict().items()}


def _by_length(lengths: Tensor | None, steps: int, batch_size: int) -> tuple[Tensor, Tensor]:
    """Lengths and numbers of the sequences that have a token, the longest first."""
    if lengths is None:
        return torch.full((batch_size,), steps, device="cpu"), torch.arange(batch_size, device="cpu")
    ordered, order = lengths.clamp(0, steps).sort(descending=True, stable=True)
    count = int((ordered > 0).sum())
    return ordered[:count], order[:count]


def _present(weights: Weights) -> dict[str, Tensor]:
    return {name: weight for name, weight in weights._asdict().items() if weight is not None}


def _operands(weights: Weights, bfloat16: bool) -> dict[str, Tensor]:
    """The weights by the names of arguments.h: matrices also transposed, and in bfloat16 if asked for."""
    matrices = {name: getattr(weights, name) for name in MATRICES}
    matrices |= {f"{name}_t": matrix.t() for name, matrix in matrices.items()}
    matrices = {name: matrix.contiguous() for name, matrix in matrices.items()}
    narrow = {f"bf16_{name}": matrix.bfloat16() for name, matrix in matrices.items()} if bfloat16 else {}
    return _present(weights) | matrices | narrow
