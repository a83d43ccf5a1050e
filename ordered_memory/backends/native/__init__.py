"""The recurrence compiled for the CPU it runs on, from one file of C.

Sequences are independent, so every thread takes a share of the rows from the first token to the last,
and back, without waiting for the others: `recurrence.c` says how. It computes active slots only, as the
sequence backend does, with nothing between the operations of a slot but the operations; the matrix
products are those of PyTorch's own BLAS. The file is compiled when it is first needed, into the user's
cache directory; without a compiler this backend cannot run, and "auto" does without it.

Under autocast the recurrence stays in the dtype of the parameters.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ordered_memory.attention import NormalizedScore
from ordered_memory.backends.native import pool
from ordered_memory.backends.native.build import Library, load
from ordered_memory.backends.sequence.cells import cell_weights
from ordered_memory.backends.sequence.masks import gain_and_level
from ordered_memory.backends.sequence.scores import SCORE_KERNELS, queries, score_weights
from ordered_memory.cells import GatedRecursiveCell
from ordered_memory.memory import Maps, MaskDrawer, OrderedMemoryState, Recurrence, StepMasks

NOTHING_DROPPED = -(1 << 20)
SITES = ("input", "hidden", "key", "feature")


def why_not(inputs: Tensor, maps: Maps) -> str | None:
    """Why this backend cannot run on (T, B, D) inputs with these maps, or None when it can."""
    if inputs.device.type != "cpu":
        return f"it runs on a CPU, the inputs are on {inputs.device.type}"
    if type(maps.score) not in SCORE_KERNELS:
        return f"it does not know the score {type(maps.score).__name__}"
    if type(maps.cell) is not GatedRecursiveCell:
        return f"it does not know the cell {type(maps.cell).__name__}"
    if not (
        isinstance(maps.norm, nn.LayerNorm) and maps.norm.weight is not None and maps.norm.bias is not None
    ):
        return "its norm must be a LayerNorm with weight and bias"
    dtype = maps.norm.weight.dtype
    if dtype not in (torch.float32, torch.float64):
        return f"its parameters must be float32 or float64, not {dtype}"
    library = load(dtype)
    return library if isinstance(library, str) else None


def recur(
    inputs: Tensor,
    state: OrderedMemoryState,
    maps: Maps,
    lengths: Tensor | None = None,
    masks: Sequence[StepMasks | None] | Callable[[int], StepMasks | None] | None = None,
) -> Recurrence:
    """`ordered_memory.memory.recur`, several times faster.

    Dropout masks that the layer would draw are drawn here, for active slots only: other ones from the
    same seed than the definition's.

    Args:
        inputs: x̃, (T, B, D).
        state: before the first token.
        maps: the learned maps.
        lengths: tokens in each sequence, (B,) int64, 0 or more, or None when none is padded.
        masks: dropout masks of each step, or a function of t that draws them.
    Returns:
        Outputs (T, B, D), final state, attention (T, B, N).
    """
    with torch.autocast("cpu", enabled=False):
        assert isinstance(maps.norm, nn.LayerNorm)
        dtype = maps.norm.weight.dtype
        inputs = inputs.to(dtype)
        state = OrderedMemoryState(*(tensor.to(dtype) for tensor in state))
        steps, batch_size, _ = inputs.shape
        dropout, query_mask = _dropout(masks, maps, inputs)
        queried = queries(maps.score, inputs.flatten(0, 1), query_mask).view_as(inputs)
        of_score, of_cell = score_weights(maps.score), cell_weights(maps.cell)
        plan = Plan(
            [steps] * batch_size if lengths is None else lengths.tolist(),
            isinstance(maps.score, NormalizedScore),
            len(of_score),
            maps.threshold,
            maps.norm.eps,
            dropout,
        )
        weights = [*of_score, *of_cell, maps.norm.weight, maps.norm.bias]
        if torch.is_grad_enabled():
            output, attention, *final = _Recur.apply(plan, inputs, queried, *state, *weights)  # type: ignore[no-untyped-call]
        else:
            output, attention, *final = _run(plan, inputs, queried, state, weights, keep=False)[0]
        return Recurrence(output, OrderedMemoryState(*final), attention)


class Dropout(NamedTuple):
    """What is dropped.

    Args:
        given: masks of each of `SITES`, (T, B, N, ·), or None.
        levels: of noise, below which an entry is dropped.
        cell_gain, score_gain: factors on the weights that act on what is dropped.
        seed: of the noise.
    """

    given: tuple[Tensor | None, ...] = (None, None, None, None)
    levels: tuple[int, ...] = (NOTHING_DROPPED,) * 4
    cell_gain: float = 1.0
    score_gain: float = 1.0
    seed: int = 0


class Plan(NamedTuple):
    """What is known before the first token.

    Args:
        lengths: tokens of each sequence.
        normalized: the score is `NormalizedScore`.
        num_score_weights: how many weights are the score's; then the cell's five, then the norm's two.
        threshold: occupancies below this count as 0.
        epsilon: of the LayerNorm.
        dropout: what is dropped.
    """

    lengths: list[int]
    normalized: bool
    num_score_weights: int
    threshold: float
    epsilon: float
    dropout: Dropout


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


class _Recur(torch.autograd.Function):
    """`_run` and its reverse."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, inputs: Tensor, queried: Tensor, *state_and_weights: Tensor
    ) -> tuple[Tensor, ...]:
        state, weights = OrderedMemoryState(*state_and_weights[:3]), state_and_weights[3:]
        result, shares = _run(plan, inputs, queried, state, weights, keep=True)
        ctx.plan, ctx.num_shares = plan, len(shares)
        ctx.set_materialize_grads(False)
        kept = [tensor for share in shares for tensor in share]
        ctx.save_for_backward(inputs, queried, *state, *result[:2], *weights, *kept)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        split = len(saved) - ctx.num_shares * len(Share._fields)
        inputs, queried, *rest = saved[:split]
        state, (output, attention), weights = OrderedMemoryState(*rest[:3]), rest[3:5], rest[5:]
        size = len(Share._fields)
        shares = [Share(*saved[i : i + size]) for i in range(split, len(saved), size)]
        with torch.autocast("cpu", enabled=False):
            call = _Call(ctx.plan, inputs, queried, state, weights, output, attention)
            return None, *_run_back(call, upstream, shares)


