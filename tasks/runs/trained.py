"""Load trained models, and the results of their runs."""

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
    metadata_key: str | None = None,
    **options: Any,
) -> tuple[AnyModel, AnyConfig]:
    """Load a trained model, in evaluation mode, and its training configuration.

    Args:
        path: a best.safetensors, a directory, or a name on the Hugging Face Hub.
        config_class: the task's configuration class.
        build: builds a model from its configuration and, if `metadata_key` is given, from that metadata.
        metadata_key: a key of `Experiment.metadata`.
        options: fields of the configuration to replace; None keeps the training value.
    Raises:
        UserError: the file does not exist or is no checkpoint of this task, or an option is out of range.
    """
    path = find_checkpoint(path)
    metadata = read_metadata(path)
    if metadata_key is not None and metadata_key not in metadata:
        raise UserError(f"{path}: not a checkpoint of this task (it lacks {metadata_key})")
    extra = () if metadata_key is None else (metadata.pop(metadata_key),)
    config = read_config(config_class, metadata, path)
    given = {name: value for name, value in options.items() if value is not None}
    config = dataclasses.replace(config, **given)
    config.check()
    model = build(config, *extra)
    load_weights(path, model)
    model.eval()
    return model, config


def read_config(config_class: type[AnyConfig], values: Any, path: Path) -> AnyConfig:
    """Convert and check the configuration of a run.

    Args:
        config_class: the task's configuration class.
        values: the content of a config.json, or the metadata of a best.safetensors.
        path: the file, for error messages.
    Raises:
        UserError: not a configuration of this task; the message names the file and the option.
    """
    config = config_from_dict(config_class, values, path)
    try:
        config.check()
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return config


def saved_results_text(
    results: dict[str, Any] | None, results_text: Callable[[dict[str, Any]], str]
) -> str | None:
    """Format the results of a finished run; None if there are none or they are damaged.

    Args:
        results: the content of results.json.
        results_text: formats results.
    """
    try:
        return None if results is None else results_text(results)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None
