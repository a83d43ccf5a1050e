"""The device that a program runs on, and the git commit of its code."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import torch

from ordered_memory.devices import copy_to

Batch = TypeVar("Batch")


def device_name(device: str | torch.device) -> str:
    """The model name of a GPU, or of the processor.

    Virtual machines give processors of several generations one name, such as "AMD EPYC". On x86 under Linux
    the family and model follow the name, because they tell which generation it is.

    Args:
        device: a PyTorch device.
    """
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    with contextlib.suppress(OSError):
        first_core = Path("/proc/cpuinfo").read_text(encoding="utf-8").strip().split("\n\n")[0]
        pairs = (line.partition(":") for line in first_core.splitlines())
        facts = {name.strip(): value.strip() for name, _, value in pairs}
        if facts.keys() >= {"model name", "cpu family", "model"}:
            return f"{facts['model name']} (family {facts['cpu family']}, model {facts['model']})"
        if "model name" in facts:
            return facts["model name"]
    return platform.processor() or platform.machine()


def default_device() -> Literal["cpu", "cuda"]:
    """The device that trained models run on: a GPU if there is one.

    Apple GPUs are left out: they have no float64.
    """
    return "cuda" if torch.cuda.is_available() else "cpu"


def synchronize(device: str | torch.device) -> None:
    """Wait until a GPU has done what it was asked to do, before a clock is read.

    Args:
        device: a PyTorch device; nothing happens on a CPU.
    """
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


@contextlib.contextmanager
def deterministic_operations(device: str | torch.device) -> Iterator[None]:
    """A context in which PyTorch's operations on a GPU give the same results in every run, if they can.

    Otherwise the gradient of an `nn.Embedding` with few words, for instance, is summed in any order there.

    Args:
        device: a PyTorch device; on a CPU nothing changes.
    """
    if torch.device(device).type != "cuda" or torch.are_deterministic_algorithms_enabled():
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS warns at every product
    options: Any = torch.utils.deterministic
    fill, options.fill_uninitialized_memory = options.fill_uninitialized_memory, False
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*deterministic")
            yield
    finally:
        torch.use_deterministic_algorithms(False)
        options.fill_uninitialized_memory = fill


def to_device(batch: Batch, device: str | torch.device) -> Batch:
    """Move the tensors of a batch to a device.

    The lengths of sequences stay on the CPU: layers read them on the host, as packing does, and a copy from
    the device would wait for all that the device still has to do.

    Args:
        batch: tensors in tuples, lists or dictionaries; other values stay as they are, and so does what is
            called `lengths` in a named tuple.
        device: a PyTorch device.
    """
    moved: Any = batch
    if isinstance(batch, torch.Tensor):
        moved = copy_to(batch, device)
    elif isinstance(batch, tuple) and hasattr(batch, "_fields"):
        items = zip(batch._fields, batch, strict=True)
        moved = type(batch)(*(item if name == "lengths" else to_device(item, device) for name, item in items))
    elif isinstance(batch, list | tuple):
        moved = type(batch)(to_device(item, device) for item in batch)
    elif isinstance(batch, dict):
        moved = {name: to_device(item, device) for name, item in batch.items()}
    return cast(Batch, moved)


@cache
def commit() -> str | None:
    """The commit of the checkout that this file belongs to, with "-dirty" if there are uncommitted changes.

    Returns:
        None without git, or if this package is installed and not a checkout.
    """
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)
        return _git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or None
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    """Run git in the directory of this file and return its output."""
    completed = subprocess.run(
        ["git", *words], cwd=Path(__file__).parent, capture_output=True, check=True, timeout=20
    )
    return completed.stdout.decode(errors="replace").strip()
