"""The recurrence as two Triton kernels that run the whole loop on a GPU, in one autograd.Function.

The queries, which depend only on the inputs, are computed before the loop, and every weight gradient after
it, each as one matrix product over all steps. For these products the forward pass saves 13 numbers and the
backward pass 9 for each step, sequence, slot and feature; no product is computed twice. If no gradient is
needed, the same buffers hold a single step. Dropout masks are drawn for all steps in advance, as one byte per
entry, because the few programs that run the loop would be slowed down by drawing them.

Triton is imported when the kernels are first run, not with this module. `torch.compile` breaks the graph at
this backend: there is nothing in its loop to fuse, and it has not run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ordered_memory.backends import contract, module_checks
from ordered_memory.backends.contract import NOISE_LEVELS, Dropout, Weights, check_first_derivative
from ordered_memory.backends.triton.arguments import DropoutMasks, Gradients, KernelPlan, Sizes, Tape
from ordered_memory.backends.triton_support import on_device, why_no_triton
from ordered_memory.cells import GatedRecursiveCell
from ordered_memory.devices import copy_to
from ordered_memory.modes import untraced, without_autocast
from ordered_memory.recurrence import Masks, Modules, RecurrenceOutput
from ordered_memory.state import OrderedMemoryState

SMALLEST, LARGEST = 16, 512
"""Smallest and largest slot size of the kernels, after rounding up to a power of two."""


def why_not(inputs: Tensor, modules: Modules, state: OrderedMemoryState | None = None) -> str | None:
    """Why the kernels cannot run; see `ordered_memory.backends.module_checks.why_not`."""
    if (reason := why_no_triton(inputs)) is not None:
        return reason
    if inputs.shape[-1] > LARGEST:
        return f"slot_size must be at most {LARGEST}, got {inputs.shape[-1]}"
    if (reason := module_checks.why_not(inputs, modules, state, [GatedRecursiveCell])) is not None:
        return reason
    dtype = modules.cell.from_memory.weight.dtype
    if inputs.dtype != torch.float32 or dtype != torch.float32:
        return f"it takes float32 inputs and parameters, got {inputs.dtype} and {dtype}"
    return None


@untraced("the triton backend is already a kernel")
def run_recurrence(
    inputs: Tensor,
    state: OrderedMemoryState,
    modules: Modules,
    lengths: Tensor | None = None,
    masks: Masks = None,
) -> RecurrenceOutput:
    """The recurrence with the loop over time inside one kernel; see `ordered_memory.memory.run_recurrence`.

    Matrix products have bfloat16 operands under bfloat16 autocast, else TensorFloat-32 operands if PyTorch's
    own products have them (`torch.set_float32_matmul_precision`), else float32 operands. Sums and all other
    operations are float32. Dropout masks differ from those of the definition with the same seed.
    """
    arguments = contract.prepare(inputs, state, modules, lengths, masks)
    steps, batch_size, size = inputs.shape
    width = max(SMALLEST, 1 << (size - 1).bit_length())
    lengths = torch.full((batch_size,), steps) if arguments.lengths is None else arguments.lengths
    padded = [_pad(tensor, width) for tensor in (arguments.inputs, arguments.queries, *arguments.state[:2])]
    settings = _Settings(
        constants=(arguments.threshold, arguments.norm_epsilon, arguments.key_epsilon),
        size=size,
        operand=torch.bfloat16 if arguments.bfloat16 else torch.float32,
        exact=not _uses_tf32(),
        normalized=arguments.weights.key_norm is not None,
        save=arguments.needs_backward(),
    )
    output, memory, candidate, occupancy, attention = _Recurrence.apply(  # type: ignore[no-untyped-call]
        settings,
        copy_to(lengths.to(torch.int32), inputs.device),
        *_masks(arguments.dropout, (steps, *arguments.state.memory.shape), width, inputs.device),
        *padded,
        arguments.state.occupancy,
        *_padded_weights(arguments.weights, size, width),
    )
    final = OrderedMemoryState(memory[..., :size], candidate[..., :size], occupancy)
    return RecurrenceOutput(output[..., :size], final, attention)


def _uses_tf32() -> bool:
    """Whether PyTorch's own products of float32 matrices on a GPU have TensorFloat-32 operands."""
    # PyTorch 2.9 added `fp32_precision`. Where it has been set, reading `allow_tf32` raises an error.
    precision = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    return bool(torch.backends.cuda.matmul.allow_tf32) if precision is None else precision == "tf32"


