"""Encoders that are not part of the project: `--model my_encoders:GRU`."""

from __future__ import annotations

import importlib
import re

from torch import nn

from tasks.runs.errors import UserError


def own_encoder(model: str) -> type[nn.Module] | None:
    """Import the class of an encoder.

    Args:
        model: value of `--model`, `module:Class`. Its constructor takes the configuration and the embedding
            size E. See "An encoder of your own" in the documentation.
    Returns:
        The class; None if `model` does not have this form.
    Raises:
        UserError: the module cannot be found, or it has no such subclass of nn.Module.
    """
    if not re.fullmatch(r"\w[\w.]*:\w+", model):
        return None
    module_name, _, class_name = model.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), class_name, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # a module that this one imports
        raise UserError(f"--model {model}: Python finds no module {error.name}") from None
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise UserError(f"--model {model}: {module_name} has no class {class_name} that is a torch.nn.Module")
    return found
