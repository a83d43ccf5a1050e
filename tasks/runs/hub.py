"""Trained models outside their runs: found on the Hugging Face Hub, and exported with a model card."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from huggingface_hub import snapshot_download

from ordered_memory.hub import CONFIG, WEIGHTS
from tasks.runs.errors import UserError
from tasks.runs.options import flag
from tasks.runs.run_directory import RunDirectory, config_to_dict

_HUB_NAME = re.compile(r"[\w.-]+/(?!.*\.safetensors$)[\w.-]+")
"""What may be the name of a model: a missing file of weights is not looked for on the Hub."""


@dataclass
class ExportConfig:
    """Write a trained model as a directory that `from_pretrained` reads, with a model card."""

    directory: Annotated[Path, tyro.conf.Positional]
    """The directory to write; new or empty."""
    checkpoint: Path | None = None
    """A run's best.safetensors, whose results the card has; by default the model that comes with the project,
    or the language model of the demo."""

    def check(self) -> None:
        """Raise a UserError if there is something in the directory already."""
        if self.directory.exists() and not (self.directory.is_dir() and not any(self.directory.iterdir())):
            raise UserError(f"{self.directory}: must be a new directory or an empty one")


def find_checkpoint(path: str | Path, **download: Any) -> Path:
    """Where a checkpoint is; a model on the Hub is downloaded.

    Args:
        path: a file, a directory, or, where there is neither, a name on the Hugging Face Hub: "owner/name".
        download: options of `huggingface_hub.snapshot_download`.
    Returns:
        A file or directory, which need not exist if it cannot be a name.
    Raises:
        UserError: the Hub has no such model or is out of reach.
    """
    name = os.fspath(path)
    if os.path.exists(name) or not _HUB_NAME.fullmatch(name):
        return Path(name)
    try:
        return Path(snapshot_download(name, allow_patterns=[CONFIG, WEIGHTS], **download))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{name}: no such file or directory, and the Hugging Face Hub does not give it ({reason})"
        ) from None


def card_values(program: str, config: Any, preset: Any, results: str | None) -> dict[str, str | None]:
    """What the model card says of a run.

    Args:
        program: of the task: "python -m tasks.listops".
        config: of the run.
        preset: the configuration that its preset stands for.
        results: as text; None if there are none.
    """
    return {"results": results, "command": f"{program} train {_options(config, preset)}"}


def _options(config: Any, preset: Any) -> str:
    """The options of a run: preset, seed and those that differ from the preset."""
    values, defaults = config_to_dict(config), config_to_dict(preset)
    always = ("preset", "seed")
    differing = [name for name in values if values[name] != defaults[name]]
    words = []
    for name in dict.fromkeys((*always, *differing)):
        value = values[name]
        if name in ("run_dir", "resume"):
            continue
        if isinstance(value, bool):
            words.append(flag(name) if value else flag(f"no_{name}"))
        else:
            words += [flag(name), *map(str, value if isinstance(value, list | tuple) else (value,))]
    return shlex.join(words)


def results_of(checkpoint: Path) -> dict[str, Any] | None:
    """The results of the run that a checkpoint is the best of; None if it is not one, or not finished.

    Args:
        checkpoint: a file.
    """
    run = RunDirectory(checkpoint.parent)
    return run.read_results() if checkpoint == run.best else None