class _Settings(NamedTuple):
    """The arguments that are not tensors.

    Args:
        constants: threshold, and the epsilons of the LayerNorms of the cell and of the keys.
        size: D before padding.
        operand: dtype of the operands of matrix products.
        exact: whether float32 operands keep full precision instead of TensorFloat-32.
        normalized: whether the score is the normalized one.
        save: whether to store all steps for a backward pass.
    """

    constants: tuple[float, float, float]
    size: int
    operand: torch.dtype
    exact: bool
    normalized: bool
    save: bool


class _Recurrence(torch.autograd.Function):
    """(lengths, masks (5), x̃, q, state (3), weights (11)) → output, state (3), attention."""

    @staticmethod
    def forward(ctx: Any, settings: _Settings, lengths: Tensor, *tensors: Any) -> tuple[Tensor, ...]:
        from ordered_memory.backends.triton.kernels import forward_kernel

        dropout = DropoutMasks(*tensors[:5])
        inputs, queries, memory, candidate, occupancy = (tensor.contiguous() for tensor in tensors[5:10])
        weights = Weights(*tensors[10:])
        tape = _new_tape(settings, len(inputs), memory, candidate, occupancy, dropout.key is not None)
        output = torch.zeros_like(inputs)
        operands = _operands(weights, settings.operand, transposed=True)
        _launch(forward_kernel, settings, dropout, tape, inputs, queries, lengths, output, operands)
        # With `save` the tape has the states of all steps, and the final state of sequence b is at index
        # lengths[b]. Otherwise it has the last state only.
        last = lengths.long() if settings.save else torch.zeros_like(lengths, dtype=torch.long)
        rows = torch.arange(len(lengths), device=lengths.device)
        state = [history[last, rows] for history in (tape.memory, tape.candidate, tape.occupancy)]
        if settings.save:
            ctx.settings = settings
            ctx.save_for_backward(lengths, *tensors[:5], inputs, queries, *weights, *tape)
        return output, *state, tape.attention.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        from ordered_memory.backends.triton.kernels_backward import backward_kernel

        check_first_derivative(upstream)
        settings, saved = ctx.settings, ctx.saved_tensors
        lengths, inputs, queries = saved[0], saved[6], saved[7]
        dropout = DropoutMasks(*saved[1:6])
        weights, tape = Weights(*saved[8:19]), Tape(*saved[19:])
        operands = _operands(weights, settings.operand, transposed=False)
        gradients = _new_gradients(settings.operand, inputs, tape.attention, upstream)
        _launch(backward_kernel, settings, dropout, tape, inputs, queries, lengths, gradients, operands)
        with without_autocast(inputs.device):  # autocast is on if the caller runs `backward()` under it
            weight_gradients = _weight_gradients(tape, gradients, settings.normalized)
        return (
            *[None] * 7,
            gradients.inputs,
            gradients.queries,
            gradients.memory,
            gradients.candidate,
            gradients.occupancy,
            *weight_gradients,
        )