def _run(
    plan: Plan,
    inputs: Tensor,
    queried: Tensor,
    state: OrderedMemoryState,
    weights: Sequence[Tensor],
    keep: bool,
) -> tuple[tuple[Tensor, ...], list[Share]]:
    """Output, attention and the three tensors of the final state; what the threads kept."""
    steps, batch_size, size = inputs.shape
    num_slots = state.memory.shape[1]
    output = inputs.new_zeros(steps, batch_size, size)
    attention = inputs.new_zeros(steps, batch_size, num_slots)
    final = [tensor.clone(memory_format=torch.contiguous_format) for tensor in state]
    call = _Call(plan, inputs, queried, state, weights, output, attention)
    shares = [_share(rows, plan.lengths, num_slots, inputs, keep) for rows in _divide(plan.lengths)]

    def work(share: Share) -> Share:
        struct = call.struct(share, keep)
        struct.memory, struct.candidate, struct.occupancy = (tensor.data_ptr() for tensor in final)
        pairs = call.library.run(ctypes.byref(struct), call.scratch(struct, reverse=False))
        buffers = zip(share[2:6], (2 * size, 4 * size, 4 * size, size), strict=True)
        return share._replace(
            **{
                name: buffer[: pairs * width]
                for name, (buffer, width) in zip(Share._fields[2:6], buffers, strict=True)
            }
        )

    shares = _in_threads(call.library, work, shares)
    return (output, attention, *final), shares


def _run_back(
    call: _Call, upstream: Sequence[Tensor | None], shares: list[Share]
) -> tuple[Tensor | None, ...]:
    """Gradients of inputs, queries, the initial state's three tensors and the weights."""
    gradients = [torch.zeros_like(tensor, memory_format=torch.contiguous_format) for tensor in call.tensors]
    for gradient, final in zip(gradients[2:], upstream[2:], strict=True):
        if final is not None:  # sequences without a token hand it on; the others overwrite it
            gradient.copy_(final)
    given = [None if tensor is None else tensor.contiguous() for tensor in upstream]

    def work(share: Share) -> dict[str, Tensor]:
        struct = call.struct(share, keep=True)
        for name, tensor in zip(UPSTREAM, given, strict=True):
            setattr(struct, name, None if tensor is None else tensor.data_ptr())
        for name, tensor in zip(DOWNSTREAM, gradients, strict=True):
            setattr(struct, name, tensor.data_ptr())
        sums = {name: torch.zeros_like(call.weights[name]) for name in WEIGHTS}
        for name, tensor in sums.items():
            setattr(struct, f"d_{name}", tensor.data_ptr())
        call.library.run_back(ctypes.byref(struct), call.scratch(struct, reverse=True))
        return sums

    parts = _in_threads(call.library, work, shares)
    none = {name: torch.zeros_like(call.weights[name]) for name in WEIGHTS}
    sums = {name: sum((part[name] for part in parts), none[name]) for name in WEIGHTS}
    return *gradients, *call.weight_gradients(sums)


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


