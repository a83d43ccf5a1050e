"""The recurrence in plain PyTorch, as one autograd.Function with an explicit backward pass.

Differences from the definition: padded steps are not computed, nor are slots with →π_i = 0, where M̂_i = x̃
exactly. Only the cell runs slot by slot: everything that does not depend on M̂_{i-1} is computed for all
slots of a step at once. Weight gradients are computed in large matrix products. On a device other than a CPU
all slots are computed, because finding the active ones would need a synchronization with the host: shapes
then depend only on the lengths.

`torch.compile` breaks the graph at this backend. It saves a list of tensors for the backward pass whose
number and sizes depend on the data, which an operator cannot declare, and recomputing them would take a third
more time. Where graph breaks are not allowed (`fullgraph=True`), use "native" or "reference"; `torch.export`
selects one of these.

Under autocast the recurrence keeps the dtype of the parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ordered_memory.backends import contract, module_checks
from ordered_memory.backends.contract import Arguments
from ordered_memory.backends.sequence.masks import SlotMasks
from ordered_memory.backends.sequence.operations import RecurrencePlan
from ordered_memory.backends.sequence.recurrence import Packed, Recurrence, run
from ordered_memory.modes import is_exporting, is_jit_tracing, untraced, without_autocast
from ordered_memory.packing import pack_indices, unpack
from ordered_memory.recurrence import Masks, Modules, RecurrenceOutput
from ordered_memory.state import OrderedMemoryState


def why_not(inputs: Tensor, modules: Modules, state: OrderedMemoryState | None = None) -> str | None:
    """Why this backend cannot run; see `ordered_memory.backends.module_checks.why_not`."""
    if inputs.device.type == "meta":
        return "its sizes depend on the data, the inputs are on meta"
    if is_jit_tracing():
        return "its steps depend on the data, which torch.jit.trace does not record"
    if is_exporting():
        return "its steps depend on the data, which torch.export does not record"
    return module_checks.why_not(inputs, modules, state)


@untraced("what the sequence backend computes depends on the data")
def run_recurrence(
    inputs: Tensor,
    state: OrderedMemoryState,
    modules: Modules,
    lengths: Tensor | None = None,
    masks: Masks = None,
    active_only: bool | None = None,
) -> RecurrenceOutput:
    """The recurrence in plain PyTorch; see `ordered_memory.memory.run_recurrence` for the other arguments.

    Dropout masks differ from those of the definition with the same seed; they are drawn for active slots
    only.

    Args:
        active_only: whether to leave out inactive slots; None does so on a CPU.
    """
    arguments = contract.prepare(inputs, state, modules, lengths, masks)
    with without_autocast(inputs.device):
        return _run(arguments, inputs.device.type == "cpu" if active_only is None else active_only)


def _run(arguments: Arguments, active_only: bool) -> RecurrenceOutput:
    inputs, state = arguments.inputs, arguments.state
    order, batch_sizes, token_index = _pack_order(inputs, arguments.lengths)
    tokens, queries = (
        tensor.flatten(0, 1).index_select(0, token_index) for tensor in (inputs, arguments.queries)
    )
    plan = RecurrencePlan(
        batch_sizes=batch_sizes,
        threshold=arguments.threshold,
        norm_epsilon=arguments.norm_epsilon,
        key_epsilon=arguments.key_epsilon,
        masks=SlotMasks(arguments.dropout, order),
        active_only=active_only,
    )
    ordered_state = OrderedMemoryState(*(tensor.index_select(0, order) for tensor in state))
    if arguments.needs_backward():
        result = Packed(*Recurrence.apply(plan, tokens, queries, *ordered_state, *arguments.weights))  # type: ignore[no-untyped-call]
    else:
        result = run(plan, tokens, queries, ordered_state, arguments.weights)
    return _unpack(result, order, token_index, inputs)


def _pack_order(inputs: Tensor, lengths: Tensor | None) -> tuple[Tensor, list[int], Tensor]:
    """How to pack sequences, as in PackedSequence.

    Returns:
        The sequences by length, longest first, (B,); the batch size of each step; and the index t * B + b of
        each packed token in the padded batch.
    """
    steps, batch_size = inputs.shape[:2]
    if lengths is None:
        order = torch.arange(batch_size, device=inputs.device)
        return order, [batch_size] * steps, torch.arange(steps * batch_size, device=inputs.device)
    token_index, batch_sizes, order = pack_indices(lengths, steps, inputs.device)
    return order, batch_sizes.tolist(), token_index


def _unpack(result: Packed[Tensor], order: Tensor, token_index: Tensor, inputs: Tensor) -> RecurrenceOutput:
    """Convert results to the layout of the definition: padded, sequences in the order of the batch."""
    steps, batch_size = inputs.shape[:2]

    def padded(packed: Tensor) -> Tensor:
        return unpack(packed, 0, token_index, steps * batch_size).view(steps, batch_size, -1)

    rank = order.argsort()  # the inverse of the permutation
    state = OrderedMemoryState(*(tensor.index_select(0, rank) for tensor in result[2:]))
    return RecurrenceOutput(padded(result.output), state, padded(result.attention))
