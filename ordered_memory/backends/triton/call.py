"""Launches the kernels: allocates their buffers, and computes the gradients of the weights.

Axes as in `kernels_shared`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ordered_memory.backends import contract
from ordered_memory.backends.contract import NOISE_LEVELS, Arguments, Dropout, Weights
from ordered_memory.backends.operators import Shapes
from ordered_memory.backends.triton.arguments import DropoutMasks, Gradients, Sizes, Tape
from ordered_memory.backends.triton.padding import (
    pad,
    pad_to_blocks,
    pad_weights,
    padded_size,
    power_of_two_above,
    unpad,
    unpad_weights,
)
from ordered_memory.backends.triton.plan import (
    ARRIVALS_STRIDE,
    choose_resources,
    choose_teams,
    longest_sequence,
    make_plan,
)
from ordered_memory.backends.triton_support import check_triton, on_device
from ordered_memory.devices import copy_to
from ordered_memory.recurrence import RecurrenceOutput
from ordered_memory.state import OrderedMemoryState


class TritonImplementation(contract.Implementation):
    """The loop over time as Triton kernels. Saved are all fields of `Tape` except the attention."""

    inputs_type = Arguments
    results_for_backward = ("attention",)

    def new_results(self, inputs: Arguments) -> RecurrenceOutput:
        new = inputs.inputs.new_empty
        state = OrderedMemoryState(*(new(tensor.shape) for tensor in inputs.state))
        attention = new(*inputs.inputs.shape[:2], inputs.state.memory.shape[1])
        return RecurrenceOutput(new(inputs.inputs.shape), state, attention)

    def saved_shapes(self, inputs: Arguments) -> Shapes:
        shapes = _tape_shapes(inputs, save=True)
        return [shape for shape in shapes._replace(attention=None) if shape is not None]

    def check(self, inputs: Arguments) -> None:
        if inputs.inputs.dtype != torch.float32 or inputs.weights.w_out is None:
            raise ValueError("backend 'triton' takes float32 inputs and the weights of the gated cell")
        contract.check_shapes(inputs)
        longest = longest_sequence(inputs.state.memory.shape[1])
        if len(inputs.inputs) > longest:
            raise ValueError(
                f"backend 'triton' reads at most {longest} tokens of a sequence in a call, got "
                f"{len(inputs.inputs)}: read it in parts, each with the state of the part before"
            )
        check_triton(inputs.inputs.device)

    def forward(self, inputs: Arguments, save: bool) -> tuple[RecurrenceOutput, list[Tensor]]:
        from ordered_memory.backends.triton.kernels_forward import forward_kernel

        size = inputs.inputs.shape[-1]
        tape, lengths = _new_tape(inputs, save), _device_lengths(inputs)
        output = tape.memory.new_zeros(*inputs.inputs.shape[:2], padded_size(size))
        _launch(forward_kernel, inputs, tape, save, lengths, output)
        # With `save` the tape has the states of all steps, and the final state of sequence b is at index
        # lengths[b]. Otherwise it has the last state only.
        last = lengths.long() if save else torch.zeros_like(lengths, dtype=torch.long)
        rows = torch.arange(len(lengths), device=lengths.device)
        memory, candidate, occupancy = (
            history[last, rows] for history in (tape.memory, tape.candidate, tape.occupancy)
        )
        state = OrderedMemoryState(unpad(memory, size), unpad(candidate, size), occupancy)
        saved = [tensor for tensor in tape._replace(attention=None) if tensor is not None]
        return RecurrenceOutput(unpad(output, size), state, tape.attention), saved if save else []

    def backward(
        self,
        inputs: Arguments,
        results: Sequence[Tensor],
        saved: list[Tensor],
        upstream: Sequence[Tensor | None],
        needs_input_grad: list[bool],
    ) -> Iterable[Tensor | None]:
        from ordered_memory.backends.triton.kernels_backward import backward_kernel

        tape = _read_tape(inputs, results[0], saved)
        gradients = _new_gradients(inputs, upstream)
        _launch(backward_kernel, inputs, tape, True, _device_lengths(inputs), gradients)
        padded = (gradients.inputs, gradients.queries, gradients.memory, gradients.candidate)
        unpadded = (unpad(gradient, inputs.inputs.shape[-1]) for gradient in padded)
        return *unpadded, gradients.occupancy, *_weight_gradients(inputs, tape, gradients)


def _launch(
    kernel: Any, inputs: Arguments, tape: Tape, save: bool, lengths: Tensor, written: Tensor | Gradients
) -> None:
    """Run a kernel.

    Args:
        kernel: the forward or the backward kernel.
        inputs: arguments of the recurrence.
        tape: buffers of the forward pass.
        save: whether the tape has all steps.
        lengths: lengths of the sequences, (B,) int32 on the device.
        written: the output of the forward kernel, or the gradients of the backward kernel.
    """
    steps, batch_size, size = inputs.inputs.shape
    num_slots, padded = inputs.state.memory.shape[1], padded_size(size)
    operand, is_backward = _operand(inputs), isinstance(written, Gradients)
    dropout = DropoutMasks(
        *_masks(inputs.dropout, (steps, *inputs.state.memory.shape), padded, inputs.inputs.device)
    )
    teams = choose_teams(batch_size, power_of_two_above(padded), inputs.inputs.device)
    resources = choose_resources(teams, operand)
    plan = make_plan(
        teams,
        size,
        num_slots,
        resources,
        is_backward,
        NORMALIZED=inputs.weights.key_norm is not None,
        HISTORY=int(save),
        SCORE_MASKS=dropout.key is not None,
        CELL_MASKS=dropout.memory is not None,
    )
    constants = (inputs.threshold, inputs.norm_epsilon, inputs.key_epsilon)
    sequences = (pad(inputs.inputs, padded), pad(inputs.queries, padded))
    weights = pad_to_blocks(pad_weights(inputs.weights, size), plan, operand, is_backward)
    arrivals = lengths.new_zeros(teams.number, ARRIVALS_STRIDE)
    with on_device(inputs.inputs):
        for first_team in range(0, teams.number, teams.at_a_time):
            number = min(teams.at_a_time, teams.number - first_team)
            kernel[(number * teams.size,)](
                *sequences,
                lengths,
                written,
                weights,
                tape,
                dropout,
                arrivals,
                Sizes(first_team, batch_size, num_slots, size, padded, *constants),
                _constants(plan),
                num_warps=resources.warps,
                # A multiprocessor has one program: it may use all registers.
                maxnreg=255 if teams.rows == 1 else None,
                enable_fp_fusion=True,  # Triton 3.9 warns that 3.10 will have a different default
                num_stages=1,  # no pipelining of the other loops: they load what they have stored
                launch_cooperative_grid=True,  # the programs of a team wait for each other
            )


def _constants(values: Any) -> Any:
    """Make compile-time constants of all entries of a named tuple, which may have others inside."""
    import triton.language as tl

    if isinstance(values, tuple):
        return type(values)(*map(_constants, values))
    return tl.constexpr(values)


def _operand(inputs: Arguments) -> torch.dtype:
    """The dtype of the operands of matrix products."""
    return torch.bfloat16 if inputs.bfloat16 else torch.float32


def _device_lengths(inputs: Arguments) -> Tensor:
    """The lengths of the sequences on the device, (B,) int32."""
    steps, batch_size, _ = inputs.inputs.shape
    if inputs.lengths is None:
        return torch.full((batch_size,), steps, dtype=torch.int32, device=inputs.inputs.device)
    return copy_to(inputs.lengths.clamp(0, steps).to(torch.int32), inputs.inputs.device)


def _tape_shapes(inputs: Arguments, save: bool) -> Tape:
    """Shapes and dtypes of the buffers of all steps, or of one step without `save`; None as in `Tape`."""
    (steps, *_, size), slots = inputs.inputs.shape, inputs.state.memory.shape[:2]
    padded, operand, float32 = padded_size(size), _operand(inputs), torch.float32
    states, pairs = (steps + 1 if save else 1, *slots), (steps if save else 1, *slots)
    dropout = inputs.dropout
    given = dropout.key_mask is not None or dropout.feature_mask is not None
    drops_keys = given or _keep_probability(dropout.score_drop_below) is not None
    return Tape(
        memory=((*states, padded), float32),
        candidate=((*states, padded), float32),
        occupancy=((*states[:2], slots[1] + 1), float32),
        attention=((steps, *slots), float32),
        key_inputs=((*pairs, padded), operand) if drops_keys else None,
        keys=((*pairs, padded), float32),
        cell_inputs=((*pairs, 2 * padded), operand),
        hidden=((*pairs, 4 * padded), operand),
        gates=((*pairs, 4 * padded), float32),
    )


def _new_tape(inputs: Arguments, save: bool) -> Tape:
    """Allocate the buffers. They start as zeros if the weight gradients also read their padding."""
    x, padded = inputs.inputs, padded_size(inputs.inputs.shape[-1])

    def allocate(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        make = x.new_empty if name in ("keys", "gates") else x.new_zeros
        return make(shape, dtype=dtype)

    shapes = _tape_shapes(inputs, save)._asdict()
    tape = Tape(**{name: None if of is None else allocate(name, *of) for name, of in shapes.items()})
    tape.memory[0] = pad(inputs.state.memory, padded)
    tape.candidate[0] = pad(inputs.state.candidate, padded)
    tape.occupancy[0] = inputs.state.occupancy
    return tape


def _read_tape(inputs: Arguments, attention: Tensor, saved: Sequence[Tensor]) -> Tape:
    """The tape from the attention and the saved tensors."""
    values = iter(saved)
    shapes = _tape_shapes(inputs, save=True)._asdict()
    return Tape(
        **{
            name: attention if name == "attention" else None if of is None else next(values)
            for name, of in shapes.items()
        }
    )


def _new_gradients(inputs: Arguments, upstream: Sequence[Tensor | None]) -> Gradients:
    """Allocate the buffers of the backward pass, some of them filled with the upstream gradients."""
    x, (batch_size, num_slots) = inputs.inputs, inputs.state.memory.shape[:2]
    (steps, *_, size), operand = x.shape, _operand(inputs)
    padded, pairs = padded_size(size), (steps, batch_size, num_slots)

    def filled(gradient: Tensor | None, *shape: int) -> Tensor:
        """The gradient of a result, padded, as a new tensor: that of the state is overwritten."""
        new = x.new_zeros(shape)
        if gradient is not None:
            new[..., : gradient.shape[-1]] = gradient
        return new

    d_output, d_memory, d_candidate, d_occupancy, d_attention = upstream
    return Gradients(
        output=filled(d_output, steps, batch_size, padded),
        attention=filled(d_attention, *pairs),
        memory=filled(d_memory, batch_size, num_slots, padded),
        candidate=filled(d_candidate, batch_size, num_slots, padded),
        occupancy=filled(d_occupancy, batch_size, num_slots + 1),
        inputs=x.new_zeros(steps, batch_size, padded),
        queries=x.new_zeros(steps, batch_size, padded),
        keys=x.new_zeros(*pairs, padded, dtype=operand),
        hidden=x.new_zeros(*pairs, 4 * padded, dtype=operand),
        gates=x.new_zeros(*pairs, 4 * padded, dtype=operand),
        cell_inputs=x.new_zeros(batch_size, 2 * padded),
        vectors=x.new_zeros(batch_size, 5, padded),
    )


def _weight_gradients(inputs: Arguments, tape: Tape, gradients: Gradients) -> Weights:
    """The gradients of the weights, for each matrix one product over all pairs."""
    key_inputs = tape.candidate[:-1] if tape.key_inputs is None else tape.key_inputs

    def matrix_and_bias(d_outputs: Tensor, operands: Tensor) -> tuple[Tensor, Tensor]:
        d_outputs, operands = d_outputs.flatten(0, -2), operands.flatten(0, -2).to(d_outputs.dtype)
        return (d_outputs.t() @ operands).float(), d_outputs.sum(0, dtype=torch.float32)

    key, key_bias = matrix_and_bias(gradients.keys, key_inputs)
    w_in, b_in = matrix_and_bias(gradients.hidden, tape.cell_inputs)
    w_out, b_out = matrix_and_bias(gradients.gates, tape.hidden)
    # Results of an operator must not share memory.
    norm, norm_bias, score_out, *key_norm = (vector.clone() for vector in gradients.vectors.sum(0).unbind())
    if inputs.weights.key_norm is None:
        key_norm = []
    padded = Weights(key, key_bias, score_out, w_in, b_in, w_out, b_out, norm, norm_bias, *key_norm)
    return unpad_weights(padded, inputs.inputs.shape[-1])


def _masks(
    dropout: Dropout, shape: tuple[int, ...], padded: int, device: torch.device
) -> Sequence[Tensor | None]:
    """The fields of `DropoutMasks` for all slots of all steps, padded from D to P.

    Args:
        dropout: given masks, and a seed to draw those that are not given.
        shape: (T, B, N, D).
        padded: P.
        device: device of the masks.
    """
    cell_input_mask = dropout.cell_input_mask
    memory, candidate = (None, None) if cell_input_mask is None else cell_input_mask.chunk(2, -1)
    given = (dropout.key_mask, dropout.feature_mask, memory, candidate, dropout.hidden_mask)
    thresholds = [dropout.score_drop_below] * 2 + [dropout.cell_drop_below] * 3
    widths = (padded, padded, padded, padded, 4 * padded)
    generator = None if dropout.seed is None else torch.Generator(device).manual_seed(int(dropout.seed))

    def draw(drop_below: int, width: int) -> Tensor | None:
        """Draw a mask of zeros and ones; the factor 1 / (1 - probability) is part of the weights."""
        if generator is None or (keep_probability := _keep_probability(drop_below)) is None:
            return None
        mask = torch.empty(*shape[:3], width, dtype=torch.uint8, device=device)
        return mask.bernoulli_(keep_probability, generator=generator)

    masks = [
        draw(drop_below, width) if mask is None else pad(mask, width)
        for mask, drop_below, width in zip(given, thresholds, widths, strict=True)
    ]
    return [*_fill(masks[:2], widths[:2]), *_fill(masks[2:], widths[2:])]


def _fill(masks: Sequence[Tensor | None], widths: Sequence[int]) -> list[Tensor | None]:
    """The masks of the score, or those of the cell, with ones for those that are missing if not all are.

    The kernels read either all of these or none.
    """
    present = next((mask for mask in masks if mask is not None), None)
    if present is None:
        return list(masks)
    return [
        present.new_ones(*present.shape[:-1], width) if mask is None else mask
        for mask, width in zip(masks, widths, strict=True)
    ]


def _keep_probability(drop_below: int) -> float | None:
    """The probability that the noise is not below a threshold; None if nothing is dropped."""
    probability = 0.5 - drop_below / NOISE_LEVELS
    return None if probability >= 1 else probability
