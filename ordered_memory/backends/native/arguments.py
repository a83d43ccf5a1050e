"""What the functions of recurrence.c are called with: `Pass`, and the tensors it points to."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ordered_memory.backends.native.dropout import Dropout
from ordered_memory.backends.runtime import pool
from ordered_memory.backends.runtime.build import Library, load
from ordered_memory.memory import OrderedMemoryState

SOURCE = Path(__file__).with_name("recurrence.c")

WEIGHTS = (
    "first",
    "first_bias",
    "second",
    "second_bias",
    "key",
    "key_bias",
    "output",
    "output_bias",
    "key_norm",
    "key_norm_bias",
    "norm",
    "norm_bias",
)
UPSTREAM = ("d_out", "d_attention", "d_memory", "d_candidate", "d_occupancy")
DOWNSTREAM = ("d_x", "d_query", "d_memory0", "d_candidate0", "d_occupancy0")


class Plan(NamedTuple):
    """What is known before the first token.

    Args:
        lengths: tokens of each sequence.
        normalized: the score is `NormalizedScore`.
        num_score_weights: how many weights are the score's; then the cell's five, then the norm's two.
        threshold: occupancies below this count as 0.
        epsilon: of the LayerNorm.
        dropout: what is dropped.
        half: products take bfloat16 operands.
    """

    lengths: list[int]
    normalized: bool
    num_score_weights: int
    threshold: float
    epsilon: float
    dropout: Dropout
    half: bool


class Share(NamedTuple):
    """What one thread computes and keeps for the reverse pass.

    Args:
        row: its rows of the batch, the longest sequence first, (R,).
        length: their tokens, (R,).
        input, hidden, units, composed: of active pairs, as many as there are: 2D, 4D, 4D and D wide.
        top: the first active slot of each row at each step, (T, R) int32.
        start: the first pair of each step, then the number of steps, (T + 2).
    """

    row: Tensor
    length: Tensor
    input: Tensor
    hidden: Tensor
    units: Tensor
    composed: Tensor
    top: Tensor
    start: Tensor


def compiled(dtype: torch.dtype) -> Library | str:
    """The functions of recurrence.c for a dtype, or why there are none."""
    library = load(SOURCE, dtype)
    if isinstance(library, Library):
        library.code.scratch_size.restype = library.code.run.restype = ctypes.c_int64
        library.code.run_back.restype = None
    return library


class Call:
    """The tensors of one pass, as C wants them."""

    def __init__(
        self,
        plan: Plan,
        inputs: Tensor,
        queried: Tensor,
        state: OrderedMemoryState,
        weights: Sequence[Tensor],
        output: Tensor,
        attention: Tensor,
    ) -> None:
        library = compiled(inputs.dtype)
        assert isinstance(library, Library)
        self.plan, self.library = plan, library
        self.tensors = [tensor.detach().contiguous() for tensor in (inputs, queried, *state)]
        self.results = (output, attention)
        key, key_bias, score, score_bias, *key_norm = weights[: plan.num_score_weights]
        from_memory, from_candidate, first_bias, second, second_bias = weights[plan.num_score_weights : -2]
        self.scale = float(inputs.shape[2]) ** -0.5
        dropout = plan.dropout
        self.weights = {
            "first": torch.cat([from_memory, from_candidate], 1) * dropout.cell_gain,
            "first_bias": first_bias,
            "second": second * dropout.cell_gain,
            "second_bias": second_bias,
            "key": key * dropout.score_gain,
            "key_bias": key_bias,
            "output": score[0] * (dropout.score_gain * self.scale),
            "output_bias": score_bias * self.scale,
            "key_norm": key_norm[0] if key_norm else torch.ones_like(key_bias),
            "key_norm_bias": key_norm[1] if key_norm else torch.zeros_like(key_bias),
            "norm": weights[-2],
            "norm_bias": weights[-1],
        }
        self.weights = {name: weight.detach().contiguous() for name, weight in self.weights.items()}
        matrices = {name: self.weights[name] for name in ("first", "second", "key")}
        self.transposed = {f"{name}_t": matrix.t().contiguous() for name, matrix in matrices.items()}
        self.half = {
            f"half_{name}": matrix.bfloat16()
            for name, matrix in (matrices | self.transposed).items()
            if plan.half
        }

    def struct(self, share: Share, keep: bool) -> Any:
        """The arguments of one thread."""
        inputs, memory = self.tensors[0], self.tensors[2]
        steps, batch_size, size = inputs.shape
        real = ctypes.c_float if inputs.dtype == torch.float32 else ctypes.c_double
        struct = _pass_type(real)()
        struct.T, struct.B, struct.N, struct.D, struct.R = (
            steps,
            batch_size,
            memory.shape[1],
            size,
            len(share.row),
        )
        struct.normalized, struct.keep = self.plan.normalized, keep
        struct.threshold, struct.epsilon, struct.key_epsilon = self.plan.threshold, self.plan.epsilon, 1e-5
        struct.score_bias = float(self.weights["output_bias"])
        pointers = {
            **dict(zip(("x", "query", "memory0", "candidate0", "occupancy0"), self.tensors, strict=True)),
            **{name: self.weights[name] for name in WEIGHTS if name != "output_bias"},
            **self.transposed,
            **self.half,
            **dict(zip(("out", "attention"), self.results, strict=True)),
            **share._asdict(),
        }
        for name, tensor in pointers.items():
            setattr(struct, name, tensor.data_ptr())
        for i, mask in enumerate(self.plan.dropout.given):
            struct.given[i] = None if mask is None else mask.data_ptr()
            struct.level[i] = self.plan.dropout.levels[i]
        struct.seed = self.plan.dropout.seed
        struct.gemm = self.library.gemm
        struct.half_gemm = self.library.half_gemm if self.plan.half else None
        return struct

    def scratch(self, struct: Any, reverse: bool) -> ctypes.c_void_p:
        """Scratch memory of one thread, kept alive by the struct."""
        size = self.library.code.scratch_size(ctypes.byref(struct), ctypes.c_int64(reverse))
        struct.scratch = pool.empty(size, torch.uint8)
        return ctypes.c_void_p(struct.scratch.data_ptr())

    def weight_gradients(self, sums: dict[str, Tensor]) -> list[Tensor]:
        """The gradients of the parameters, given those of what they were made into."""
        dropout = self.plan.dropout
        sums["first"] *= dropout.cell_gain
        sums["second"] *= dropout.cell_gain
        sums["key"] *= dropout.score_gain
        sums["output"] *= dropout.score_gain * self.scale
        sums["output_bias"] *= self.scale
        score = [sums["key"], sums["key_bias"], sums["output"].unsqueeze(0), sums["output_bias"]]
        if self.plan.normalized:
            score += [sums["key_norm"], sums["key_norm_bias"]]
        from_memory, from_candidate = sums["first"].chunk(2, 1)
        cell = [from_memory, from_candidate, sums["first_bias"], sums["second"], sums["second_bias"]]
        return [*score, *cell, sums["norm"], sums["norm_bias"]]


@cache
def _pass_type(real: type) -> type[ctypes.Structure]:
    """`Pass` of recurrence.c."""
    pointer, integer = ctypes.c_void_p, ctypes.c_int64

    def pointers(names: str) -> list[tuple[str, Any]]:
        return [(name, pointer) for name in names.split()]

    fields: list[tuple[str, Any]] = [
        *((name, integer) for name in ("T", "B", "N", "D", "R", "normalized", "keep")),
        *pointers("row length"),
        *((name, real) for name in ("threshold", "epsilon", "key_epsilon", "score_bias")),
        *pointers("x query memory0 candidate0 occupancy0"),
        *pointers("first first_t first_bias second second_t second_bias"),
        *pointers("key key_t key_bias output key_norm key_norm_bias norm norm_bias"),
        ("given", pointer * 4),
        ("level", integer * 4),
        ("seed", ctypes.c_uint64),
        *pointers("out attention memory candidate occupancy"),
        *pointers("input hidden units composed top start"),
        *pointers(" ".join(UPSTREAM)),
        *pointers(" ".join(DOWNSTREAM)),
        *pointers(" ".join(f"d_{name}" for name in WEIGHTS)),
        *pointers("gemm half_gemm"),
        *pointers("half_first half_first_t half_second half_second_t half_key half_key_t"),
    ]
    return type("Pass", (ctypes.Structure,), {"_fields_": fields})
