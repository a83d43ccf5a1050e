"""The recurrence in plain PyTorch, computing only what the definition's result depends on.

One autograd.Function over whole sequences with its backward pass written out. Compared with the definition:
slots with →π_i = 0, where M̂_i = x̃ exactly, and padded steps are not computed at all; everything about M
is one product for all slots of a step; only the candidate's half of the cell's first map and its second map
go slot by slot; parameter gradients are summed in large products. On a device that is not a CPU, where
finding the active slots would make the host wait, every slot of every row is computed: the shapes then depend
on the lengths alone.

`torch.compile` breaks the graph at this engine: what it keeps for its backward pass is a list of tensors
whose number and sizes depend on the data, which no operator can declare; recomputing them would cost a third
more time. Where no graph break is allowed (`fullgraph=True`, `torch.export`), use "native" or "reference".

Under autocast the recurrence stays in the dtype of the parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ordered_memory.backends import contract, module_checks
from ordered_memory.backends.contract import Arguments, Masks, MemoryRecurrence, Modules, OrderedMemoryState
from ordered_memory.backends.sequence.kernels import RecurrencePlan
from ordered_memory.backends.sequence.masks import SlotMasks
from ordered_memory.backends.sequence.recurrence import Packed, Recurrence, run
from ordered_memory.backends.tracing import untraced


def why_not(inputs: Tensor, modules: Modules) -> str | None:
    """Why this engine cannot run; see `ordered_memory.backends.module_checks.why_not`."""
    if inputs.device.type == "meta":
        return "it reads sizes off the data, the inputs are on meta"
    return module_checks.why_not(inputs, modules)


@untraced("the sequence backend decides by the data what to compute")
def run_recurrence(
    inputs: Tensor,
    state: OrderedMemoryState,
    modules: Modules,
    lengths: Tensor | None = None,
    masks: Masks = None,
    exact: bool | None = None,
) -> MemoryRecurrence:
    """`ordered_memory.memory.run_recurrence`, faster.

    From the same seed, dropout sampled here differs from the definition's; it is drawn for active slots only.

    Args:
        inputs: x̃, (T, B, D).
        state: before the first token.
        modules: the learned ones.
        lengths: tokens in each sequence, (B,) int64, 0 or more, or None when none is padded.
        masks: dropout masks of each step, or the sampler of them.
        exact: leave inactive slots out; by default on a CPU.
    Returns:
        Outputs (T, B, D), final state, attention (T, B, N).
    """
    arguments = contract.prepare(inputs, state, modules, lengths, masks)
    with torch.autocast(inputs.device.type, enabled=False):
        return _run(arguments, inputs.device.type == "cpu" if exact is None else exact)


def _run(arguments: Arguments, exact: bool) -> MemoryRecurrence:
    inputs, state = arguments.inputs, arguments.state
    order, running, token = _pack(inputs, arguments.lengths)
    if not running:
        attention = inputs.new_zeros(*inputs.shape[:2], state.memory.shape[1])
        return MemoryRecurrence(torch.zeros_like(inputs), state, attention)
    tokens, queries = (t.flatten(0, 1).index_select(0, token) for t in (inputs, arguments.queries))
    plan = RecurrencePlan(
        running=running,
        threshold=arguments.threshold,
        norm_epsilon=arguments.norm_epsilon,
        key_epsilon=arguments.key_epsilon,
        masks=SlotMasks(arguments.dropout, order),
        exact=exact,
    )
    ordered = OrderedMemoryState(*(tensor.index_select(0, order) for tensor in state))
    if arguments.needs_grad():
        result = Packed(*Recurrence.apply(plan, tokens, queries, *ordered, *arguments.weights))  # type: ignore[no-untyped-call]
    else:
        result = run(plan, tokens, queries, ordered, arguments.weights)
    return _unpack(result, order, token, inputs)


def _pack(inputs: Tensor, lengths: Tensor | None) -> tuple[Tensor, list[int], Tensor]:
    """Rows longest first (B,), how many of them run at each step, and where each token stands in T * B."""
    steps, batch_size = inputs.shape[:2]
    if lengths is None:
        order = torch.arange(batch_size, device=inputs.device)
        return order, [batch_size] * steps, torch.arange(steps * batch_size, device=inputs.device)
    order = lengths.argsort(descending=True, stable=True)
    running = (lengths > torch.arange(steps, device="cpu").unsqueeze(1)).sum(1).tolist()
    running = [rows for rows in running if rows]
    token = torch.cat([t * batch_size + order[:rows] for t, rows in enumerate(running)] or [order[:0]])
    return order.to(inputs.device), running, token.to(inputs.device)


def _unpack(result: Packed[Tensor], order: Tensor, token: Tensor, inputs: Tensor) -> MemoryRecurrence:
    """The layout of the definition: padded, rows in the order of the batch."""
    steps, batch_size = inputs.shape[:2]

    def padded(packed: Tensor) -> Tensor:
        zeros = packed.new_zeros(steps * batch_size, packed.shape[1])
        return zeros.index_copy(0, token, packed).view(steps, batch_size, -1)

    rank = torch.empty_like(order)
    rank[order] = torch.arange(batch_size, device=order.device)
    state = OrderedMemoryState(*(tensor.index_select(0, rank) for tensor in result[2:]))
    return MemoryRecurrence(padded(result.output), state, padded(result.attention))
