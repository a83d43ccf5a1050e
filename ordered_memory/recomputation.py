"""Steps that are computed again in the backward pass, to save memory (`recompute_every`)."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ordered_memory.backends import RunRecurrence
from ordered_memory.backends.module_checks import has_hooks
from ordered_memory.modes import untraced
from ordered_memory.recurrence import DropoutSampler, Modules, RecurrenceOutput
from ordered_memory.state import OrderedMemoryState

ModuleType = TypeVar("ModuleType", bound=nn.Module)


def run_in_segments(
    run: RunRecurrence,
    segment_length: int,
    inputs: Tensor,
    state: OrderedMemoryState,
    modules: Modules,
    lengths: Tensor | None,
    masks: DropoutSampler | None,
) -> RecurrenceOutput:
    """Run the recurrence in segments of time steps. The backward pass computes each segment again.

    The steps are computed again with the weights and the dropout of this call, even if the modules have
    changed by then: `torch.func.functional_call` restores other weights, and `eval` turns dropout off. The
    exceptions are modules with hooks and modules that FSDP shards: these are used as they are during the
    backward pass. If calling a module changes its buffers, as with `spectral_norm`, they change once more.

    Args:
        run: the recurrence of a backend.
        segment_length: number of steps of a segment.
        inputs, state, modules, lengths, masks: as for `ordered_memory.memory.run_recurrence`.
    Returns:
        The result of `run` for all steps.
    Raises:
        RuntimeError: in the backward pass, if a weight has been changed in place.
    """
    outputs, attention = [], []
    # `checkpoint` does not detect that the caller changes the state in place before the backward pass.
    state = OrderedMemoryState(*(tensor.clone() for tensor in state))
    is_eager = torch.is_grad_enabled() and not torch.compiler.is_compiling()
    for start in range(0, len(inputs), segment_length):
        # A module may also change from segment to segment, such as a cell that counts its calls.
        function = _repeatable(run, modules) if is_eager else run
        segment = inputs[start : start + segment_length]
        remaining = None if lengths is None else (lengths - start).clamp(0, len(segment))
        result = checkpoint(function, segment, state, modules, remaining, masks, use_reentrant=False)
        state = result.state
        outputs.append(result.output)
        attention.append(result.attention)
    return RecurrenceOutput(torch.cat(outputs), state, torch.cat(attention))


@untraced("steps that are computed again keep the modules as they are")
def _repeatable(run: RunRecurrence, modules: Modules) -> RunRecurrence:
    """Wrap `run` for one forward pass and its recomputations.

    The first call, the forward pass, uses the modules that it is given. Later calls, which compute the steps
    again in the backward pass, use copies of the modules that are made here.
    """
    if any(_is_hooked(module) for part in modules[:3] for module in part.modules()):
        return run
    kept = _shallow_copies(modules)
    versions = [
        (f"{part}.{name}", weight, weight._version)
        for part, module in zip(("score", "cell", "norm"), kept[:3], strict=True)
        for name, weight in module.named_parameters()
        if not weight.is_inference()
    ]
    was_called = False

    def call(*arguments: Any) -> RecurrenceOutput:
        nonlocal was_called
        if not was_called:
            was_called = True
            return run(*arguments)
        for name, weight, version in versions:
            if weight._version != version:
                raise RuntimeError(
                    f"the weight {name} was changed in place after the forward pass; the backward pass, "
                    "which computes steps again (recompute_every), needs it as it was"
                )
        inputs, state, _, lengths, masks = arguments
        copies = _shallow_copies(kept)  # there may be several backward passes, and modules that change
        masks = None if masks is None else replace(masks, modules=copies)
        return run(inputs, state, copies, lengths, masks)

    return call


def _is_hooked(module: nn.Module) -> bool:
    """Whether a copy cannot stand in for a module.

    Hooks may refer to the module itself, and FSDP gathers the weights of a module in hooks of its own.
    """
    fsdp = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())
    return isinstance(module, fsdp) or has_hooks(module)


def _shallow_copies(modules: Modules) -> Modules:
    copies: dict[nn.Module, nn.Module] = {}
    score, cell, norm, threshold = modules
    return Modules(
        _shallow_copy(score, copies), _shallow_copy(cell, copies), _shallow_copy(norm, copies), threshold
    )


def _shallow_copy(module: ModuleType, copies: dict[nn.Module, nn.Module]) -> ModuleType:
    """Copy a module and its children, but not their tensors."""
    if isinstance(module, torch.jit.ScriptModule):
        return module
    if module not in copies:
        copy = object.__new__(type(module))
        copies[module] = copy
        copy.__dict__ = module.__dict__ | {
            "_parameters": dict(module._parameters),
            "_buffers": dict(module._buffers),
            "_modules": {
                name: None if child is None else _shallow_copy(child, copies)
                for name, child in module._modules.items()
            },
        }
    return cast(ModuleType, copies[module])
