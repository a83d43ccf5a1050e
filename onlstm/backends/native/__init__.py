"""The recurrence compiled for the CPU it runs on, from one file of C.

Every thread has some of the units, of all sequences, from the first token to the last and back, and
meets the others twice a step: `recurrence.c` says how. Between the products, of a matrix packed once
(`product.h`), there is nothing but one pass over the units. The file is compiled when it is first needed,
into the user's cache directory; without a compiler this backend cannot run, and "auto" does without it.

Under autocast the recurrence stays in the dtype of the parameters.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from onlstm.functional import Recurrence
from ordered_memory.backends.derivatives import first_only
from ordered_memory.compiled import pool
from ordered_memory.compiled.build import Library, load
from ordered_memory.compiled.threads import run_in_threads

SOURCE = Path(__file__).with_name("recurrence.c")
WORTH_A_THREAD = 200_000
"""Multiplications of a step for each thread: with fewer, meeting the others costs more than it saves."""

_SIZES = ("T", "B", "H", "M", "C", "G", "threads", "keep")
_POINTERS = (
    *("rows", "start", "gates", "weight", "hidden0", "cell0", "units", "softmax", "cells", "output"),
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
    gates: Tensor, batch_sizes: Sequence[int], weight: Tensor, hidden: Tensor, cell: Tensor, chunk_size: int
) -> Recurrence:
    """`onlstm.functional.recur`, faster; see there."""
    _check_shapes(gates, batch_sizes, weight, hidden, cell, chunk_size)
    with torch.autocast("cpu", enabled=False):
        dtype = weight.dtype
        tensors = (gates.to(dtype), weight, hidden.to(dtype), cell.to(dtype))
        if torch.is_grad_enabled():
            return Recurrence(*_Recur.apply(list(batch_sizes), chunk_size, *tensors))  # type: ignore[no-untyped-call]
        return Recurrence(*_run(list(batch_sizes), chunk_size, *tensors, keep=False)[0])


class _Recur(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        batch_sizes: list[int],
        chunk_size: int,
        gates: Tensor,
        weight: Tensor,
        hidden: Tensor,
        cell: Tensor,
    ) -> tuple[Tensor, ...]:
        result, kept = _run(batch_sizes, chunk_size, gates, weight, hidden, cell, keep=True)
        ctx.save_for_backward(weight, hidden, cell, result[0], *kept)
        ctx.batch_sizes, ctx.chunk_size = batch_sizes, chunk_size
        ctx.set_materialize_grads(False)
        return result

    @staticmethod
    @first_only
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        weight, hidden, cell, output, units, softmax, cells = ctx.saved_tensors
        d_output, d_last_hidden, d_last_cell, d_forget, d_input = upstream
        call = _Call(ctx.batch_sizes, ctx.chunk_size, weight, hidden, cell, keep=True)
        given = {"d_output": d_output, "d_forget_distance": d_forget, "d_input_distance": d_input}
        made = {
            "d_gates": pool.empty(units.numel(), units.dtype).view_as(units),
            "d_hidden": _copy(d_last_hidden, hidden),
            "d_cell": _copy(d_last_cell, cell),
            "d_masters": hidden.new_empty(len(hidden), softmax.shape[1]),
        }
        call.set(units=units, softmax=softmax, cells=cells, **given, **made)
        call.run(back=True)
        starts = [0, *accumulate(ctx.batch_sizes)]
        going_on = zip(starts[:-2], ctx.batch_sizes[1:], strict=True)
        before = [hidden[: ctx.batch_sizes[0]], *(output[start : start + rows] for start, rows in going_on)]
        d_weight = made["d_gates"].t() @ torch.cat(before)
        return None, None, made["d_gates"], d_weight, made["d_hidden"], made["d_cell"]


class _Call:
    """One pass over the tokens: the structure that C reads, and the tensors that it points into."""

    def __init__(
        self,
        batch_sizes: list[int],
        chunk_size: int,
        weight: Tensor,
        hidden: Tensor,
        cell: Tensor,
        keep: bool,
    ) -> None:
        library = load(SOURCE, weight.dtype)
        assert isinstance(library, Library)
        self.library = library
        rows, size = weight.shape
        masters = size // chunk_size
        batch = batch_sizes[0]
        self.threads = max(
            1, min(torch.get_num_threads(), masters, batch * rows * size // (2 * WORTH_A_THREAD))
        )
        self.struct = _Pass(
            len(batch_sizes), len(hidden), size, masters, chunk_size, rows, self.threads, int(keep)
        )
        self.tensors: dict[str, Tensor | None] = {}
        self.like = weight
        counts = torch.tensor(batch_sizes)
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
        code = self.library.code
        code.scratch_size.restype = ctypes.c_int64
        code.run.restype = code.run_back.restype = None
        pointer, function = ctypes.byref(self.struct), code.run_back if back else code.run

        def work(thread: int) -> None:
            size = code.scratch_size(pointer, ctypes.c_int64(thread), ctypes.c_int64(back))
            scratch = pool.empty(size, self.like.dtype)
            function(pointer, ctypes.c_int64(thread), ctypes.c_void_p(scratch.data_ptr()))

        with _one_call:
            run_in_threads(self.library, work, range(self.threads))


def _run(
    batch_sizes: list[int],
    chunk_size: int,
    gates: Tensor,
    weight: Tensor,
    hidden: Tensor,
    cell: Tensor,
    keep: bool,
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The five tensors of the result; units, softmax and cells of every token if they are to be kept."""
    call = _Call(batch_sizes, chunk_size, weight, hidden, cell, keep)
    tokens, size, masters = len(gates), weight.shape[1], weight.shape[1] // chunk_size
    at_once = tokens if keep else batch_sizes[0]
    units = pool.empty(at_once * gates.shape[1], gates.dtype).view(at_once, -1)
    softmax = gates.new_empty(at_once, 2 * masters)
    cells = gates.new_empty(at_once, size)
    output = pool.empty(tokens * size, gates.dtype).view(tokens, size)
    last = _copy(hidden, hidden), _copy(cell, cell)
    distances = gates.new_empty(tokens), gates.new_empty(tokens)
    call.set(gates=gates, units=units, softmax=softmax, cells=cells, output=output)
    call.set(last_hidden=last[0], last_cell=last[1])
    call.set(forget_distance=distances[0], input_distance=distances[1])
    call.run(back=False)
    return (output, *last, *distances), (units, softmax, cells)


def _copy(tensor: Tensor | None, like: Tensor) -> Tensor:
    """A contiguous tensor of its own, zero where there is none."""
    if tensor is None:
        return torch.zeros_like(like, memory_format=torch.contiguous_format)
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _check_shapes(
    gates: Tensor, batch_sizes: Sequence[int], weight: Tensor, hidden: Tensor, cell: Tensor, chunk_size: int
) -> None:
    """C takes sizes on trust."""
    rows, size = weight.shape
    if size % chunk_size or rows != 4 * size + 2 * (size // chunk_size):
        raise ValueError(
            f"weight must be (4H + 2M, H), got {tuple(weight.shape)} for chunk_size={chunk_size}"
        )
    if tuple(gates.shape) != (sum(batch_sizes), rows):
        raise ValueError(f"gates must be {(sum(batch_sizes), rows)}, got {tuple(gates.shape)}")
    if hidden.shape != cell.shape or hidden.shape[1] != size or not len(hidden) >= batch_sizes[0] >= 1:
        raise ValueError(
            f"hidden and cell must be (B, {size}) with B of at least {batch_sizes[0]}, got "
            f"{tuple(hidden.shape)} and {tuple(cell.shape)}"
        )
