"""What the backends of Ordered Memory share.

`native`, `sequence` and `triton` import this file and never each other. A backend takes the arguments of the
definition (`ordered_memory.memory.run_recurrence`) and returns its result, whose types are those of
`ordered_memory.recurrence` and `ordered_memory.state`. It uses `module_checks.why_not` to find out whether it
can replace the calls of the modules. It calls `prepare`, which checks the arguments, collects the weights and
computes the queries, and runs the loop over time on the resulting `Arguments`. Autograd differentiates
through `prepare`, so a backend only computes the gradients of the `Arguments`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ordered_memory.attention import NormalizedScore
from ordered_memory.backends import operators
from ordered_memory.cells import GatedRecursiveCell
from ordered_memory.dropout import apply_mask, draw_mask
from ordered_memory.modes import autocast_dtype, without_autocast
from ordered_memory.recurrence import DropoutSampler, Masks, Modules, RecurrenceOutput, StepMasks
from ordered_memory.state import OrderedMemoryState, check_loop

NOISE_LEVELS = 1 << 16
"""Number of values of the noise that dropout is drawn with, 16 bits for each entry of a mask.

The noise is an integer, uniform in [-NOISE_LEVELS / 2, NOISE_LEVELS / 2). An entry is dropped if its noise is
below a threshold (`drop_below`): -NOISE_LEVELS / 2 + NOISE_LEVELS · probability.
"""
DROP_NOTHING = -(1 << 20)
"""The threshold with which nothing is dropped: all noise is above it."""
SCHEMA_NAMES = {"score_out": "score", "cell_drop_below": "cell_level", "score_drop_below": "score_level"}
"""The fields of `Weights` and `Dropout` that have another name in the schemas of operators."""


class Weights(NamedTuple):
    """The weights used inside the loop, already scaled by 1 / sqrt(D) and by the factors of drawn dropout.

    The output bias of the score is left out: it adds the same value to the score of every slot, which does
    not change p.

    Args:
        key, key_bias: the score's map of M̂, (D, D) and (D,).
        score_out: the score's last map, (D,).
        w_in, b_in: the cell's map of [M_i; M̂_{i-1}], (G, 2D) and (G,); G is 4D for the gated cell, else D.
        w_out, b_out: the gated cell's map of its hidden units, (4D, 4D) and (4D,); None for the other cell.
        norm, norm_bias: weight and bias of the shared LayerNorm, (D,).
        key_norm, key_norm_bias: weight and bias of the normalized score's LayerNorm of the keys, (D,); None
            for the other score.
    """

    key: Tensor
    key_bias: Tensor
    score_out: Tensor
    w_in: Tensor
    b_in: Tensor
    w_out: Tensor | None
    b_out: Tensor | None
    norm: Tensor
    norm_bias: Tensor
    key_norm: Tensor | None = None
    key_norm_bias: Tensor | None = None


class Dropout(NamedTuple):
    """Dropout inside the loop: either given masks, or a seed to draw noise from and thresholds for it.

    An operator that is called with both draws only the masks that are not given.

    Args:
        cell_input_mask, hidden_mask: masks of [M_i; M̂_{i-1}] and of the cell's hidden units, (T, B, N, ·)
            or None.
        key_mask, feature_mask: masks of M̂ and of the input of the score's last map, (T, B, N, D) or None.
        seed: seed of the noise, () int64 on the CPU, or None if no mask is drawn. The same seed drops the
            same entries.
        cell_drop_below, score_drop_below: an entry of a mask of the cell, or of the score, is dropped if its
            noise is below this threshold; see `NOISE_LEVELS`. The other entries are not scaled, because
            `Weights` contains the factor.
    """

    cell_input_mask: Tensor | None = None
    hidden_mask: Tensor | None = None
    key_mask: Tensor | None = None
    feature_mask: Tensor | None = None
    seed: Tensor | None = None
    cell_drop_below: int = DROP_NOTHING
    score_drop_below: int = DROP_NOTHING


class Arguments(NamedTuple):
    """The arguments of a backend's loop over time.

    Args:
        inputs: x̃, (T, B, D).
        queries: the score's map of x̃, after the LayerNorm of the normalized score, (T, B, D).
        lengths: number of tokens of each sequence, (B,) int64 on the CPU, in 0..T; None if nothing is padded.
        state: initial state.
        weights: weights of the modules.
        dropout: dropout inside the loop.
        threshold: an occupancy below this counts as 0.
        norm_epsilon, key_epsilon: epsilons of the shared LayerNorm and of the normalized score's.
        bfloat16: whether matrix products have bfloat16 operands.
    """

    inputs: Tensor
    queries: Tensor
    lengths: Tensor | None
    state: OrderedMemoryState
    weights: Weights
    dropout: Dropout
    threshold: float
    norm_epsilon: float
    key_epsilon: float
    bfloat16: bool

    def needs_backward(self) -> bool:
        """Whether a backward pass may follow."""
        return operators.needs_backward((self.inputs, self.queries, *self.state, *self.weights))


class Implementation(operators.Implementation):
    """Base class of the implementations of Ordered Memory as operators."""

    results_type = RecurrenceOutput
    differentiable = ("inputs", "queries", *OrderedMemoryState._fields, *Weights._fields)
    schema_names = SCHEMA_NAMES


def prepare(
    inputs: Tensor,
    state: OrderedMemoryState,
    modules: Modules,
    lengths: Tensor | None,
    masks: Masks,
    bfloat16: bool | None = None,
) -> Arguments:
    """Convert the arguments of `run_recurrence` to those of a backend's loop.

    Args:
        inputs: x̃, (T, B, D).
        state: initial state.
        modules: modules for which `why_not` returns None.
        lengths: number of tokens of each sequence, (B,) int64; None if nothing is padded.
        masks: dropout masks of each step, or a sampler that draws them; None for no dropout.
        bfloat16: whether matrix products have bfloat16 operands; None if autocast asks for it.
    Returns:
        The arguments, in the dtype of the parameters.
    Raises:
        ValueError: a tensor of the state does not match the inputs in shape, dtype or device, or `lengths` is
            not (B,).
    """
    dtype = modules.cell.from_memory.weight.dtype
    check_loop(state, inputs, lengths)
    num_slots = state.memory.shape[1]
    if bfloat16 is None:
        bfloat16 = autocast_dtype(inputs.device) == torch.bfloat16
    if lengths is not None and inputs.device.type != "meta":
        lengths = lengths.to("cpu", torch.int64).clamp(0, inputs.shape[0])
    with without_autocast(inputs.device):
        inputs = inputs.to(dtype)
        query_mask, dropout, factors = _dropout(masks, modules, inputs, num_slots)
        queries: Tensor = modules.score.query(apply_mask(inputs, query_mask))
        if isinstance(modules.score, NormalizedScore):
            queries = modules.score.query_norm(queries)
        return Arguments(
            inputs=inputs,
            queries=queries,
            lengths=lengths,
            state=OrderedMemoryState(*(tensor.to(dtype) for tensor in state)),
            weights=_scaled_weights(modules, *factors),
            dropout=dropout,
            threshold=modules.threshold,
            norm_epsilon=_epsilon(modules.norm),
            key_epsilon=_epsilon(getattr(modules.score, "key_norm", None)),
            bfloat16=bfloat16,
        )


def check_shapes(arguments: Arguments) -> None:
    """Check the shapes that the C code and the kernels of the gated cell rely on.

    Args:
        arguments: arguments of the recurrence.
    Raises:
        ValueError: a tensor has the wrong shape, or one that the others need is None.
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
    tensors = {"queries": arguments.queries, "lengths": arguments.lengths, **arguments.state._asdict()}
    tensors |= arguments.weights._asdict() | arguments.dropout._asdict()
    for name, tensor in tensors.items():
        shape = expected.get(name, (size,))
        if isinstance(tensor, Tensor) and tuple(tensor.shape) != shape:
            schema_name = SCHEMA_NAMES.get(name, name)
            raise ValueError(f"{schema_name} must have shape {shape}, got {tuple(tensor.shape)}")
    weights, dropout = arguments.weights, arguments.dropout
    normalized = weights.key_norm is not None or weights.key_norm_bias is not None
    drawn = max(dropout.cell_drop_below, dropout.score_drop_below) > -NOISE_LEVELS // 2
    needed = ["w_out", "b_out", *["key_norm", "key_norm_bias"] * normalized, *["seed"] * drawn]
    for name in needed:
        if tensors[name] is None:
            raise ValueError(f"{name} must be a tensor for these arguments, got None")