def _launch(
    kernel: Any, settings: _Settings, dropout: DropoutMasks, tape: Tape, inputs: Tensor, *arguments: Any
) -> None:
    """Run a kernel, one program for each tile of sequences."""
    import triton.language as tl

    _, batch_size, width = inputs.shape
    num_slots = tape.attention.shape[-1]
    rows = _tile_rows(settings, width)
    columns = min(4 * width, 256)
    plan = KernelPlan(
        BLOCK_M=rows,
        WIDTH=width,
        BLOCK_SLOTS=max(2, 1 << (num_slots - 1).bit_length()),
        # 32 KiB of weights a stage: two in flight cover the latency of the cache, and three fit any GPU.
        BLOCK_K=min(width, 32768 // settings.operand.itemsize // columns),
        BLOCK_N=columns,
        NUM_STAGES=3,
        NORMALIZED=settings.normalized,
        INPUT_PRECISION="ieee" if settings.exact else "tf32",
        HISTORY=int(settings.save),
        SCORE_MASKS=dropout.key is not None,
        CELL_MASKS=dropout.memory is not None,
    )
    sizes = Sizes(batch_size, num_slots, settings.size, width, *settings.constants)
    with on_device(inputs):
        kernel[(-(-batch_size // rows),)](
            inputs,
            *arguments,
            tape,
            dropout,
            sizes,
            KernelPlan(*map(tl.constexpr, plan)),
            num_warps=8,
            enable_fp_fusion=True,  # Triton 3.9 warns that 3.10 will have a different default
            num_stages=1,  # no pipelining of the other loops: they load what they have stored
        )


def _tile_rows(settings: _Settings, width: int) -> int:
    """The number of sequences of a tile. Every tile reads all weights.

    Tensor cores process 16 rows at a time. Exact products do not use them: their time grows with every row,
    so smaller tiles spread them over more programs. Up to 2,048 entries of a tile, 8 per thread, fit in
    registers.
    """
    exact = settings.exact and settings.operand == torch.float32
    return min(8 if exact else 16, 2048 // width)


def _new_tape(
    settings: _Settings, steps: int, memory: Tensor, candidate: Tensor, occupancy: Tensor, drop_keys: bool
) -> Tape:
    """Allocate buffers for all steps, or for one step without `save`.

    Buffers start as zeros if the weight gradients also read their padding.
    """
    pairs = (steps if settings.save else 1, *memory.shape[:2])
    width, operand = memory.shape[-1], settings.operand

    def history(initial: Tensor) -> Tensor:
        states = initial.new_zeros(steps + 1 if settings.save else 1, *initial.shape)
        states[0] = initial
        return states

    return Tape(
        memory=history(memory),
        candidate=history(candidate),
        occupancy=history(occupancy),
        attention=memory.new_zeros(steps, *memory.shape[:2]),
        key_inputs=memory.new_zeros(*pairs, width, dtype=operand) if drop_keys else None,
        keys=memory.new_empty(*pairs, width),
        cell_inputs=memory.new_zeros(*pairs, 2 * width, dtype=operand),
        hidden=memory.new_zeros(*pairs, 4 * width, dtype=operand),
        gates=memory.new_empty(*pairs, 4 * width),
    )


def _new_gradients(
    operand: torch.dtype, inputs: Tensor, attention: Tensor, upstream: Sequence[Tensor]
) -> Gradients:
    """Allocate the buffers of the backward pass, some of them filled with the upstream gradients."""
    pairs, width = attention.shape, inputs.shape[-1]
    # The kernel overwrites the gradients of the state.
    memory, candidate, occupancy = (
        gradient.clone(memory_format=torch.contiguous_format) for gradient in upstream[1:4]
    )
    return Gradients(
        output=upstream[0].contiguous(),
        attention=upstream[4].contiguous(),
        memory=memory,
        candidate=candidate,
        occupancy=occupancy,
        inputs=torch.zeros_like(inputs),
        queries=torch.zeros_like(inputs),
        keys=inputs.new_zeros(*pairs, width, dtype=operand),
        hidden=inputs.new_zeros(*pairs, 4 * width, dtype=operand),
        gates=inputs.new_zeros(*pairs, 4 * width, dtype=operand),
        vectors=inputs.new_zeros(pairs[1], 5, width),
    )


def _weight_gradients(tape: Tape, gradients: Gradients, normalized: bool) -> Weights:
    """The gradients of the weights, for each matrix one product over all pairs."""
    key_inputs = tape.candidate[:-1] if tape.key_inputs is None else tape.key_inputs

    def matrix_and_bias(outputs: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        outputs, inputs = outputs.flatten(0, -2), inputs.flatten(0, -2).to(outputs.dtype)
        return (outputs.t() @ inputs).float(), outputs.sum(0, dtype=torch.float32)

    key, key_bias = matrix_and_bias(gradients.keys, key_inputs)
    w_in, b_in = matrix_and_bias(gradients.hidden, tape.cell_inputs)
    w_out, b_out = matrix_and_bias(gradients.gates, tape.hidden)
    norm, norm_bias, score_out, *key_gradients = gradients.vectors.sum(0).unbind()
    key_norm, key_norm_bias = key_gradients if normalized else (None, None)
    return Weights(
        key, key_bias, score_out, w_in, b_in, w_out, b_out, norm, norm_bias, key_norm, key_norm_bias
    )


def _operands(weights: Weights, dtype: torch.dtype, transposed: bool) -> Weights:
    """The weights with the matrices converted to the dtype of operands, and transposed if asked for."""
    matrices = {name: getattr(weights, name) for name in ("key", "w_in", "w_out")}
    matrices = {name: matrix.t() if transposed else matrix for name, matrix in matrices.items()}
    return weights._replace(**{name: matrix.to(dtype).contiguous() for name, matrix in matrices.items()})


def _padded_weights(weights: Weights, size: int, width: int) -> Weights:
    """The weights, padded with zeros from D to W."""
    assert weights.w_out is not None
    assert weights.b_out is not None
    padding = width - size
    w_in = F.pad(weights.w_in.view(4 * size, 2, size), (0, padding, 0, 0, 0, 4 * padding))
    w_out = F.pad(weights.w_out.view(4, size, -1), (0, 4 * padding, 0, padding))
    return Weights(
        key=F.pad(weights.key, (0, padding, 0, padding)),
        key_bias=_pad(weights.key_bias, width),
        score_out=_pad(weights.score_out, width),
        w_in=w_in.view(4 * width, 2 * width),
        b_in=_pad(weights.b_in, 4 * width),
        w_out=w_out.view(4 * width, 4 * width),
        b_out=_pad(weights.b_out.view(4, size), width).view(-1),
        norm=_pad(weights.norm, width),
        norm_bias=_pad(weights.norm_bias, width),
        key_norm=None if weights.key_norm is None else _pad(weights.key_norm, width),
        key_norm_bias=None if weights.key_norm_bias is None else _pad(weights.key_norm_bias, width),
    )


def _pad(tensor: Tensor, width: int) -> Tensor:
    """Pad the last axis with zeros to `width`."""
    return F.pad(tensor, (0, width - tensor.shape[-1]))


def _masks(
    dropout: Dropout, shape: tuple[int, ...], width: int, device: torch.device
) -> Sequence[Tensor | None]:
    """The fields of `DropoutMasks` for all slots of all steps, padded from D to W.

    Args:
        dropout: given masks, or a seed to draw masks.
        shape: (T, B, N, D).
        width: W.
        device: device of the masks.
    """
    widths = (width, width, width, width, 4 * width)
    if dropout.seed is None:
        cell_input_mask = dropout.cell_input_mask
        memory, candidate = (None, None) if cell_input_mask is None else cell_input_mask.chunk(2, -1)
        masks = (dropout.key_mask, dropout.feature_mask, memory, candidate, dropout.hidden_mask)
        return [
            None if mask is None else _pad(mask, mask_width)
            for mask, mask_width in zip(masks, widths, strict=True)
        ]
    generator = torch.Generator(device).manual_seed(int(dropout.seed))

    def draw(drop_below: int, features: int) -> Tensor | None:
        """Draw a mask of zeros and ones; the factor 1 / (1 - probability) is part of the weights."""
        keep_probability = 0.5 - drop_below / NOISE_LEVELS
        if keep_probability > 1:
            return None
        mask = torch.empty(*shape[:3], features, dtype=torch.uint8, device=device)
        return mask.bernoulli_(keep_probability, generator=generator)

    thresholds = [dropout.score_drop_below] * 2 + [dropout.cell_drop_below] * 3
    return [draw(drop_below, features) for drop_below, features in zip(thresholds, widths, strict=True)]
