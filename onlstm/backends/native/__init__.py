"""The recurrence compiled for the CPU it runs on, from one file of C.

Every thread has some of the units, of all sequences, from the first token to the last and back, and
meets the others twice a step: `recurrence.c` says how. Between the products, of a matrix packed once
(`product.h`), there is nothing but one pass over the units. The file is compiled when it is first needed,
into the user's cache directory; without a compiler this backend cannot run, and "auto" does without it.

Under autocast the recurrence stays in the dtype of the parameters; under bfloat16 autocast the three products
over all tokens that end the reverse pass take bfloat16 operands, where the processor multiplies such numbers.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onlstm.backends.sequence import previous_hidden
from onlstm.functional import Recurrence, Weights
from ordered_memory.backends.derivatives import first_only
from ordered_memory.backends.runtime import pool
from ordered_memory.backends.runtime.build import Library, asked_for_bfloat16, load
from ordered_memory.backends.runtime.threads import run_in_team, run_in_threads

SOURCE = Path(__file__).with_name("recurrence.c")
BLOCK = 256
"""As in recurrence.c: tokens whose product with W is one, when nothing is kept."""
WORTH_A_THREAD = 200_000
"""Multiplications of a step for each thread: with fewer, meeting the others costs more than it saves."""

_SIZES = ("T", "B", "I", "H", "M", "C", "G", "threads", "keep")
_POINTERS = (
    *("rows", "start", "tokens", "weight_i", "weight", "bias", "hidden0", "cell0"),
    *("units", "softmax", "cells", "output"),
    *("last_hidden", "last_cell", "forget_distance", "input_distance"),
    *("d_output", "d_forget_distance", "d_input_distance", "d_gates", "d_hidden", "d_cell", "d_masters"),
    "meeting",
)  # fmt: skip
_one_call = threading.Lock()
"""The threads of a call wait for one another, so those of two calls must not share a pool of threads."""


class _Pass(ctypes.Structure):
    """`Pass` in recurrence.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _SIZES),
        *((name, ctypes.c_void_p) for name in _POINTERS),
    )


def why_not(tokens: Tensor, weight: Tensor) -> str | None:
    """Why this backend cannot run on these tokens and this recurrent weight, or None when it can."""
    for name, tensor in (("tokens", tokens), ("weights", weight)):
        if tensor.device.type != "cpu":
            return f"it runs on a CPU, the {name} are on {tensor.device.type}"
    if weight.dtype not in (torch.float32, torch.float64):
        return f"its parameters must be float32 or float64, not {weight.dtype}"
    library = load(SOURCE, weight.dtype)
    return library if isinstance(library, str) else None


def recur(
    tokens: Tensor,
    batch_sizes: Sequence[int],
    weights: Weights,
    hidden: Tensor,
    cell: Tensor,
    chunk_size: int,
) -> Recurrence:
    """`onlstm.functional.recur`, faster; see there."""
    _check_shapes(tokens, batch_sizes, weights, hidden, cell, chunk_size)
    dtype = weights.recurrent.dtype
    half = asked_for_bfloat16(load(SOURCE, dtype))
    with torch.autocast("cpu", enabled=False):
        plan = _Plan(list(batch_sizes), chunk_size, half)
        tensors = (tokens.to(dtype), *weights, hidden.to(dtype), cell.to(dtype))
        if torch.is_grad_enabled():
            return Recurrence(*_Recur.apply(plan, *tensors))  # type: ignore[no-untyped-call]
        return Recurrence(*_run(plan, *tensors, keep=False)[0])


class _Plan(NamedTuple):
    """What is no tensor."""

    batch_sizes: list[int]
    chunk_size: int
    half: bool


class _Recur(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        plan: _Plan,
        tokens: Tensor,
        weight_i: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        hidden: Tensor,
        cell: Tensor,
    ) -> tuple[Tensor, ...]:
        result, kept = _run(plan, tokens, weight_i, weight, bias, hidden, cell, keep=True)
        ctx.save_for_backward(tokens, weight_i, weight, hidden, cell, result[0], *kept)
        ctx.plan = plan
        ctx.set_materialize_grads(False)
        return result

    @staticmethod
    @first_only
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        tokens, weight_i, weight, hidden, cell, output, units, softmax, cells = ctx.saved_tensors
        d_output, d_last_hidden, d_last_cell, d_forget, d_input = upstream
        call = _Call(ctx.plan, weight, hidden, cell, tokens.shape[1], keep=True)
        given = {"d_output": d_output, "d_forget_distance": d_forget, "d_input_distance": d_input}
        made = {
            "d_gates": pool.empty(units.numel(), units.dtype).view_as(units),
            "d_hidden": _copy(d_last_hidden, hidden),
            "d_cell": _copy(d_last_cell, cell),
            "d_masters": hidden.new_empty(len(hidden), softmax.shape[1]),
        }
        call.set(units=units, softmax=softmax, cells=cells, **given, **made)
        call.run(back=True)
        d_gates, wanted = made["d_gates"], ctx.needs_input_grad[1:]
        dtype = torch.bfloat16 if ctx.plan.half else d_gates.dtype
        rounded = d_gates.to(dtype)

        def times(left: Tensor, right: Tensor) -> Tensor:
            return (left @ right.to(dtype)).to(d_gates.dtype)

        return (
            None,
            times(rounded, weight_i) if wanted[0] else None,
            times(rounded.t(), tokens) if wanted[1] else None,
            times(rounded.t(), previous_hidden(hidden, output, ctx.plan.batch_sizes)) if wanted[2] else None,
            d_gates.sum(0) if wanted[3] else None,
            made["d_hidden"],
            made["d_cell"],
        )


