"""What every engine of Ordered Memory gets and gives.

The definition (`ordered_memory.memory`) and the engines (`native`, `sequence`, `triton`) import this file
and never each other. An engine asks `module_checks.why_not` whether it may stand in for the modules, has
`prepare` check what it was called with, pack the weights and compute the queries, runs the loop over time on
`Arguments`, and returns a `MemoryRecurrence`. What `prepare` makes of modules and inputs is left to autograd.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ordered_memory.attention import OCCUPANCY_THRESHOLD, AdditiveScore, NormalizedScore, ScoreMasks
from ordered_memory.cells import CellMasks, GatedRecursiveCell, TreeRNNCell
from ordered_memory.checks import autocast_dtype, check_device, check_dtype
from ordered_memory.dropout import apply_mask

NOISE_LEVELS = 1 << 16
"""Number of values of the noise that decides what is dropped: uniform, from -NOISE_LEVELS / 2 up."""
DROP_NOTHING = -(1 << 20)
"""A level below all noise."""


class OrderedMemoryState(NamedTuple):
    """The state between two steps; all zero before the first token.

    Args:
        memory: M, (B, N, D).
        candidate: M̂, (B, N, D); its last slot is the output of the step.
        occupancy: (B, N + 1), fractions in [0, 1]: (→π_1 … →π_N, 1) after any token, 0 before.
    """

    memory: Tensor
    candidate: Tensor
    occupancy: Tensor

    def detach(self) -> OrderedMemoryState:
        """The same state cut off from its history, for truncated back-propagation."""
        return OrderedMemoryState(*(tensor.detach() for tensor in self))


class Modules(NamedTuple):
    """The modules of one direction that act inside the loop over time.

    Args:
        score: (x̃ (B, D), M̂ (B, N, D), masks) → a (B, N).
        cell: composes a slot and the candidate that rises into it.
        norm: the LayerNorm that the input projection and the cell share.
        threshold: occupancies below this count as 0.
    """

    score: AdditiveScore | NormalizedScore
    cell: GatedRecursiveCell | TreeRNNCell
    norm: nn.Module
    threshold: float = OCCUPANCY_THRESHOLD


class StepMasks(NamedTuple):
    """The dropout masks of one time step; None where nothing is dropped."""

    score: ScoreMasks | None = None
    cell: CellMasks | None = None


class DropoutSampler(NamedTuple):
    """Draws dropout masks. Called with t, it draws those of step t from the global generator.

    An engine draws different ones of the same distribution, from a seed that `prepare` draws there.

    Args:
        modules: with the dropout probabilities.
        like: x̃ of one step, (B, D).
        num_slots: N.
    """

    modules: Modules
    like: Tensor
    num_slots: int

    def __call__(self, t: int) -> StepMasks:
        arguments = (len(self.like), self.num_slots, self.like)
        return StepMasks(self.modules.score.draw_masks(*arguments), self.modules.cell.draw_masks(*arguments))


Masks = Sequence[StepMasks | None] | DropoutSampler | None
"""Dropout of a recurrence: the masks of each step, or the sampler of them, or none."""


class MemoryRecurrence(NamedTuple):
    """The result of the loop over time.

    Args:
        output: M̂_N of every step, (T, B, D), zero at padded steps.
        state: after each sequence's last token.
        attention: p of every step, (T, B, N), zero at padded steps.
    """

    output: Tensor
    state: OrderedMemoryState
    attention: Tensor


class Weights(NamedTuple):
    """The learned weights inside the loop, with the factors of drawn dropout and 1 / sqrt(D) multiplied in.

    The output bias of the score adds the same to all slots and so does not change p: it is left out.

    Args:
        key, key_bias: of the score's map of M̂, (D, D) and (D,).
        score: of the score's last map, (D,).
        w_in, b_in: the cell's map of [M_i; M̂_{i-1}], (G, 2D) and (G,); G is 4D for the gated cell, else D.
        w_out, b_out: the gated cell's map of its hidden units, (4D, 4D) and (4D,); None for the other cell.
        norm, norm_bias: of the shared LayerNorm, (D,).
        key_norm, key_norm_bias: of the normalized score's LayerNorm, (D,); None for the other score.
    """

    key: Tensor
    key_bias: Tensor
    score: Tensor
    w_in: Tensor
    b_in: Tensor
    w_out: Tensor | None
    b_out: Tensor | None
    norm: Tensor
    norm_bias: Tensor
    key_norm: Tensor | None = None
    key_norm_bias: Tensor | None = None


class Dropout(NamedTuple):
    """Dropout inside the loop: either given masks, or a seed and the levels at which its noise drops.

    Args:
        cell_input_mask, hidden_mask: masks of [M_i; M̂_{i-1}] and of the cell's hidden units, (T, B, N, ·)
            or None.
        key_mask, feature_mask: masks of M̂ and of the features under the score's last map, (T, B, N, D) or
            None.
        seed: of the noise, () int64 on the CPU, or None if nothing is drawn. Equal seeds drop equal entries.
        cell_level, score_level: an entry with noise below this is dropped; the others are unscaled.
    """

    cell_input_mask: Tensor | None = None
    hidden_mask: Tensor | None = None
    key_mask: Tensor | None = None
    feature_mask: Tensor | None = None
    seed: Tensor | None = None
    cell_level: int = DROP_NOTHING
    score_level: int = DROP_NOTHING


class Arguments(NamedTuple):
    """What an engine's loop over time gets.

    Args:
        inputs: x̃, (T, B, D).
        queries: the score's map of x̃, normalized where the score is, (T, B, D).
        lengths: tokens of each sequence, (B,) int64 on the CPU, within 0..T; None where none is padded.
        state: before the first token.
        weights: of the modules.
        dropout: inside the loop.
        threshold: occupancies below this count as 0.
        norm_epsilon, key_epsilon: of the shared LayerNorm and of the normalized score's.
        bfloat16: autocast asks for bfloat16 operands of products.
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

    def needs_grad(self) -> bool:
        """Whether a reverse pass may follow."""
        tensors = (self.inputs, self.queries, *self.state, *self.weights)
        return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def prepare(
    inputs: Tensor, state: OrderedMemoryState, modules: Modules, lengths: Tensor | None, masks: Masks
) -> Arguments:
    """Build the arguments of an engine from those of `run_recurrence`.

    Args:
        inputs: x̃, (T, B, D).
        state: before the first token.
        modules: for which `why_not` returns None.
        lengths: tokens in each sequence, (B,) int64, or None when none is padded.
        masks: dropout of the slots and queries, or None.
    Returns:
        The arguments, in the dtype of the parameters.
    Raises:
        ValueError: a tensor of the state has another shape, dtype or device than the inputs ask for.
    """
    device = inputs.device.type
    dtype = modules.cell.from_memory.weight.dtype
    num_slots = state.memory.shape[1]
    check_state(state, inputs.shape[1:2], num_slots, inputs.shape[2], inputs)
    bfloat16 = autocast_dtype(inputs.device) == torch.bfloat16
    if lengths is not None:
        lengths = lengths.to("cpu", torch.int64).clamp(0, inputs.shape[0]) if device != "meta" else lengths
    no_autocast = torch.autocast(device, enabled=False) if device != "meta" else contextlib.nullcontext()
    with no_autocast:
        inputs = inputs.to(dtype)
        query_mask, dropout, gains = _dropout(masks, modules, inputs, num_slots)
        queries: Tensor = modules.score.query(apply_mask(inputs, query_mask))
        if isinstance(modules.score, NormalizedScore):
            queries = modules.score.query_norm(queries)
        return Arguments(
            inputs=inputs,
            queries=queries,
            lengths=lengths,
            state=OrderedMemoryState(*(tensor.to(dtype) for tensor in state)),
            weights=_pack(modules, *gains),
            dropout=dropout,
            threshold=modules.threshold,
            norm_epsilon=_epsilon(modules.norm),
            key_epsilon=_epsilon(getattr(modules.score, "key_norm", None)),
            bfloat16=bfloat16,
        )


