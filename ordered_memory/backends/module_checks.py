"""Checks whether a backend that only reads the weights can replace the calls of the modules."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from ordered_memory.attention import AdditiveScore, NormalizedScore
from ordered_memory.backends.operators import why_not_transformed, why_not_wrapped
from ordered_memory.cells import GatedRecursiveCell, TreeRNNCell
from ordered_memory.recurrence import Modules
from ordered_memory.state import OrderedMemoryState

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def why_not(
    inputs: Tensor,
    modules: Modules,
    state: OrderedMemoryState | None = None,
    cells: Collection[type] = (GatedRecursiveCell, TreeRNNCell),
) -> str | None:
    """Why a backend other than the definition cannot run with these modules.

    The other backends read the weights and do not call the modules. So they cannot run if anything changes
    what a call of a module computes: a hook, a replaced submodule, a parametrization.

    Args:
        inputs: x̃, (T, B, D).
        modules: score, cell and LayerNorm.
        state: initial state; None if it is empty.
        cells: the types of cell that the backend supports.
    Returns:
        The reason, as a clause for the error message; None if the backend can run.
    """
    parameters = (
        parameter
        for module in (modules.norm, modules.cell, modules.score)
        for parameter in module.parameters()
    )
    reason = unsupported_module_reason(inputs, modules, cells)
    return reason or why_not_transformed(inputs, *(state or ()), *parameters)


def unsupported_module_reason(
    inputs: Tensor, modules: Modules, cells: Collection[type] = (GatedRecursiveCell, TreeRNNCell)
) -> str | None:
    """What changes the result of calling the modules: a hook, a patch, a replaced module, a parametrization.

    A weight that wraps other tensors, such as a quantized one, is also a reason: it cannot be read.

    Args:
        inputs, modules, cells: as in `why_not`.
    Returns:
        The reason, as in `why_not`; None if nothing does.
    """
    if type(modules.score) not in (AdditiveScore, NormalizedScore):
        return f"it does not know the score {type(modules.score).__name__}"
    if type(modules.cell) not in cells:
        return f"it does not know the cell {type(modules.cell).__name__}"
    dtype = None
    for name, (module, expected_type, shape) in _submodules(modules, inputs.shape[-1]).items():
        if type(module) is not expected_type:
            type_name = f"{type(module).__module__}.{type(module).__qualname__}"
            return f"its {name} must be a torch.nn.{expected_type.__name__}, got {type_name}"
        if has_hooks(module):
            return f"it does not call the hooks of {name}"
        if is_patched(module):
            return f"it does not call the methods that were set on {name}"
        bias = None if name == "cell.from_memory" else (shape[0],)
        for parameter_name, expected_shape in (("weight", shape), ("bias", bias)):
            weight = module._parameters.get(parameter_name)
            if parameter_name in module._buffers or (weight is None) != (expected_shape is None):
                return (
                    f"its {name} must be a {expected_type.__name__} with the parameters that it has by "
                    "default"
                )
            if (reason := why_not_wrapped(weight)) is not None:
                return reason
            if weight is not None and tuple(weight.shape) != expected_shape:
                return (
                    f"the {parameter_name} of its {name} must have shape {expected_shape}, "
                    f"got {tuple(weight.shape)}"
                )
            if weight is not None and weight.dtype != (dtype := dtype or weight.dtype):
                return f"its parameters must all have one dtype, got {dtype} and {weight.dtype}"
    if has_hooks(modules.score):
        return "it does not call the hooks of the score"
    if has_hooks(modules.cell):
        return (
            "it does not call the hooks of the cell itself, and no backend does, since they call compose "
            "instead of forward: hook the linear maps in the cell"
        )
    if is_patched(modules.score) or is_patched(modules.cell):
        return "it does not call the methods that were set on the score and the cell"
    if not torch.compiler.is_compiling() and any(
        getattr(nn.modules.module, f"_global{hooks}") for hooks in _HOOKS
    ):
        return "it does not call the global hooks of modules"
    return None


def _submodules(modules: Modules, size: int) -> dict[str, tuple[nn.Module, type[nn.Module], tuple[int, ...]]]:
    """The submodules whose weights are read, by name, with their types and the shapes of their weights.

    The query map is missing: `contract.prepare` calls it.
    """
    score, cell = modules.score, modules.cell
    gates = 4 * size if isinstance(cell, GatedRecursiveCell) else size
    submodules: dict[str, tuple[nn.Module, type[nn.Module], tuple[int, ...]]] = {
        "norm": (modules.norm, nn.LayerNorm, (size,)),
        "cell.from_memory": (cell.from_memory, nn.Linear, (gates, size)),
        "cell.from_candidate": (cell.from_candidate, nn.Linear, (gates, size)),
        "score.key": (score.key, nn.Linear, (size, size)),
        "score.output": (score.output, nn.Linear, (1, size)),
    }
    if isinstance(cell, GatedRecursiveCell):
        submodules["cell.output"] = (cell.output, nn.Linear, (gates, gates))
    if isinstance(score, NormalizedScore):
        submodules["score.key_norm"] = (score.key_norm, nn.LayerNorm, (size,))
    return submodules


def has_hooks(module: nn.Module) -> bool:
    """Whether calling a module runs hooks.

    Args:
        module: any module; its children are not looked at.
    """
    return any(getattr(module, hooks) for hooks in _HOOKS)


def is_patched(module: nn.Module) -> bool:
    """Whether a method was replaced on the instance, for instance by a wrapper that sets `module.forward`.

    Args:
        module: any module; its children are not looked at.
    """
    return any(
        name in module.__dict__ for name in ("forward", "features", "prepare", "compose", "draw_masks")
    )
