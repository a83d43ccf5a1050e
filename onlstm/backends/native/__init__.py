"""The recurrence compiled for the CPU it runs on, as an operator of PyTorch.

Every thread has some of the units, of all sequences, from the first token to the last and back, and meets
the others twice a step: `recurrence.c` says how. Between the products, of a matrix packed once (`product.h`),
there is nothing but one pass over the units. The C is compiled when it is first needed, into the user's cache
directory; without a compiler this engine cannot run, and "auto" does without it.

Under autocast the recurrence stays in the dtype of the parameters; under bfloat16 autocast the three products
over all tokens that end the reverse pass take bfloat16 operands, where the processor multiplies such numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from onlstm.backends import contract
from onlstm.backends.contract import Inputs, Shapes
from onlstm.functional import Recurrence, Weights
from ordered_memory.backends.runtime.build import Library, load
from ordered_memory.backends.runtime.threads import run_team

SOURCE = Path(__file__).with_name("recurrence.c")
BLOCK = 256
"""As in arguments.h: tokens whose product with W is one, when nothing is kept."""
WORTH_A_THREAD = 200_000
"""Multiplications of a step for each thread: with fewer, meeting the others costs more than it saves."""


def why_not(tokens: Tensor, weights: Weights, hidden: Tensor, cell: Tensor) -> str | None:
    """Why this backend cannot run; see `onlstm.backends.contract.why_not`."""
    for name, tensor in (("tokens", tokens), ("weights", weights.recurrent)):
        if tensor.device.type != "cpu":
            return f"it runs on a CPU, the {name} are on {tensor.device.type}"
    dtype = weights.recurrent.dtype
    if dtype not in (torch.float32, torch.float64):
        return f"its parameters must be float32 or float64, not {dtype}"
    return contract.why_not(tokens, weights, hidden, cell) or _why_no_library(dtype == torch.float64)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _why_no_library(double: bool) -> str | None:
    library = load(SOURCE, torch.float64 if double else torch.float32)
    return library if isinstance(library, str) else None


def run_recurrence(
    tokens: Tensor,
    batch_sizes: Sequence[int] | Tensor,
    weights: Weights,
    hidden: Tensor,
    cell: Tensor,
    chunk_size: int,
) -> Recurrence:
    """Run the recurrence in C; see `onlstm.functional.run_recurrence`."""
    return contract.run(OPERATOR, tokens, batch_sizes, weights, hidden, cell, chunk_size)


class _Native:
    """`contract.Engine` in C.

    Kept are the gates (P, G) after their non-linearities, in the order that arguments.h describes, the
    softmax of both master gates' logits (P, 2M), the cells (P, H), and into how many parts the units were
    divided, ().
    """

    def kept(self, inputs: Inputs) -> Shapes:
        tokens, (rows, size), dtype = inputs.tokens.shape[0], inputs.weight_hh.shape, inputs.weight_hh.dtype
        of_token = [((tokens, width), dtype) for width in (rows, rows - 4 * size, size)]
        return [*of_token, ((), torch.int64)]

    def forward(self, inputs: Inputs, keep: bool) -> tuple[Recurrence, list[Tensor]]:
        sizes: list[int] = inputs.batch_sizes.tolist()
        rows, size = inputs.weight_hh.shape
        work, masters = sizes[0] * rows * size, size // inputs.chunk_size
        parts = max(1, min(torch.get_num_threads(), masters, work // (2 * WORTH_A_THREAD)))
        new, count = inputs.weight_hh.new_empty, len(inputs.tokens)
        gates = new(count if keep else max(sizes[0], BLOCK), rows)
        softmax = new(count if keep else 0, 2 * masters)
        cells = new(count if keep else sizes[0], size)
        result = Recurrence(
            new(count, size), _clone(inputs.hidden), _clone(inputs.cell), new(count), new(count)
        )
        struct = _struct(inputs, parts, keep)
        struct.point(tokens=inputs.tokens.contiguous(), weight_ih=inputs.weight_ih.contiguous())
        struct.point(bias=None if inputs.bias is None else inputs.bias.contiguous())
        struct.point(gates=gates, softmax=softmax, cells=cells, output=result.output)
        struct.point(last_hidden=result.hidden, last_cell=result.cell)
        struct.point(forget_distance=result.forget_distance, input_distance=result.input_distance)
        _run(inputs, struct, "forward")
        decided = torch.tensor(parts, dtype=torch.int64, device="cpu")
        return result, [gates, softmax, cells, decided] if keep else []

    def backward(
        self,
        inputs: Inputs,
        output: Tensor,
        kept: list[Tensor],
        upstream: Sequence[Tensor | None],
        wanted: list[bool],
    ) -> list[Tensor]:
        gates, softmax, cells, parts = kept
        given = [None if tensor is None else tensor.contiguous() for tensor in upstream]
        d_gates = torch.empty_like(gates)
        d_hidden, d_cell = (
            torch.zeros_like(state, memory_format=torch.contiguous_format) if d is None else _clone(d)
            for state, d in zip((inputs.hidden, inputs.cell), given[1:3], strict=True)
        )
        struct = _struct(inputs, int(parts), keep=True)
        struct.point(
            gates=gates, softmax=softmax, cells=cells, d_gates=d_gates, d_hidden=d_hidden, d_cell=d_cell
        )
        struct.point(d_output=given[0], d_forget_distance=given[3], d_input_distance=given[4])
        struct.point(d_masters=softmax.new_empty(len(inputs.hidden), softmax.shape[1]))
        _run(inputs, struct, "backward")
        narrow = inputs.bfloat16 and _library(inputs).bf16_gemm is not None
        rounded = d_gates.bfloat16() if narrow else d_gates

        def times(left: Tensor, right: Tensor) -> Tensor:
            return (left @ right.to(left.dtype)).to(d_gates.dtype)

        gradients: tuple[Callable[[], Tensor], ...] = (
            lambda: times(rounded, inputs.weight_ih),
            lambda: times(rounded.t(), inputs.tokens),
            lambda: times(rounded.t(), contract.previous_hidden(inputs, output)),
            lambda: d_gates.sum(0),
            lambda: d_hidden,
            lambda: d_cell,
        )
        return [gradient() for gradient, one in zip(gradients, wanted, strict=True) if one]


def _library(inputs: Inputs) -> Library:
    library = load(SOURCE, inputs.weight_hh.dtype)
    if isinstance(library, str):
        raise RuntimeError(f"backend 'native' cannot run here: {library}")
    return library


def _struct(inputs: Inputs, parts: int, keep: bool) -> Any:
    """`Pass` of arguments.h with what both passes read."""
    rows, size = inputs.weight_hh.shape
    steps, (sequences, _) = len(inputs.batch_sizes), inputs.hidden.shape
    features, masters = inputs.tokens.shape[1], size // inputs.chunk_size
    sizes = (steps, sequences, features, size, masters, inputs.chunk_size, rows, parts, int(keep))
    struct = _library(inputs).struct("Pass")(*sizes)
    counts = inputs.batch_sizes.contiguous()
    struct.point(rows=counts, start=counts.cumsum(0) - counts, weight_hh=inputs.weight_hh.contiguous())
    struct.point(hidden0=inputs.hidden.contiguous(), cell0=inputs.cell.contiguous())
    struct.point(barrier=torch.zeros(2, dtype=torch.int64, device="cpu"))
    return struct


def _run(inputs: Inputs, struct: Any, function: str) -> None:
    library = _library(inputs)
    library.code.scratch_size.restype = ctypes.c_int64
    size = library.code.scratch_size(ctypes.byref(struct), ctypes.c_int64(function == "backward"))
    struct.point(scratch=inputs.weight_hh.new_empty(size))
    run_team(library, function, struct, struct.parts)


def _clone(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


OPERATOR = contract.define_operator("native", _Native(), "cpu")
