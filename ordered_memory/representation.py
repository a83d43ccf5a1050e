"""Builds `extra_repr`: a module's constructor arguments as text."""

from __future__ import annotations

import inspect

from torch import nn


def constructor_arguments(module: nn.Module, kind: type[nn.Module]) -> str:
    """The arguments that a module was constructed with, as in a call, without those equal to their defaults.

    Args:
        module: has an attribute for each argument; an argument without one counts as the default.
        kind: the class whose arguments they are. A subclass may take others.
    """
    shown = []
    for argument in inspect.signature(kind).parameters.values():
        value = getattr(module, argument.name, argument.default)
        if argument.default is argument.empty:
            shown.append(repr(value))
        elif value != argument.default:
            shown.append(f"{argument.name}={value!r}")
    return ", ".join(shown)
