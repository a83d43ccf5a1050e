"""The recurrence as two Triton kernels that run the whole loop on a GPU, in one autograd.Function.

What depends on the inputs alone (the queries) is computed before the loop and every weight gradient after it,
each as one product over all steps. For each (step, sequence, slot) the forward pass keeps 13 numbers per
feature and the reverse pass 9 for these products; nothing is computed twice. Where no gradient is asked for,
the same buffers hold one step. Dropout masks are drawn for all steps at once, a byte for each entry: the few
programs that run the loop would be held up by drawing them.

Triton is imported when the kernels are first run, not with this module.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ordered_memory.attention import AdditiveScore, NormalizedScore, ScoreMasks
from ordered_memory.backends.derivatives import first_only
from ordered_memory.backends.devices import why_no_triton
from ordered_memory.cells import CellMasks, GatedRecursiveCell
from ordered_memory.dropout import apply_mask
from ordered_memory.memory import Maps, MaskDrawer, OrderedMemoryState, Recurrence, StepMasks

SMALLEST, LARGEST = 16, 512
"""Slot sizes that the kernels are made for, after rounding up to a power of two."""

Masks = Sequence[StepMasks | None] | Callable[[int], StepMasks | None] | None


def why_not(inputs: Tensor, maps: Maps) -> str | None:
    """Why the kernels cannot run on (T, B, D) inputs with these maps, or None when they can."""
    if (reason := why_no_triton(inputs)) is not None:
        return reason
    if type(maps.score) not in (AdditiveScore, NormalizedScore):
        return f"it has no kernel for the score {type(maps.score).__name__}"
    if type(maps.cell) is not GatedRecursiveCell:
        return f"it has no kernel for the cell {type(maps.cell).__name__}"
    if inputs.dtype != torch.float32 or maps.score.key.weight.dtype != torch.float32:
        return f"it takes float32 inputs and parameters, got {inputs.dtype} and {maps.score.key.weight.dtype}"
    norm = maps.norm
    if not (isinstance(norm, nn.LayerNorm) and norm.weight is not None and norm.bias is not None):
        return "its norm must be a LayerNorm with weight and bias"
    if inputs.shape[-1] > LARGEST:
        return f"slot_size must be at most {LARGEST}, got {inputs.shape[-1]}"
    return None


def recur(
    inputs: Tensor, state: OrderedMemoryState, maps: Maps, lengths: Tensor | None = None, masks: Masks = None
) -> Recurrence:
    """`ordered_memory.memory.recur`, with the loop over time inside one kernel.

    Products take bfloat16 operands under bfloat16 autocast, else TensorFloat-32 ones where
    `torch.backends.cuda.matmul.allow_tf32`, else float32 ones; their sums and all else are float32.
    Where the layer would draw dropout masks, others of the same distribution are drawn here.

    Args:
        inputs: x̃, (T, B, D).
        state: before the first token.
        maps: the learned maps.
        lengths: tokens in each sequence, (B,) int64, 0 or more, or None when none is padded.
        masks: dropout masks of each step, or a function of t that draws them.
    Returns:
        Outputs (T, B, D), final state, attention (T, B, N).
    """
    steps, batch_size, size = inputs.shape
    num_slots = state.memory.shape[1]
    width = max(SMALLEST, 1 << (size - 1).bit_length())
    query_mask, dropout = _dropout(masks, maps, inputs, num_slots, width)
    if lengths is None:
        lengths = torch.full((batch_size,), steps, device=inputs.device)
    tensors = [
        _pad(inputs.float(), width),
        _pad(_query(maps.score, apply_mask(inputs, query_mask)).float(), width),
        *(_pad(slots.float(), width) for slots in (state.memory, state.candidate)),
        state.occupancy.float(),
        *_pack(maps, size, width),
    ]
    settings = _Settings(
        constants=(maps.threshold, _epsilon(maps.norm), _epsilon(getattr(maps.score, "key_norm", None))),
        size=size,
        operand=_operand_dtype(inputs.device.type),
        exact=not torch.backends.cuda.matmul.allow_tf32,
        normalized=isinstance(maps.score, NormalizedScore),
        keep=torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors),
        factors=dropout.factors,
    )
    output, memory, candidate, occupancy, attention = _Recurrence.apply(  # type: ignore[no-untyped-call]
        settings, lengths.to(torch.int32), *dropout.masks, *tensors
    )
    final = OrderedMemoryState(memory[..., :size], candidate[..., :size], occupancy)
    return Recurrence(output[..., :size], final, attention)


class _Settings(NamedTuple):
    """What is not a tensor.

    Args:
        constants: threshold, epsilons of the LayerNorms of the cell and of the key.
        size: D before padding.
        operand: dtype of the operands of products.
        exact: do not round float32 operands to TensorFloat-32.
        normalized: the score is the normalized one.
        keep: all steps, for a reverse pass.
        factors: of the score's and the cell's dropout masks.
    """

    constants: tuple[float, float, float]
    size: int
    operand: torch.dtype
    exact: bool
    normalized: bool
    keep: bool
    factors: tuple[float, float]


class _Recurrence(torch.autograd.Function):
    """(lengths, masks (5), x̃, q, state (3), weights (11)) → output, state (3), attention."""

    @staticmethod
    def forward(ctx: Any, settings: _Settings, lengths: Tensor, *tensors: Any) -> tuple[Tensor, ...]:
        from ordered_memory.backends.triton_kernels import Dropout, Weights, forward_kernel

        dropout = Dropout(*(*tensors[:5], *settings.factors))
        inputs, query, memory, candidate, occupancy = (tensor.contiguous() for tensor in tensors[5:10])
        weights = Weights(*tensors[10:])
        tape = _new_tape(settings, len(inputs), memory, candidate, occupancy, dropout.key is not None)
        output = torch.zeros_like(inputs)
        by_input = _operands(weights, settings.operand, transposed=True)
        _launch(forward_kernel, settings, dropout, tape, inputs, query, lengths, output, by_input)
        # Without history there is one state, the last; with it, sequence b's is that after lengths[b] tokens.
        last = lengths.long() if settings.keep else torch.zeros_like(lengths, dtype=torch.long)
        rows = torch.arange(len(lengths), device=lengths.device)
        state = [history[last, rows] for history in (tape.memory, tape.candidate, tape.occupancy)]
        if settings.keep:
            ctx.settings = settings
            ctx.save_for_backward(lengths, *tensors[:5], inputs, query, *weights, *tape)
        return output, *state, tape.attention.clone()

    @staticmethod
    @first_only
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from ordered_memory.backends.triton_kernels import Dropout, Tape, Weights
        from ordered_memory.backends.triton_reverse import backward_kernel

        settings, saved = ctx.settings, ctx.saved_tensors
        lengths, inputs, query = saved[0], saved[6], saved[7]
        dropout = Dropout(*(*saved[1:6], *settings.factors))
        weights, tape = Weights(*saved[8:19]), Tape(*saved[19:])
        by_output = _operands(weights, settings.operand, transposed=False)
        rows = _tile(settings)[0]
        found = _new_gradients(settings.operand, rows, inputs, tape.attention, gradients)
        _launch(backward_kernel, settings, dropout, tape, inputs, query, lengths, found, by_output)
        state = (found.memory, found.candidate, found.occupancy)
        weight_gradients = _weight_gradients(tape, found, settings.normalized)
        return *[None] * 7, found.inputs, found.query, *state, *weight_gradients


def _launch(
    kernel: Any, settings: _Settings, dropout: Any, tape: Any, inputs: Tensor, *arguments: Any
) -> None:
    """Run a kernel, one program for each tile of sequences."""
    import triton.language as tl

    from ordered_memory.backends.triton_kernels import Plan, Sizes

    _, batch_size, width = inputs.shape
    num_slots = tape.attention.shape[-1]
    rows, warps = _tile(settings)
    columns = min(4 * width, 256)
    plan = Plan(
        ROWS=rows,
        WIDTH=width,
        SLOTS=max(2, 1 << (num_slots - 1).bit_length()),
        # 32 KiB of weights a stage: two in flight cover the latency of the cache, and three fit any GPU.
        CHUNK=min(width, 32768 // settings.operand.itemsize // max(columns, width)),
        COLUMNS=columns,
        STAGES=3,
        NORMALIZED=settings.normalized,
        PRECISION="ieee" if settings.exact else "tf32",
        HISTORY=int(settings.keep),
        SCORE_MASKS=dropout.key is not None,
        CELL_MASKS=dropout.memory is not None,
    )
    sizes = Sizes(batch_size, num_slots, settings.size, *settings.constants, 1 / math.sqrt(settings.size))
    with torch.cuda.device(inputs.device) if inputs.is_cuda else contextlib.nullcontext():
        kernel[(-(-batch_size // rows),)](
            inputs,
            *arguments,
            tape,
            dropout,
            sizes,
            Plan(*map(tl.constexpr, plan)),
            num_warps=warps,
            num_stages=1,  # of loops that do not say otherwise: these store what they load
            maxnreg=min(255, 2048 // warps),
        )


def _tile(settings: _Settings) -> tuple[int, int]:
    """Sequences of a tile and warps of its program.

    A tile streams all weights past its rows. A matrix unit takes 16 rows at least; exact products do
    without it, take time with every row, and are spread over more programs.
    """
    rows = 8 if settings.exact and settings.operand == torch.float32 else 16
    return rows, 8 if settings.size <= 128 else 16


def _new_tape(
    settings: _Settings, steps: int, memory: Tensor, candidate: Tensor, occupancy: Tensor, drop_keys: bool
) -> Any:
    """Buffers for all steps, or for one if they need not be kept; zeros where the last products read."""
    from ordered_memory.backends.triton_kernels import Tape

    pairs = (steps if settings.keep else 1, *memory.shape[:2])
    width, operand = memory.shape[-1], settings.operand

    def history(initial: Tensor) -> Tensor:
        states = initial.new_zeros(steps + 1 if settings.keep else 1, *initial.shape)
        states[0] = initial
        return states

    return Tape(
        memory=history(memory),
        candidate=history(candidate),
        occupancy=history(occupancy),
        attention=memory.new_zeros(steps, *memory.shape[:2]),
        key_inputs=memory.new_zeros(*pairs, width, dtype=operand) if drop_keys else None,
        keys=memory.new_empty(*pairs, width),
        joined=memory.new_zeros(*pairs, 2 * width, dtype=operand),
        hidden=memory.new_zeros(*pairs, 4 * width, dtype=operand),
        units=memory.new_empty(*pairs, 4 * width),
    )


def _new_gradients(
    operand: torch.dtype, rows: int, inputs: Tensor, attention: Tensor, gradients: Sequence[Tensor]
) -> Any:
    """Buffers of the reverse pass, from the gradients of the results."""
    from ordered_memory.backends.triton_kernels import Gradients

    pairs, width = attention.shape, inputs.shape[-1]
    # The kernel changes the state's gradients in place.
    memory, candidate, occupancy = (
        gradient.clone(memory_format=torch.contiguous_format) for gradient in gradients[1:4]
    )
    return Gradients(
        output=gradients[0].contiguous(),
        attention=gradients[4].contiguous(),
        memory=memory,
        candidate=candidate,
        occupancy=occupancy,
        inputs=torch.zeros_like(inputs),
        query=torch.zeros_like(inputs),
        keys=inputs.new_zeros(*pairs, width, dtype=operand),
        first=inputs.new_zeros(*pairs, 4 * width, dtype=operand),
        second=inputs.new_zeros(*pairs, 4 * width, dtype=operand),
        vectors=inputs.new_empty(-(-pairs[1] // rows), 5, rows, width),
    )


def _weight_gradients(tape: Any, found: Any, normalized: bool) -> list[Tensor | None]:
    """In the order of `triton_kernels.Weights`; each matrix as one product over all pairs."""
    key_inputs = tape.candidate[:-1] if tape.key_inputs is None else tape.key_inputs

    def matrix_and_bias(outputs: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        outputs, inputs = outputs.flatten(0, -2), inputs.flatten(0, -2).to(outputs.dtype)
        return (outputs.t() @ inputs).float(), outputs.sum(0, dtype=torch.float32)

    norm_weight, norm_bias, score, *key_norm = found.vectors.sum((0, 2)).unbind()
    return [
        *matrix_and_bias(found.keys, key_inputs),
        *(key_norm if normalized else (None, None)),
        score,
        *matrix_and_bias(found.first, tape.joined),
        *matrix_and_bias(found.second, tape.hidden),
        norm_weight,
        norm_bias,
    ]


def _operands(weights: Any, dtype: torch.dtype, transposed: bool) -> Any:
    """The weights with the matrices as operands of products."""
    matrices = {name: getattr(weights, name) for name in ("key", "first", "second")}
    turned = {name: matrix.t() if transposed else matrix for name, matrix in matrices.items()}
    return weights._replace(**{name: matrix.to(dtype).contiguous() for name, matrix in turned.items()})


def _pack(maps: Maps, size: int, width: int) -> list[Tensor | None]:
    """The weights in the order of `triton_kernels.Weights`, padded with zeros from D to W."""
    score, cell, norm = maps.score, maps.cell, maps.norm
    assert isinstance(cell, GatedRecursiveCell)
    assert isinstance(norm, nn.LayerNorm)
    more = width - size
    key_norm = score.key_norm if isinstance(score, NormalizedScore) else None
    halves = (cell.from_memory.weight, cell.from_candidate.weight)
    return [
        F.pad(score.key.weight, (0, more, 0, more)),
        _pad(score.key.bias, width),
        None if key_norm is None else _pad(key_norm.weight, width),
        None if key_norm is None else _pad(key_norm.bias, width),
        # The bias adds the same to every score and so moves no p: its gradient is zero, but not missing.
        _pad(score.output.weight.squeeze(0) + 0 * score.output.bias, width),
        torch.cat([F.pad(half, (0, more, 0, 4 * more)) for half in halves], dim=1),
        _pad(cell.from_candidate.bias, 4 * width),
        F.pad(cell.output.weight.view(4, size, -1), (0, 4 * more, 0, more)).view(4 * width, 4 * width),
        _pad(cell.output.bias.view(4, size), width).view(-1),
        _pad(norm.weight, width),
        _pad(norm.bias, width),
    ]


def _pad(tensor: Tensor, width: int) -> Tensor:
    """Zeros after the last axis, up to `width`."""
    return F.pad(tensor, (0, width - tensor.shape[-1]))


def _query(score: Any, x: Tensor) -> Tensor:
    """The token's part of the score's features, (T, B, D)."""
    query: Tensor = score.query(x)
    return score.query_norm(query) if isinstance(score, NormalizedScore) else query


class _Dropout(NamedTuple):
    """In the order of `triton_kernels.Dropout`, the masks apart from the factors."""

    masks: Sequence[Tensor | None] = (None,) * 5
    factors: tuple[float, float] = (1.0, 1.0)


def _dropout(
    masks: Masks, maps: Maps, inputs: Tensor, num_slots: int, width: int
) -> tuple[Tensor | None, _Dropout]:
    """The mask of the queries, (T, B, D) or None, and what the kernels apply."""
    if masks is None:
        return None, _Dropout()
    if isinstance(masks, MaskDrawer):
        return maps.score.draw_query_mask(inputs), _draw(maps, inputs, num_slots, width)
    given = [masks(t) for t in range(len(inputs))] if callable(masks) else list(masks)
    steps = [step or StepMasks() for step in given]
    query, key, feature = _stack([step.score for step in steps], len(ScoreMasks._fields))
    sites = [key, feature, *_stack([step.cell for step in steps], len(CellMasks._fields))]
    widths = (width, width, width, width, 4 * width)
    padded = [None if mask is None else _pad(mask, to) for mask, to in zip(sites, widths, strict=True)]
    return query, _Dropout(padded)


def _draw(maps: Maps, inputs: Tensor, num_slots: int, width: int) -> _Dropout:
    """Entries of 0 or 1 for all slots of all steps, from the generator of the device."""

    def draw(probability: float, features: int) -> Tensor | None:
        if probability == 0:
            return None
        mask = torch.empty(*inputs.shape[:2], num_slots, features, dtype=torch.uint8, device=inputs.device)
        return mask.bernoulli_(1 - probability)

    score, cell = (part.dropout if part.training else 0.0 for part in (maps.score, maps.cell))
    sites = [(score, width), (score, width), (cell, width), (cell, width), (cell, 4 * width)]
    return _Dropout([draw(*site) for site in sites], (_kept_factor(score), _kept_factor(cell)))


def _kept_factor(probability: float) -> float:
    return 1 / (1 - probability) if probability < 1 else 0.0


def _stack(steps: Sequence[Sequence[Tensor | None] | None], fields: int) -> list[Tensor | None]:
    """For each field its masks of all steps, ones where a step has none; None if no step has any."""
    given = [masks for masks in steps if masks is not None]
    if not given:
        return [None] * fields
    stacked: list[Tensor | None] = []
    for field in range(fields):
        like = next(masks[field] for masks in given if masks[field] is not None)
        assert like is not None
        found = (None if masks is None else masks[field] for masks in steps)
        stacked.append(torch.stack([torch.ones_like(like) if mask is None else mask for mask in found]))
    return stacked


def _epsilon(norm: Any) -> float:
    return 0.0 if norm is None else float(norm.eps)


def _operand_dtype(device: str) -> torch.dtype:
    """bfloat16 under its autocast, else float32: another autocast gets more precision than it asks for."""
    narrow = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.bfloat16
    return torch.bfloat16 if narrow else torch.float32