class _Call:
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
        library = load(inputs.dtype)
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
        self.transposed = {name: self.weights[name].t().contiguous() for name in ("first", "second", "key")}

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
            **{f"{name}_t": weight for name, weight in self.transposed.items()},
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
        return struct

    def scratch(self, struct: Any, reverse: bool) -> ctypes.c_void_p:
        """Scratch memory of one thread, kept alive by the struct."""
        size = self.library.scratch_size(ctypes.byref(struct), ctypes.c_int64(reverse))
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
        ("gemm", pointer),
    ]
    return type("Pass", (ctypes.Structure,), {"_fields_": fields})


def _divide(lengths: list[int]) -> list[list[int]]:
    """The rows of each thread: all that have a token, dealt out longest first."""
    rows = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: -lengths[row])
    threads = min(torch.get_num_threads(), len(rows))
    return [rows[i::threads] for i in range(threads)]


def _share(rows: list[int], lengths: list[int], num_slots: int, like: Tensor, keep: bool) -> Share:
    """Room for what a thread computes: all that could be active, of which only what is takes memory."""
    steps, size = len(like), like.shape[2]
    own = [lengths[row] for row in rows]
    most = num_slots * (sum(own) if keep else 2 * len(rows))
    at_once = most if keep else num_slots * len(rows)
    return Share(
        row=torch.tensor(rows),
        length=torch.tensor(own),
        input=pool.empty(most * 2 * size, like.dtype),
        hidden=pool.empty(at_once * 4 * size, like.dtype),
        units=pool.empty(at_once * 4 * size, like.dtype),
        composed=pool.empty(at_once * size, like.dtype),
        top=torch.empty(steps, len(rows), dtype=torch.int32),
        start=torch.zeros(steps + 2, dtype=torch.int64),
    )


def _dropout(
    masks: Sequence[StepMasks | None] | Callable[[int], StepMasks | None] | None, maps: Maps, inputs: Tensor
) -> tuple[Dropout, Tensor | None]:
    """What is dropped inside the recurrence, and the mask of the queries, (T * B, D) or None."""
    if masks is None:
        return Dropout(), None
    if isinstance(masks, MaskDrawer):
        (cell_gain, cell), (score_gain, score) = (
            gain_and_level(part.dropout) for part in (maps.cell, maps.score)
        )
        levels = tuple(NOTHING_DROPPED if level is None else level for level in (cell, cell, score, score))
        seed = int(torch.randint(2**63 - 1, ()))
        query_mask = maps.score.draw_query_mask(inputs.flatten(0, 1))
        return Dropout(levels=levels, cell_gain=cell_gain, score_gain=score_gain, seed=seed), query_mask
    given = [masks(t) for t in range(len(inputs))] if callable(masks) else list(masks)
    cell_masks = [None if step is None else step.cell for step in given]
    score_masks = [None if step is None else step.score for step in given]

    def stack(steps: Sequence[NamedTuple | None], name: str) -> Tensor | None:
        found = [None if step is None else getattr(step, name) for step in steps]
        like = next((mask for mask in found if mask is not None), None)
        if like is None:
            return None
        return torch.stack([torch.ones_like(like) if mask is None else mask for mask in found])

    halves = [stack(cell_masks, "memory"), stack(cell_masks, "candidate")]
    like = next((half for half in halves if half is not None), None)
    inside = None
    if like is not None:
        inside = torch.cat([torch.ones_like(like) if half is None else half for half in halves], -1)
    sites = (inside, stack(cell_masks, "hidden"), stack(score_masks, "key"), stack(score_masks, "hidden"))
    query_mask = stack(score_masks, "query")
    return Dropout(sites), None if query_mask is None else query_mask.flatten(0, 1)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="ordered-memory")


def _in_threads(library: Library, work: Callable[[Share], Any], shares: list[Share]) -> list[Any]:
    """The work of each share, the first in this thread; C holds no lock on the interpreter."""

    def alone(share: Share) -> Any:
        before = library.set_blas_threads(1)
        try:
            return work(share)
        finally:
            library.set_blas_threads(before)

    others = [_threads().submit(alone, share) for share in shares[1:]]
    first = [alone(share) for share in shares[:1]]
    return first + [other.result() for other in others]