def _scaled_weights(modules: Modules, cell_factor: float, score_factor: float) -> Weights:
    """The weights. Those that act on inputs with drawn dropout are scaled by its factor."""
    score, cell, norm = modules.score, modules.cell, modules.norm
    assert isinstance(norm, nn.LayerNorm)
    w_out = cell.output if isinstance(cell, GatedRecursiveCell) else None
    key_norm = score.key_norm if isinstance(score, NormalizedScore) else None
    # The bias has no effect on p, so its gradient is zero (not None); a NaN in it still propagates.
    score_weight = score.output.weight[0] + 0 * score.output.bias
    return Weights(
        key=_scaled(score.key.weight, score_factor),
        key_bias=score.key.bias,
        score_out=score_weight * (score_factor / math.sqrt(score.slot_size)),
        w_in=_scaled(torch.cat([cell.from_memory.weight, cell.from_candidate.weight], 1), cell_factor),
        b_in=cell.from_candidate.bias,
        w_out=None if w_out is None else _scaled(w_out.weight, cell_factor),
        b_out=None if w_out is None else w_out.bias,
        norm=norm.weight,
        norm_bias=norm.bias,
        key_norm=None if key_norm is None else key_norm.weight,
        key_norm_bias=None if key_norm is None else key_norm.bias,
    )


