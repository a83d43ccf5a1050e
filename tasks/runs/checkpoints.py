"""Checkpoints without pickle: a safetensors file with the tensors, and all else as JSON in its header.

A single file can be replaced atomically. An exported model is a directory with model.safetensors and
config.json, as on the Hugging Face Hub. Functions that load weights accept both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ordered_memory.hub import CONFIG, WEIGHTS
from tasks.runs.errors import UserError
from tasks.runs.files import read_json, write_atomically, write_json


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, Any]) -> None:
    """Write tensors by name, with `metadata` as JSON in the header.

    Args:
        path: the safetensors file.
        tensors: tensors on any device.
        metadata: JSON values.
    """
    write_atomically(path, save(_copies(tensors), {"json": json.dumps(metadata)}))


def write_directory(directory: Path, tensors: Mapping[str, Tensor], metadata: dict[str, Any]) -> None:
    """Write tensors as model.safetensors, and `metadata` as config.json.

    Args:
        directory: must exist.
        tensors: tensors by name, on any device.
        metadata: JSON values.
    """
    write_atomically(directory / WEIGHTS, save(_copies(tensors), {"format": "pt"}))
    write_json(directory / CONFIG, metadata)


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: _copy(tensor) for name, tensor in tensors.items()}


def _copy(tensor: Tensor) -> Tensor:
    """A copy on the CPU: safetensors refuses tensors that share memory, such as weights of two layers."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def read_metadata(path: Path) -> dict[str, Any]:
    """Read the metadata of a checkpoint: the JSON in the header of a file, or the config.json of a directory.

    Args:
        path: a run's best.safetensors, or an exported directory.
    Returns:
        The `metadata` that `save_tensors` or `write_directory` was given.
    Raises:
        UserError: the file does not exist or is not a checkpoint of weights.
    """
    metadata = read_checkpoint(path)[1]
    if not isinstance(metadata, dict):
        raise UserError(f"{path}: not a checkpoint of this project (its header is not a JSON object)")
    if metadata.keys() == {"dict"}:
        raise UserError(
            f"{path}: holds the training state of a run; its trained weights are in best.safetensors"
        )
    return metadata


def load_weights(path: Path, model: nn.Module, defaults: Mapping[str, Tensor] | None = None) -> None:
    """Load the weights that `save_tensors` or `write_directory` wrote into a model.

    Args:
        path: a run's best.safetensors, or an exported directory.
        model: its parameters are overwritten; their names and shapes must be those of the file.
        defaults: values, by name, of parameters that the file may lack.
    Raises:
        UserError: the file does not exist or is not a checkpoint, a parameter is missing or has another
            shape, or a value is not finite.
    """
    tensors = {**(defaults or {}), **read_checkpoint(path)[0]}
    check_weights(path, tensors, model)
    model.load_state_dict(tensors)


