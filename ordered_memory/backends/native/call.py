"""Calls of `recurrence.c`: the struct that it reads, and the tensors that the struct points to."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ordered_memory.backends.contract import (
    Arguments,
    Dropout,
    MemoryRecurrence,
    OrderedMemoryState,
    Weights,
)
from ordered_memory.backends.operators import Implementation, Shapes
from ordered_memory.backends.runtime import buffers
from ordered_memory.backends.runtime.build import Library, load
from ordered_memory.backends.runtime.threads import run_team

SOURCE = Path(__file__).with_name("recurrence.c")
SMALL = 1 << 18
"""Size in bytes up to which allocating zeros is as fast as taking a buffer from the pool."""
MATRICES = ("key", "w_in", "w_out")


def compiled(dtype: torch.dtype) -> Library | str:
    """The functions of recurrence.c, compiled for a dtype.

    Args:
        dtype: float32 or float64.
    Returns:
        The library, or why there is none.
    """
    return load(SOURCE, dtype)


def bfloat16_products() -> Literal["pairs", "blas"] | None:
    """Who multiplies bfloat16 matrices here: MKL with AMX, else the C itself; None if neither can."""
    library = compiled(torch.float32)
    if isinstance(library, str):
        return None
    if library.bf16_gemm is not None:
        return "blas"
    return "pairs" if library.multiplies_pairs else None


def bfloat16_products_of(arguments: Arguments) -> Literal["pairs", "blas"] | None:
    """The same for one call; None where its products are of float32.

    An operator may have been told of bfloat16 on another machine.

    Args:
        arguments: of the recurrence.
    """
    asked = arguments.bfloat16 and arguments.inputs.dtype == torch.float32
    return bfloat16_products() if asked and arguments.inputs.shape[-1] % 2 == 0 else None


class Pass(NamedTuple):
    """The arguments of one pass.

    Args:
        arguments: of the recurrence.
        shares: number of parts that the sequences are divided into, one for each thread.
    """

    arguments: Arguments
    shares: int


class NativeImplementation(Implementation):
    """The loop over time in C.

    Kept are the first active slot of every token, (T, B), and the tape: three buffers of each share, as large
    as if every slot were active; pages never written take no memory. A pair's cell inputs (2D), hidden units
    (4D) and gates (4D) are bfloat16 where products take such operands, else they have the dtype of the
    parameters.
    """

    inputs_type = Pass
    results_type = MemoryRecurrence
    results_for_backward = ("output", "attention")
    differentiable = ("inputs", "queries", *OrderedMemoryState._fields, *Weights._fields)

    def new_results(self, inputs: Pass) -> MemoryRecurrence:
        x, state = inputs.arguments.inputs, inputs.arguments.state
        final = OrderedMemoryState(*(t.clone(memory_format=torch.contiguous_format) for t in state))
        attention = x.new_zeros(*x.shape[:2], state.memory.shape[1])
        return MemoryRecurrence(x.new_zeros(x.shape), final, attention)

    def saved_shapes(self, inputs: Pass) -> Shapes:
        (steps, batch_size, size), dtype = inputs.arguments.inputs.shape, inputs.arguments.inputs.dtype
        num_slots, shares = inputs.arguments.state.memory.shape[1], inputs.shares
        pairs = steps * num_slots * ((batch_size + shares - 1) // shares)
        number = 2 if bfloat16_products_of(inputs.arguments) else dtype.itemsize
        widths = [pairs * size * width * number for width in (2, 4, 4)] * shares
        return [((steps, batch_size), torch.int32), *(((width,), torch.uint8) for width in widths)]

    def check(self, inputs: Pass) -> None:
        _check(inputs.arguments)

    def forward(self, inputs: Pass, keep: bool) -> tuple[MemoryRecurrence, list[Tensor]]:
        results = self.new_results(inputs)
        (top_shape, dtype), *tape_shapes = self.saved_shapes(inputs)
        top = torch.zeros(top_shape, dtype=dtype, device="cpu")
        tape = [_tape(length) for (length,), _ in tape_shapes] if keep else []
        output, final, attention = results
        _run("forward", inputs, tape, output=output, attention=attention, top=top, **final._asdict())
        return results, [top, *tape] if keep else []

    def backward(
        self,
        inputs: Pass,
        reread: Sequence[Tensor],
        kept: list[Tensor],
        upstream: Sequence[Tensor | None],
        wanted: list[bool],
    ) -> list[Tensor]:
        arguments, (output, attention), (top, *tape) = inputs.arguments, reread, kept
        d_output, *d_final, d_attention = upstream
        read = {"inputs": arguments.inputs, "queries": arguments.queries, **_initial(arguments)}
        gradients = {
            f"d_{name}": torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")
            for name, tensor in read.items()
        }
        named = {f"d_{name}": final for name, final in zip(OrderedMemoryState._fields, d_final, strict=True)}
        for name, final in named.items():
            if final is not None:  # sequences without a token hand it on; the others overwrite it
                gradients[f"{name}0"].copy_(final)
        sums = {
            f"d_{name}": weight.new_zeros(inputs.shares, *weight.shape)
            for name, weight in _present(arguments.weights).items()
        }
        named |= {"d_output": d_output, "d_attention": d_attention}
        named |= {"output": output, "attention": attention, "top": top}
        _run("backward", inputs, tape, **named, **gradients, **sums)
        totals = {name: total.sum(0) if inputs.shares > 1 else total[0] for name, total in sums.items()}
        of_weights = [totals.get(f"d_{name}") for name in Weights._fields]
        found = zip((*gradients.values(), *of_weights), wanted, strict=True)
        return [gradient for gradient, one in found if one and gradient is not None]


def _check(arguments: Arguments) -> None:
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


def _tape(size: int) -> Tensor:
    """A buffer of which only the start will be written. The rest of a small one is always zero."""
    if size <= SMALL:
        return torch.zeros(size, dtype=torch.uint8, device="cpu")
    return buffers.empty(size)


def _run(function: str, call: Pass, tape: list[Tensor], **more: Tensor | None) -> None:
    """Call a function of C: fill in the struct of `arguments.h`, `more` by the names there."""
    arguments, shares = call
    inputs, dropout = arguments.inputs, arguments.dropout
    library = compiled(inputs.dtype)
    assert isinstance(library, Library)
    struct: Any = library.struct("Pass")()
    (struct.T, struct.B, struct.D), struct.N = inputs.shape, arguments.state.memory.shape[1]
    struct.threshold, struct.norm_epsilon, struct.key_epsilon = arguments[6:9]
    struct.cell_level, struct.score_level = dropout.cell_level, dropout.score_level
    products = bfloat16_products_of(arguments)
    struct.pairs = products == "pairs"
    struct.bf16_gemm = library.bf16_gemm if products == "blas" else None
    lengths, order = _by_length(arguments.lengths, struct.T, struct.B)
    struct.rows, struct.shares, struct.keep = len(order), shares, bool(tape)
    tensors: dict[str, Tensor | None] = {
        "order": order,
        "lengths": lengths,
        "inputs": inputs,
        "queries": arguments.queries,
        **_initial(arguments),
        **_operands(arguments.weights, products is not None),
        **{name: getattr(dropout, name) for name in Dropout._fields[:5]},
        "tape": torch.tensor([tensor.data_ptr() for tensor in tape], dtype=torch.int64, device="cpu"),
        **more,
    }
    struct.point(**{name: None if t is None else t.contiguous() for name, t in tensors.items()})
    scratch_size = library.code.scratch_size
    scratch_size.restype = ctypes.c_int64
    reverse = function == "backward"
    struct.point(scratch=buffers.empty(scratch_size(ctypes.byref(struct), ctypes.c_int64(reverse))))
    if products != "blas":
        run_team(library, "pack_for_backward" if reverse else "pack_for_forward", struct, shares)
    run_team(library, function, struct, shares)


def _initial(arguments: Arguments) -> dict[str, Tensor]:
    return {f"{name}0": tensor for name, tensor in arguments.state._asdict().items()}


def _by_length(lengths: Tensor | None, steps: int, batch_size: int) -> tuple[Tensor, Tensor]:
    """Lengths and indices of the sequences that have a token, longest first."""
    if lengths is None:
        return torch.full((batch_size,), steps, device="cpu"), torch.arange(batch_size, device="cpu")
    ordered, order = lengths.clamp(0, steps).sort(descending=True, stable=True)
    count = int((ordered > 0).sum())
    return ordered[:count], order[:count]


def _present(weights: Weights) -> dict[str, Tensor]:
    return {name: weight for name, weight in weights._asdict().items() if weight is not None}


def _operands(weights: Weights, bfloat16: bool) -> dict[str, Tensor]:
    """The weights by the names of arguments.h; if asked for, matrices and transposes in bfloat16, too."""
    matrices = {f"bf16_{name}": getattr(weights, name) for name in MATRICES} if bfloat16 else {}
    matrices |= {f"{name}_t": matrix.t() for name, matrix in matrices.items()}
    narrow = {name: matrix.bfloat16().contiguous() for name, matrix in matrices.items()}
    return _present(weights) | narrow
