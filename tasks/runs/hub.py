"""Sharing trained models: find checkpoints on the Hugging Face Hub, and export models with a model card."""

from __future__ import annotations

import inspect
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from huggingface_hub import snapshot_download

from ordered_memory.hub import CONFIG, WEIGHTS
from tasks.runs.errors import UserError
from tasks.runs.options import option_words
from tasks.runs.run_directory import RunDirectory
from tasks.runs.saved_config import config_to_dict

_HUB_NAME = re.compile(r"[\w.-]+/(?!.*\.safetensors$)[\w.-]+")
"""A model name on the Hub, "owner/name". A missing .safetensors file is not looked for on the Hub."""
_DOWNLOAD_OPTIONS = inspect.signature(snapshot_download).parameters.keys() - {"repo_id", "allow_patterns"}


@dataclass
class ExportConfig:
    """Write a trained model and its model card to a directory that `from_pretrained` reads."""

    directory: Annotated[Path, tyro.conf.Positional]
    """The directory to write; must be new or empty."""
    checkpoint: Path | None = None
    """A run's best.safetensors; its results go into the model card. The default is the model that comes with
    the project or, for the language model, the run of the demo preset."""

    def check(self) -> None:
        """Raise a UserError unless the directory is new or empty."""
        if self.directory.exists() and not (self.directory.is_dir() and not any(self.directory.iterdir())):
            raise UserError(f"{self.directory}: must be a new directory or an empty one")


def find_checkpoint(path: str | Path, **download: Any) -> Path:
    """Find a checkpoint; download it if it is on the Hugging Face Hub.

    Args:
        path: a file, a directory, or else the name of a model on the Hub: "owner/name".
        download: options of `huggingface_hub.snapshot_download`.
    Returns:
        A file or directory. It may not exist, if `path` cannot be a name on the Hub.
    Raises:
        UserError: the Hub has no such model or cannot be reached.
        TypeError: `snapshot_download` has no such option, even if the path needs no download.
    """
    for option in download:
        if option not in _DOWNLOAD_OPTIONS:
            raise TypeError(f"from_pretrained has no option {option}, nor has snapshot_download")
    name = os.fspath(path)
    if os.path.exists(name) or not _HUB_NAME.fullmatch(name):
        return Path(name)
    try:
        return Path(snapshot_download(name, allow_patterns=[CONFIG, WEIGHTS], **download))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{name}: no such file or directory, and not available on the Hugging Face Hub ({reason})"
        ) from None


def model_card_values(
    task: str | None,
    checkpoint: Path,
    config: Any,
    presets: Callable[[str | None], Mapping[str, Any]],
    results_text: Callable[[dict[str, Any]], str],
) -> dict[str, str | None]:
    """The template values of a model card: results of the run, and the command that trains the model.

    Args:
        task: `listops` for `python -m tasks.listops`; None if no such command trains the model.
        checkpoint: the model; only a run's best.safetensors has results.
        config: its training configuration.
        presets: returns the presets of the task by name, given the value of `--model`.
        results_text: formats results.
    """
    run = RunDirectory(checkpoint.parent)
    results = run.results_text(results_text) if checkpoint == run.best else None
    command = None if task is None else f"python -m tasks.{task} train {_options(config, presets)}"
    return {"results": results, "command": command}


def _options(config: Any, presets: Callable[[str | None], Mapping[str, Any]]) -> str:
    """The command-line options of a run: preset, seed and all that differ from the preset.

    A task with a single preset needs no option for it.
    """
    presets_of_model = presets(config.model)
    preset = getattr(config, "preset", None) or next(iter(presets_of_model))
    values, defaults = config_to_dict(config), config_to_dict(presets_of_model[preset])
    # A preset for one model names it, but without --model the command would have those for another.
    defaults["model"] = next(iter(presets(None).values())).model
    always = [name for name in ("preset", "seed") if name in values]
    differing = [name for name in values if values[name] != defaults[name]]
    words = []
    for name in dict.fromkeys((*always, *differing)):
        if name not in ("run_dir", "resume"):
            words += option_words(name, values[name])
    return shlex.join(words)
