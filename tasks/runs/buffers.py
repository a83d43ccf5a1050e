"""Buffers of a model that is resumed: constant ones, such as frozen word vectors, must be the same again.

Others, such as the running means of batch normalization, are part of what is trained.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from tasks.runs.errors import UserError


def buffer_digests(model: nn.Module) -> dict[str, str]:
    """Compute SHA-256 digests of the buffers with which a run begins.

    Args:
        model: on any device.
    Returns:
        Digests of values, shape and dtype, by the names of the buffers.
    """
    return {name: _digest(buffer) for name, buffer in model.named_buffers()}


def check_buffers(
    run: Path, model: nn.Module, saved: Mapping[str, Tensor], initial: Mapping[str, str]
) -> None:
    """Check that the constant buffers of a model are those of the run that is resumed.

    Args:
        run: the run directory, for the error message.
        model: as it was built to resume the run.
        saved: the state dict in the checkpoint, of the same shapes.
        initial: the `buffer_digests` with which the run began. A buffer is constant if it was saved as the
            run began with it. Checkpoints of 0.5.0 have no digests: then all buffers count as constant.
    Raises:
        UserError: a constant buffer differs; the message names it.
    """
    for name, buffer in model.named_buffers():
        is_constant = name in saved and initial.get(name) in (None, _digest(saved[name]))
        if is_constant and not _nearly_equal(buffer.cpu(), saved[name].to(buffer.dtype).cpu()):
            raise UserError(
                f"{run}: this run was started with another {name}: a file such as that of the "
                "word vectors has changed, or the option that names it; use another --run-dir"
            )


def _digest(tensor: Tensor) -> str:
    return hashlib.sha256(save({"": tensor.detach().cpu().contiguous()})).hexdigest()


def _nearly_equal(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors of one shape and dtype are equal up to rounding."""
    if first.dtype.is_floating_point:
        return torch.allclose(first, second, equal_nan=True)
    return torch.equal(first, second)
