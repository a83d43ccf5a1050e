"""Whether an engine, which reads weights and calls no module, may stand in for the definition."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from ordered_memory.attention import AdditiveScore, NormalizedScore
from ordered_memory.backends.contract import Modules
from ordered_memory.cells import GatedRecursiveCell, TreeRNNCell
from ordered_memory.checks import is_transformed

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def why_not(
    inputs: Tensor, modules: Modules, cells: Collection[type] = (GatedRecursiveCell, TreeRNNCell)
) -> str | None:
    """Why only the definition can run with these modules.

    Engines read the weights and never call the modules. So anything that changes the effect of a call (a
    hook, a replaced submodule, a parametrization) is a reason.

    Args:
        inputs: (T, B, D).
        modules: of the recurrence.
        cells: those that the engine knows.
    Returns:
        A clause for the error; None if every engine can.
    """
    if type(modules.score) not in (AdditiveScore, NormalizedScore):
        return f"it does not know the score {type(modules.score).__name__}"
    if type(modules.cell) not in cells:
        return f"it does not know the cell {type(modules.cell).__name__}"
    dtype = None
    for name, (module, kind, shape) in _parts(modules, inputs.shape[-1]).items():
        if type(module) is not kind:
            return f"its {name} must be a {kind.__name__}, got {type(module).__name__}"
        if _has_hooks(module):
            return f"it does not call the hooks of {name}"
        if _is_patched(module):
            return f"it does not call the methods that were set on {name}"
        bias = None if name == "cell.from_memory" else (shape[0],)
        for parameter, wanted in (("weight", shape), ("bias", bias)):
            weight = module._parameters.get(parameter)
            if parameter in module._buffers or (weight is None) != (wanted is None):
                return f"its {name} must be a {kind.__name__} with the parameters that it has by default"
            if weight is not None and tuple(weight.shape) != wanted:
                return f"the {parameter} of its {name} must have shape {wanted}, got {tuple(weight.shape)}"
            if weight is not None and weight.dtype != (dtype := dtype or weight.dtype):
                return f"its parameters must all have one dtype, got {dtype} and {weight.dtype}"
    if _has_hooks(modules.score) or _has_hooks(modules.cell):
        return "it does not call the hooks of the score and the cell"
    if _is_patched(modules.score) or _is_patched(modules.cell):
        return "it does not call the methods that were set on the score and the cell"
    if not torch.compiler.is_compiling() and any(
        getattr(nn.modules.module, f"_global{kind}") for kind in _HOOKS
    ):
        return "it does not call the hooks of all modules"
    parameters = (
        one for module in (modules.norm, modules.cell, modules.score) for one in module.parameters()
    )
    if is_transformed(inputs, *parameters):
        return "it has no forward-mode derivative and no batching rule, use backend='reference'"
    return None


def _parts(modules: Modules, size: int) -> dict[str, tuple[nn.Module, type[nn.Module], tuple[int, ...]]]:
    """By name what is read and not called, its type, the shape of its weight; the query map is called."""
    score, cell = modules.score, modules.cell
    gates = 4 * size if isinstance(cell, GatedRecursiveCell) else size
    parts: dict[str, tuple[nn.Module, type[nn.Module], tuple[int, ...]]] = {
        "norm": (modules.norm, nn.LayerNorm, (size,)),
        "cell.from_memory": (cell.from_memory, nn.Linear, (gates, size)),
        "cell.from_candidate": (cell.from_candidate, nn.Linear, (gates, size)),
        "score.key": (score.key, nn.Linear, (size, size)),
        "score.output": (score.output, nn.Linear, (1, size)),
    }
    if isinstance(cell, GatedRecursiveCell):
        parts["cell.output"] = (cell.output, nn.Linear, (gates, gates))
    if isinstance(score, NormalizedScore):
        parts["score.key_norm"] = (score.key_norm, nn.LayerNorm, (size,))
    return parts


def _has_hooks(module: nn.Module) -> bool:
    return any(getattr(module, kind) for kind in _HOOKS)


def _is_patched(module: nn.Module) -> bool:
    """Whether a method was replaced on the instance, as wrappers do that set `module.forward`."""
    return any(name in module.__dict__ for name in ("forward", "features", "prepare", "compose"))