def check_weights(path: Path, tensors: dict[str, Tensor], model: nn.Module) -> None:
    """Raise a UserError unless the weights of a checkpoint are finite and fit the model.

    A value may be infinite where it is in the model itself, as in the mask of an attention.

    Args:
        path: the checkpoint, for error messages.
        tensors: its weights by name.
        model: the model to load them into.
    """
    own = model.state_dict()
    expected, actual = (
        {name: tuple(tensor.shape) for name, tensor in state.items()} for state in (own, tensors)
    )
    for name in sorted(expected.keys() | actual.keys()):
        if expected.get(name) != actual.get(name):
            raise UserError(
                f"{path}: the checkpoint does not fit the model: {name} is {actual.get(name, 'missing')} in "
                f"the file, {expected.get(name, 'missing')} in the model"
            )
        if not (tensors[name].isfinite() | own[name].isinf().to(tensors[name].device)).all():
            raise UserError(f"{path}: {name} has values that are not finite")


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], Any]:
    """Read a checkpoint.

    Args:
        path: a safetensors file, or a directory with model.safetensors and config.json.
    Returns:
        The tensors by name, on the CPU, and the JSON value.
    Raises:
        UserError: the checkpoint does not exist or cannot be read.
    """
    is_directory = os.path.isdir(path)
    try:
        with safe_open(path / WEIGHTS if is_directory else path, framework="pt") as file:
            # Copied, because the rounding of a matrix product may depend on the alignment of its operands.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a dict
            header = file.metadata() or {}
        return tensors, read_json(path / CONFIG) if is_directory else json.loads(header["json"])
    except FileNotFoundError:
        if is_directory:
            raise UserError(
                f"{path}: this directory has no {WEIGHTS}; for a run directory, name its best.safetensors"
            ) from None
        if path.exists():  # safetensors reports both cases as a missing file
            raise UserError(f"{path}: no permission to read") from None
        raise UserError(f"{path}: no such checkpoint{_how_to_make(path)}") from None
    except PermissionError:
        raise UserError(f"{path}: no permission to read") from None
    except (SafetensorError, OSError, KeyError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a checkpoint of this project ({error})") from None


def _how_to_make(path: Path) -> str:
    """The command that creates a missing checkpoint, if its path is that of a preset without options."""
    match path.parts:
        case (*_, "runs", "listops" | "logic" | "sst" | "language_model" as task, run, _):
            presets = import_module(f"tasks.{task}.__main__").SUBCOMMANDS["train"].presets(None)
            for name, config in presets.items():
                if config.directory.name == run:
                    options = f"--preset {name} --run-dir {path.parent} --resume"
                    return f"; python -m tasks.{task} train {options} creates it"
    return ""


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write the training state of a run: a nested dictionary in one file, atomically.

    Args:
        path: the safetensors file.
        state: dictionaries, lists, tensors and JSON values.
    """
    tensors: dict[str, Tensor] = {}
    skeleton = _take_out_tensors(state, "", tensors)
    write_atomically(path, save(tensors, {"json": json.dumps(skeleton)}))


def read_state(path: Path) -> dict[str, Any]:
    """Read what `save_state` wrote.

    Args:
        path: the file.
    Returns:
        The dictionary, with tensors on the CPU; its tuples have become lists.
    Raises:
        UserError: the file does not exist or is not the training state of a run.
    """
    tensors, skeleton = read_checkpoint(path)
    if not isinstance(skeleton, dict) or skeleton.keys() != {"dict"}:
        raise UserError(f"{path}: not the training state of a run, which --resume needs")
    try:
        state: dict[str, Any] = _put_back_tensors(skeleton, tensors)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a checkpoint of this project ({error})") from None
    return state


def _take_out_tensors(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Convert `value` to JSON values; its tensors are moved to `tensors`, named by their path in `value`.

    Dictionaries become lists of pairs: the state of an optimizer has integer keys, which JSON does not allow.
    """
    if isinstance(value, Tensor):
        tensors[name] = _copy(value)
        return {"tensor": name}
    if isinstance(value, dict):
        pairs = [[key, _take_out_tensors(item, f"{name}/{key}", tensors)] for key, item in value.items()]
        return {"dict": pairs}
    if isinstance(value, list | tuple):
        return [_take_out_tensors(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]
    return value


def _put_back_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if "tensor" in value:
            return tensors[value["tensor"]]
        return {key: _put_back_tensors(item, tensors) for key, item in value["dict"]}
    if isinstance(value, list):
        return [_put_back_tensors(item, tensors) for item in value]
    return value


def rng_state(device: torch.device) -> Tensor:
    """Get the states of the random number generators: that of the CPU and, on a GPU, that of the GPU.

    A run on a GPU uses both: the backends draw the seed of their dropout on the CPU.

    Args:
        device: CPU or CUDA.
    Returns:
        The states one after the other, (n,) uint8; n differs between CPU and CUDA.
    """
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return torch.cat(states)


def set_rng_state(device: torch.device, state: Tensor) -> None:
    """Set the states of the random number generators.

    Args:
        device: CPU or CUDA.
        state: what `rng_state` returned for a device of the same type, (n,) uint8.
    """
    # Cloned, because PyTorch reads a view from the start of its storage.
    cpu_state, cuda_state = (part.clone() for part in state.cpu().tensor_split([len(torch.get_rng_state())]))
    torch.set_rng_state(cpu_state)
    if device.type == "cuda":
        torch.cuda.set_rng_state(cuda_state, device)
