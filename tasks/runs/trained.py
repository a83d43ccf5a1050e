"""Trained models and the results of their runs, read back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from tasks.runs.checkpoints import load_weights, read_metadata
from tasks.runs.config import TrainingConfig
from tasks.runs.errors import UserError
from tasks.runs.hub import find_checkpoint
from tasks.runs.run_directory import config_from_dict

AnyConfig = TypeVar("AnyConfig", bound=TrainingConfig)
AnyModel = TypeVar("AnyModel", bound=nn.Module)


def load_trained(
    path: Path,
    config_class: type[AnyConfig],
    build: Callable[..., AnyModel],
    *,
    beside: str | None = None,
    **options: Any,
) -> tuple[AnyModel, AnyConfig]:
    """The model in a checkpoint, in evaluation mode, and the configuration of its training.

    Args:
        path: a best.safetensors, a directory, or a name on the Hugging Face Hub.
        config_class: the task's configuration class.
        build: builds a model from its configuration and, if `beside` is given, that part of the metadata.
        beside: a key of `Prepared.metadata`.
        options: fields of the configuration to replace; None keeps the value of training.
    Raises:
        UserError: no such file, not a checkpoint of this task, or an option out of range.
    """
    path = find_checkpoint(path)
    metadata = read_metadata(path)
    if beside is not None and beside not in metadata:
        raise UserError(f"{path}: not a checkpoint of this task (it lacks {beside})")
    description = () if beside is None else (metadata.pop(beside),)
    config = read_config(config_class, metadata, path)
    given = {name: value for name, value in options.items() if value is not None}
    config = dataclasses.replace(config, **given)
    config.check()
    model = build(config, *description)
    load_weights(path, model)
    model.eval()
    return model, config


def read_config(config_class: type[AnyConfig], values: Any, path: Path) -> AnyConfig:
    """The configuration of a run, checked.

    Args:
        config_class: the task's configuration class.
        values: the content of a config.json, or the metadata of a best.safetensors.
        path: the file, for errors.
    Raises:
        UserError: not the configuration of such a run; names the file and the option.
    """
    config = config_from_dict(config_class, values, path)
    try:
        config.check()
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return config


def text_of_saved(
    results: dict[str, Any] | None, results_text: Callable[[dict[str, Any]], str]
) -> str | None:
    """The results of a finished run as text; None if there are none, or not such ones.

    Args:
        results: of results.json.
        results_text: formats results.
    """
    try:
        return None if results is None else results_text(results)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None