def check_state(
    state: OrderedMemoryState, batch: tuple[int, ...], num_slots: int, size: int, like: Tensor
) -> None:
    """Check that a state fits the inputs.

    Args:
        state: before the first token.
        batch: its leading axes, (B,), or (2, B) for both directions.
        num_slots: N.
        size: D.
        like: the inputs, whose device and dtype are expected.
    Raises:
        ValueError: another shape, device or dtype.
    """
    slots = (*batch, num_slots, size)
    shapes = {"memory": slots, "candidate": slots, "occupancy": (*batch, num_slots + 1)}
    for name, shape in shapes.items():
        tensor = getattr(state, name)
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"state.{name} must have shape {shape} for batch size {batch[-1]} and "
                f"num_slots={num_slots}, got {tuple(tensor.shape)}"
            )
        check_device(f"state.{name}", tensor, like)
        check_dtype(f"state.{name}", tensor, like)


def _pack(modules: Modules, cell_gain: float, score_gain: float) -> Weights:
    """The weights; those that act on dropped inputs are scaled by a gain."""
    score, cell, norm = modules.score, modules.cell, modules.norm
    assert isinstance(norm, nn.LayerNorm)
    w_out = cell.output if isinstance(cell, GatedRecursiveCell) else None
    key_norm = score.key_norm if isinstance(score, NormalizedScore) else None
    # The bias has no effect on p, so its gradient is zero (not None); a NaN in it still propagates.
    of_features = score.output.weight[0] + 0 * score.output.bias
    return Weights(
        key=_times(score.key.weight, score_gain),
        key_bias=score.key.bias,
        score=of_features * (score_gain / math.sqrt(score.slot_size)),
        w_in=_times(torch.cat([cell.from_memory.weight, cell.from_candidate.weight], 1), cell_gain),
        b_in=cell.from_candidate.bias,
        w_out=None if w_out is None else _times(w_out.weight, cell_gain),
        b_out=None if w_out is None else w_out.bias,
        norm=norm.weight,
        norm_bias=norm.bias,
        key_norm=None if key_norm is None else key_norm.weight,
        key_norm_bias=None if key_norm is None else key_norm.bias,
    )