class _Call:
    """One pass over the tokens: the structure that C reads, and the tensors that it points into."""

    def __init__(
        self, plan: _Plan, weight: Tensor, hidden: Tensor, cell: Tensor, features: int, keep: bool
    ) -> None:
        library = load(SOURCE, weight.dtype)
        assert isinstance(library, Library)
        self.library = library
        rows, size = weight.shape
        masters = size // plan.chunk_size
        work = plan.batch_sizes[0] * rows * size
        self.threads = max(1, min(torch.get_num_threads(), masters, work // (2 * WORTH_A_THREAD)))
        sizes = (len(plan.batch_sizes), len(hidden), features, size, masters, plan.chunk_size, rows)
        self.struct = _Pass(*sizes, self.threads, int(keep))
        self.tensors: dict[str, Tensor | None] = {}
        self.like = weight
        counts = torch.tensor(plan.batch_sizes)
        self.set(rows=counts, start=counts.cumsum(0) - counts, weight=weight, hidden0=hidden, cell0=cell)

    def set(self, **tensors: Tensor | None) -> None:
        """Point to these, which must be what C takes them for."""
        for name, tensor in tensors.items():
            held = None if tensor is None else tensor.detach().contiguous()
            self.tensors[name] = held
            setattr(self.struct, name, None if held is None else held.data_ptr())

    def run(self, back: bool) -> None:
        """Call C on every thread."""
        meeting = (ctypes.c_int64 * 16)()
        self.struct.meeting = ctypes.addressof(meeting)
        code, name = self.library.code, "run_back" if back else "run"
        code.scratch_size.restype = ctypes.c_int64
        getattr(code, name).restype = None
        pointer = ctypes.byref(self.struct)
        sizes = [
            code.scratch_size(pointer, ctypes.c_int64(thread), ctypes.c_int64(back))
            for thread in range(self.threads)
        ]
        scratch = [pool.empty(size, self.like.dtype) for size in sizes]

        def work(thread: int) -> None:
            getattr(code, name)(pointer, ctypes.c_int64(thread), ctypes.c_void_p(scratch[thread].data_ptr()))

        with _one_call:
            if self.threads == 1:
                work(0)
            elif not run_in_team(self.library, name, self.struct, scratch):
                run_in_threads(self.library, work, range(self.threads))


def _run(
    plan: _Plan,
    tokens: Tensor,
    weight_i: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    hidden: Tensor,
    cell: Tensor,
    keep: bool,
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The five tensors of the result; units, softmax and cells of every token if they are to be kept."""
    call = _Call(plan, weight, hidden, cell, tokens.shape[1], keep)
    count, (rows, size) = len(tokens), weight.shape
    largest = plan.batch_sizes[0]
    units = pool.empty((count if keep else max(largest, BLOCK)) * rows, weight.dtype).view(-1, rows)
    softmax = weight.new_empty(count if keep else 0, rows - 4 * size)
    cells = pool.empty((count if keep else largest) * size, weight.dtype).view(-1, size)
    output = pool.empty(count * size, weight.dtype).view(count, size)
    last = _copy(hidden, hidden), _copy(cell, cell)
    distances = weight.new_empty(count), weight.new_empty(count)
    call.set(tokens=tokens, weight_i=weight_i, bias=bias, units=units, softmax=softmax, cells=cells)
    call.set(output=output, last_hidden=last[0], last_cell=last[1])
    call.set(forget_distance=distances[0], input_distance=distances[1])
    call.run(back=False)
    return (output, *last, *distances), (units, softmax, cells)


def _copy(tensor: Tensor | None, like: Tensor) -> Tensor:
    """A contiguous tensor of its own, zero where there is none."""
    if tensor is None:
        return torch.zeros_like(like, memory_format=torch.contiguous_format)
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _check_shapes(
    tokens: Tensor,
    batch_sizes: Sequence[int],
    weights: Weights,
    hidden: Tensor,
    cell: Tensor,
    chunk_size: int,
) -> None:
    """C takes sizes and dtypes on trust."""
    rows, size = weights.recurrent.shape
    if size % chunk_size or rows != 4 * size + 2 * (size // chunk_size):
        raise ValueError(
            f"weights.recurrent must be (4H + 2M, H), got {(rows, size)} for chunk_size={chunk_size}"
        )
    features = tokens.shape[1]
    for name, tensor, shape in (
        ("tokens", tokens, (sum(batch_sizes), features)),
        ("weights.input", weights.input, (rows, features)),
        ("weights.bias", weights.bias, (rows,)),
        ("hidden", hidden, (len(hidden), size)),
        ("cell", cell, (len(hidden), size)),
    ):
        if tensor is not None and tuple(tensor.shape) != shape:
            raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
    if not len(hidden) >= batch_sizes[0] >= 1:
        raise ValueError(f"batch_sizes must begin with 1 to {len(hidden)} (B), got {batch_sizes[0]}")
    for name, weight in (("input", weights.input), ("bias", weights.bias)):
        if weight is not None and weight.dtype != weights.recurrent.dtype:
            raise ValueError(f"weights.{name} must be {weights.recurrent.dtype}, got {weight.dtype}")