def _scaled(weight: Tensor, factor: float) -> Tensor:
    return weight if factor == 1 else weight * factor


def _epsilon(norm: nn.Module | None) -> float:
    return norm.eps if isinstance(norm, nn.LayerNorm) else 0.0


def _dropout(
    masks: Masks, modules: Modules, inputs: Tensor, num_slots: int
) -> tuple[Tensor | None, Dropout, tuple[float, float]]:
    """The mask of the queries, (T, B, D) or None; dropout inside the loop; factors of cell and score."""
    if masks is None:
        return None, Dropout(), (1.0, 1.0)
    if not isinstance(masks, DropoutSampler):
        return *_given_masks(masks, inputs, num_slots), (1.0, 1.0)
    score, cell = modules.score, modules.cell
    cell_factor, cell_drop_below = _factor_and_drop_below(cell.dropout if cell.training else 0.0)
    score_dropout = score.dropout if score.training else 0.0
    score_factor, score_drop_below = _factor_and_drop_below(score_dropout)
    seed = torch.randint(2**63 - 1, (), device="cpu")
    dropout = Dropout(seed=seed, cell_drop_below=cell_drop_below, score_drop_below=score_drop_below)
    query_mask = draw_mask(tuple(inputs.shape), score_dropout, inputs) if score_dropout else None
    return query_mask, dropout, (cell_factor, score_factor)


def _given_masks(
    masks: Sequence[StepMasks | None], inputs: Tensor, num_slots: int
) -> tuple[Tensor | None, Dropout]:
    """The mask of the queries and the dropout inside the loop, stacked from the masks of each step."""
    batch_size, size = inputs.shape[1:]
    slots, units = (batch_size, num_slots, size), (batch_size, num_slots, 4 * size)

    def stack(field: str, shape: tuple[int, ...], *names: str) -> Tensor | None:
        """The named masks, concatenated; ones for steps without masks, and None if no step has masks."""
        step_masks = [[getattr(getattr(step, field, None), name, None) for name in names] for step in masks]
        if all(mask is None for step in step_masks for mask in step):
            return None
        ones = inputs.new_ones(shape)
        filled = [
            [ones if mask is None else mask.to(inputs).expand(shape) for mask in step] for step in step_masks
        ]
        return torch.stack([torch.cat(step, -1) for step in filled])

    return stack("score", (batch_size, size), "query"), Dropout(
        cell_input_mask=stack("cell", slots, "memory", "candidate"),
        hidden_mask=stack("cell", units, "hidden"),
        key_mask=stack("score", slots, "key"),
        feature_mask=stack("score", slots, "features"),
    )


def _factor_and_drop_below(probability: float) -> tuple[float, int]:
    """1 / (1 - probability), and the threshold of the noise; probability is rounded to 1 / NOISE_LEVELS."""
    if probability == 0:
        return 1.0, DROP_NOTHING
    dropped = max(round(probability * NOISE_LEVELS), 1)
    factor = NOISE_LEVELS / (NOISE_LEVELS - dropped) if dropped < NOISE_LEVELS else 0.0
    return factor, dropped - NOISE_LEVELS // 2
