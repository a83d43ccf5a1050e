"""The recurrence in C, compiled for the CPU, as a PyTorch operator.

Every thread computes some of the units, for all sequences, and synchronizes with the other threads twice per
step: see `recurrence.c`. All elementwise operations of a step are one loop over the units.

Each pass packs the weights that it multiplies by once (`runtime/gemm.h`). The exception is the forward pass
of a call with at most eight tokens (T · B) and without bfloat16 operands, which reads them as they are, and
sums in a different order.

A wheel contains the compiled code. From a checkout it is compiled when first needed, into the user's cache
directory. With neither a wheel nor a compiler this backend cannot run, and "auto" selects another one.

Under autocast the recurrence keeps the dtype of the parameters. Under bfloat16 autocast its matrix products,
and the three products over all tokens at the end of the backward pass, have bfloat16 operands if the
processor supports such products and both `input_size` and H are even.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from onlstm.backends import contract
from onlstm.backends.contract import Implementation, Inputs
from onlstm.backends.products import multiply
from onlstm.functional import RecurrenceOutput, Weights
from ordered_memory.backends.operators import Shapes, define
from ordered_memory.backends.runtime import buffers
from ordered_memory.backends.runtime.build import load_or_raise, why_not_loaded
from ordered_memory.backends.runtime.processor import warn_float32_products
from ordered_memory.backends.runtime.threads import run_team
from ordered_memory.modes import assume_constant_result

SOURCE = Path(__file__).with_name("recurrence.c")
MIN_WORK_PER_THREAD = 400_000
"""Multiplications per step and thread below which synchronizing another thread costs more than it saves."""


def why_not(tokens: Tensor, weights: Weights, hidden: Tensor, cell: Tensor) -> str | None:
    """Why this backend cannot run; see `onlstm.backends.contract.why_not`."""
    for name, tensor in (("tokens", tokens), ("weights", weights.weight_hh)):
        if tensor.device.type != "cpu":
            return f"it runs on a CPU, the {name} are on {tensor.device.type}"
    dtype = weights.weight_hh.dtype
    if dtype not in (torch.float32, torch.float64):
        return f"its parameters must be float32 or float64, not {dtype}"
    return contract.why_not(tokens, weights, hidden, cell) or _why_not_loaded(dtype)


@assume_constant_result  # here, because PyTorch 2.8 cannot pass a path to such a function
def _why_not_loaded(dtype: torch.dtype) -> str | None:
    return why_not_loaded(SOURCE, dtype)


class _Native(Implementation):
    """The loop over time in C.

    The saved tensors are the gates i, f, ĉ and o, with the logits of the master gates beside them, (P, G), in
    the order that parts.h describes; the softmax of these logits, (P, 2M); the cells, (P, H); and the number
    of parts into which the units were divided, ().
    """

    def saved_shapes(self, inputs: Inputs) -> Shapes:
        tokens, (rows, size), dtype = inputs.tokens.shape[0], inputs.weight_hh.shape, inputs.weight_hh.dtype
        per_token = [((tokens, width), dtype) for width in (rows, rows - 4 * size, size)]
        return [*per_token, ((), torch.int64)]

    def forward(self, inputs: Inputs, save: bool) -> tuple[RecurrenceOutput, list[Tensor]]:
        sizes: list[int] = inputs.batch_sizes.tolist()
        rows, size = inputs.weight_hh.shape
        work, master_size = sizes[0] * rows * size, size // inputs.chunk_size
        parts = max(1, min(torch.get_num_threads(), master_size, work // MIN_WORK_PER_THREAD))
        num_tokens, dtype = len(inputs.tokens), inputs.weight_hh.dtype
        block = load_or_raise(SOURCE, dtype).constant("block_tokens")
        saved = {
            "gates": _buffer(num_tokens if save else max(sizes[0], block), rows, dtype),
            "softmax": _buffer(num_tokens if save else 0, 2 * master_size, dtype),
            "cells": _buffer(num_tokens if save else sizes[0], size, dtype),
        }
        result = self.new_results(inputs)._replace(hidden=_clone(inputs.hidden), cell=_clone(inputs.cell))
        written_fields = {"last_hidden": result.hidden, "last_cell": result.cell, "output": result.output}
        written_fields |= {"forget_distance": result.forget_distance, "input_distance": result.input_distance}
        _run("forward", inputs, parts, save, **saved, **written_fields)
        num_parts = torch.tensor(parts, dtype=torch.int64, device="cpu")
        return result, [*saved.values(), num_parts] if save else []

    def backward(
        self,
        inputs: Inputs,
        results: Sequence[Tensor],
        saved: list[Tensor],
        upstream: Sequence[Tensor | None],
        needs_input_grad: list[bool],
    ) -> Iterable[Tensor | None]:
        gates, softmax, cells, parts = saved
        d_output, d_last_hidden, d_last_cell, d_forget_distance, d_input_distance = upstream
        d_preactivations = _buffer(gates.shape[0], gates.shape[1], gates.dtype)
        rounded = None
        if _uses_bf16_vnni(inputs):
            rounded = _buffer(gates.shape[0], gates.shape[1], torch.bfloat16)
        d_master_gates = softmax.new_empty(len(inputs.hidden), softmax.shape[1])
        d_hidden, d_cell = (
            torch.zeros_like(state, memory_format=torch.contiguous_format) if d is None else _clone(d)
            for state, d in ((inputs.hidden, d_last_hidden), (inputs.cell, d_last_cell))
        )
        read_fields = {
            "d_output": d_output,
            "d_forget_distance": d_forget_distance,
            "d_input_distance": d_input_distance,
            "gates": gates,
            "softmax": softmax,
            "cells": cells,
        }
        written_fields: dict[str, Tensor | None] = {
            "d_preactivations": d_preactivations,
            "d_master_gates": d_master_gates,
            "d_hidden": d_hidden,
            "d_cell": d_cell,
            "bf16_d_preactivations": rounded,
        }
        _run("backward", inputs, int(parts), True, **read_fields, **written_fields)
        return contract.gradients(
            inputs, results[0], d_preactivations, d_hidden, d_cell, needs_input_grad, rounded, multiply
        )


def _uses_bf16_vnni(inputs: Inputs) -> bool:
    """Whether the C code multiplies in the VNNI layout (bf16.h): rows of operands need an even size."""
    even = inputs.tokens.shape[1] % 2 == 0 and inputs.weight_hh.shape[1] % 2 == 0
    return inputs.bfloat16 and even and load_or_raise(SOURCE, inputs.weight_hh.dtype).has_bf16_vnni


def _run(function: str, inputs: Inputs, parts: int, save: bool, **extra_fields: Tensor | None) -> None:
    """Call a C function with the struct of `arguments.h`. `extra_fields` are further fields, by name."""
    rows, size = inputs.weight_hh.shape
    steps, (batch_size, _) = len(inputs.batch_sizes), inputs.hidden.shape
    features, master_size = inputs.tokens.shape[1], size // inputs.chunk_size
    library = load_or_raise(SOURCE, inputs.weight_hh.dtype)
    if inputs.bfloat16 and library.dtype == torch.float32 and not library.has_bf16_vnni:
        warn_float32_products()
    uses_vnni = _uses_bf16_vnni(inputs)
    sizes = (steps, batch_size, features, size, master_size, inputs.chunk_size, rows)
    struct: Any = library.struct("Pass")(*sizes, parts, int(save), int(uses_vnni))
    tensors: dict[str, Tensor | None] = {
        "batch_sizes": inputs.batch_sizes,
        "first_token": inputs.batch_sizes.cumsum(0) - inputs.batch_sizes,
        "tokens": inputs.tokens,
        "weight_ih": inputs.weight_ih,
        "weight_hh": inputs.weight_hh,
        "bias": inputs.bias,
        "hidden0": inputs.hidden,
        "cell0": inputs.cell,
        "barrier": torch.zeros(2, dtype=torch.int64, device="cpu"),
        **extra_fields,
    }
    if uses_vnni and function == "forward":
        operands = {
            name: _vnni_layout(getattr(inputs, name)) for name in ("tokens", "weight_ih", "weight_hh")
        }
        tensors |= {**operands, "bf16_hidden": inputs.hidden.to(torch.bfloat16)}
    elif uses_vnni:
        tensors |= {"weight_hh": _vnni_layout(inputs.weight_hh.t())}
    struct.point(
        **{name: None if tensor is None else tensor.contiguous() for name, tensor in tensors.items()}
    )
    struct.point(workspace=_buffer(1, library.workspace_size(struct, function == "backward"), library.dtype))
    run_team(library, function, struct, parts)


def _vnni_layout(matrix: Tensor) -> Tensor:
    """Convert a matrix (m, k) to bfloat16, in the VNNI layout: two numbers in each float32, (m, k / 2)."""
    return matrix.to(torch.bfloat16).contiguous().view(torch.float32)


def _buffer(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Uninitialized memory of the pool, (rows, columns), which no result shares."""
    return buffers.empty(rows * columns * dtype.itemsize).view(dtype).view(rows, columns)


def _clone(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


OPERATOR = define("onlstm::native", _Native(), "cpu")
run_recurrence = partial(contract.run, OPERATOR)