def _times(weight: Tensor, gain: float) -> Tensor:
    return weight if gain == 1 else weight * gain


def _epsilon(norm: nn.Module | None) -> float:
    return norm.eps if isinstance(norm, nn.LayerNorm) else 0.0


def _dropout(
    masks: Masks, modules: Modules, inputs: Tensor, num_slots: int
) -> tuple[Tensor | None, Dropout, tuple[float, float]]:
    """The mask of the queries, (T, B, D) or None; dropout inside the loop; gains of cell and score."""
    if masks is None:
        return None, Dropout(), (1.0, 1.0)
    if not isinstance(masks, DropoutSampler):
        return *_given(masks, inputs, num_slots), (1.0, 1.0)
    score, cell = modules.score, modules.cell
    cell_gain, cell_level = _gain_and_level(cell.dropout if cell.training else 0.0)
    score_gain, score_level = _gain_and_level(score.dropout if score.training else 0.0)
    seed = torch.randint(2**63 - 1, (), device="cpu")
    dropout = Dropout(seed=seed, cell_level=cell_level, score_level=score_level)
    query_mask = score.draw_query_mask(inputs.flatten(0, 1))
    query_mask = None if query_mask is None else query_mask.view_as(inputs)
    return query_mask, dropout, (cell_gain, score_gain)


def _given(
    masks: Sequence[StepMasks | None], inputs: Tensor, num_slots: int
) -> tuple[Tensor | None, Dropout]:
    """The mask of the queries and dropout inside the loop, of masks for each step."""
    batch_size, size = inputs.shape[1:]
    slots, units = (batch_size, num_slots, size), (batch_size, num_slots, 4 * size)

    def stack(part: str, shape: tuple[int, ...], *names: str) -> Tensor | None:
        """Masks side by side, 1 where a step drops nothing; None where no step drops anything."""
        found = [[getattr(getattr(step, part, None), name, None) for name in names] for step in masks]
        if all(mask is None for step in found for mask in step):
            return None
        ones = inputs.new_ones(shape)
        whole = [[ones if mask is None else mask.to(inputs).expand(shape) for mask in step] for step in found]
        return torch.stack([torch.cat(step, -1) for step in whole])

    return stack("score", (batch_size, size), "query"), Dropout(
        cell_input_mask=stack("cell", slots, "memory", "candidate"),
        hidden_mask=stack("cell", units, "hidden"),
        key_mask=stack("score", slots, "key"),
        feature_mask=stack("score", slots, "hidden"),
    )


def _gain_and_level(probability: float) -> tuple[float, int]:
    """The factor that compensates for dropping with a probability, and the level below which noise drops."""
    if probability == 0:
        return 1.0, DROP_NOTHING
    dropped = max(round(probability * NOISE_LEVELS), 1)
    gain = NOISE_LEVELS / (NOISE_LEVELS - dropped) if dropped < NOISE_LEVELS else 0.0
    return gain, dropped - NOISE_LEVELS // 2
