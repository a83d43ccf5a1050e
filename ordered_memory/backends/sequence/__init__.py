"""The recurrence in plain PyTorch, computing only what the definition's result depends on.

One autograd.Function over whole sequences with its reverse pass written out. Compared with the definition:
slots with →π_i = 0, where M̂_i = x̃ exactly, and padded steps are not computed at all; everything about M
is one product for all slots of a step, everything about x̃ one for all steps; only the candidate's half of
the cell's first map and its second map go slot by slot; parameter gradients are summed in large products.
On a device that is not a CPU, where finding the active slots would make the host wait, every slot of every
row is computed: the shapes then depend on the lengths alone.

Under autocast the recurrence stays in the dtype of the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ordered_memory.backends.sequence.cells import CELL_KERNELS, cell_weights
from ordered_memory.backends.sequence.masks import DrawnMasks, GivenMasks, Masks, stack_query_masks
from ordered_memory.backends.sequence.recurrence import Packed, Recur, run
from ordered_memory.backends.sequence.scores import SCORE_KERNELS, queries, score_weights
from ordered_memory.backends.sequence.step import Plan
from ordered_memory.memory import Maps, MaskDrawer, OrderedMemoryState, Recurrence, StepMasks


def why_not(inputs: Tensor, maps: Maps) -> str | None:
    """Why this backend cannot run on (T, B, D) inputs with these maps, or None when it can."""
    if type(maps.score) not in SCORE_KERNELS:
        return f"it does not know the score {type(maps.score).__name__}"
    if type(maps.cell) not in CELL_KERNELS:
        return f"it does not know the cell {type(maps.cell).__name__}"
    if not (
        isinstance(maps.norm, nn.LayerNorm) and maps.norm.weight is not None and maps.norm.bias is not None
    ):
        return "its norm must be a LayerNorm with weight and bias"
    return None


def recur(
    inputs: Tensor,
    state: OrderedMemoryState,
    maps: Maps,
    lengths: Tensor | None = None,
    masks: Sequence[StepMasks | None] | Callable[[int], StepMasks | None] | None = None,
    exact: bool | None = None,
) -> Recurrence:
    """`ordered_memory.memory.recur`, faster.

    Dropout masks that the layer would draw are drawn here, for active slots only: other ones from the same
    seed than the definition's.

    Args:
        inputs: x̃, (T, B, D).
        state: before the first token.
        maps: the learned maps.
        lengths: tokens in each sequence, (B,) int64, 0 or more, or None when none is padded.
        masks: dropout masks of each step, or a function of t that draws them.
        exact: leave inactive slots out; by default on a CPU.
    Returns:
        Outputs (T, B, D), final state, attention (T, B, N).
    """
    with torch.autocast(inputs.device.type, enabled=False):
        dtype = maps.cell.from_memory.weight.dtype
        inputs, state = inputs.to(dtype), OrderedMemoryState(*(tensor.to(dtype) for tensor in state))
        return _recur(
            inputs, state, maps, lengths, masks, inputs.device.type == "cpu" if exact is None else exact
        )


def _recur(
    inputs: Tensor,
    state: OrderedMemoryState,
    maps: Maps,
    lengths: Tensor | None,
    masks: Sequence[StepMasks | None] | Callable[[int], StepMasks | None] | None,
    exact: bool,
) -> Recurrence:
    order, running, token = _pack(inputs, lengths)
    if not running:
        return Recurrence(
            torch.zeros_like(inputs), state, inputs.new_zeros(*inputs.shape[:2], state.memory.shape[1])
        )
    tokens = inputs.flatten(0, 1).index_select(0, token)
    query_mask, slot_masks = _masks(masks, maps, tokens, order, token, len(inputs))
    assert isinstance(maps.norm, nn.LayerNorm)
    of_score, of_cell = score_weights(maps.score), cell_weights(maps.cell)
    plan = Plan(
        running=running,
        threshold=maps.threshold,
        epsilon=maps.norm.eps,
        masks=slot_masks,
        score=SCORE_KERNELS[type(maps.score)],
        cell=CELL_KERNELS[type(maps.cell)],
        num_score_weights=len(of_score),
        exact=exact,
    )
    weights = [*of_score, *of_cell, maps.norm.weight, maps.norm.bias]
    ordered = OrderedMemoryState(*(tensor.index_select(0, order) for tensor in state))
    queried = queries(maps.score, tokens, query_mask)
    if torch.is_grad_enabled():
        result = Packed(*Recur.apply(plan, tokens, queried, *ordered, *weights))  # type: ignore[no-untyped-call]
    else:
        result = run(plan, tokens, queried, ordered, weights)
    return _unpack(result, order, token, inputs)


def _pack(inputs: Tensor, lengths: Tensor | None) -> tuple[Tensor, list[int], Tensor]:
    """Rows longest first (B,), how many of them run at each step, and where each token stands in T * B."""
    steps, batch_size = inputs.shape[:2]
    if lengths is None:
        order = torch.arange(batch_size, device=inputs.device)
        return order, [batch_size] * steps, torch.arange(steps * batch_size, device=inputs.device)
    host = lengths.cpu()  # the only value that the host reads on a device
    order = host.argsort(descending=True, stable=True)
    running = (host > torch.arange(steps).unsqueeze(1)).sum(1).tolist()
    running = [rows for rows in running if rows]
    token = torch.cat([t * batch_size + order[:rows] for t, rows in enumerate(running)] or [order[:0]])
    return order.to(inputs.device), running, token.to(inputs.device)


def _masks(
    masks: Sequence[StepMasks | None] | Callable[[int], StepMasks | None] | None,
    maps: Maps,
    tokens: Tensor,
    order: Tensor,
    token: Tensor,
    steps: int,
) -> tuple[Tensor | None, Masks]:
    """Dropout of the queries, (tokens, D) or None, and the masks of the slots."""
    if masks is None:
        return None, Masks()
    if isinstance(masks, MaskDrawer):
        size, units = maps.cell.slot_size, maps.cell.hidden_units
        of_cell, of_score = (part.dropout if part.training else 0.0 for part in (maps.cell, maps.score))
        drawn = DrawnMasks(size, units, of_cell, of_score, tokens.device)
        return maps.score.draw_query_mask(tokens), drawn
    given = [masks(t) for t in range(steps)] if callable(masks) else list(masks)
    return stack_query_masks(given)(token), GivenMasks(given, order)


def _unpack(result: Packed, order: Tensor, token: Tensor, inputs: Tensor) -> Recurrence:
    """The layout of the definition: padded, rows in the order of the batch."""
    steps, batch_size = inputs.shape[:2]

    def padded(packed: Tensor) -> Tensor:
        zeros = packed.new_zeros(steps * batch_size, packed.shape[1])
        return zeros.index_copy(0, token, packed).view(steps, batch_size, -1)

    rank = torch.empty_like(order)
    rank[order] = torch.arange(batch_size, device=order.device)
    state = OrderedMemoryState(*(tensor.index_select(0, rank) for tensor in result[2:]))
    return Recurrence(padded(result.output), state, padded(result.attention))
