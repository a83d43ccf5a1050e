"""The parameters of an ON-LSTM and the checks of its arguments, for the layer and the cell alike."""

from __future__ import annotations

import math
import numbers

import torch
from torch import Tensor, nn


def gate_parameters(
    features: int,
    hidden_size: int,
    chunk_size: int,
    bias: bool,
    device: torch.device | str | None,
    dtype: torch.dtype | None,
) -> list[tuple[str, Tensor]]:
    """Names and empty tensors of one layer in one direction."""
    rows = 4 * hidden_size + 2 * (hidden_size // chunk_size)
    shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, features), "weight_hh": (rows, hidden_size)}
    if bias:
        shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
    return [(name, torch.empty(shape, device=device, dtype=dtype)) for name, shape in shapes.items()]


def reset(module: nn.Module, hidden_size: int) -> None:
    """Draw all parameters uniformly from ± 1 / √H, as nn.LSTM does."""
    bound = 1 / math.sqrt(hidden_size)
    for parameter in module.parameters():
        nn.init.uniform_(parameter, -bound, bound)


def check_sizes(
    input_size: int, hidden_size: int, num_layers: int, bias: bool, batch_first: bool, chunk_size: int
) -> None:
    """Raise what nn.LSTM raises for arguments like these, naming the argument."""
    for name, flag in (("bias", bias), ("batch_first", batch_first)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name} should be of type bool, got: {type(flag).__name__}")
    sizes = {
        "input_size": input_size,
        "hidden_size": hidden_size,
        "num_layers": num_layers,
        "chunk_size": chunk_size,
    }
    for name, size in sizes.items():
        if not isinstance(size, int):
            raise TypeError(f"{name} should be of type int, got: {type(size).__name__}")
        if size <= 0:
            raise ValueError(f"{name} must be greater than zero, got {size}")
    if hidden_size % chunk_size:
        raise ValueError(f"hidden_size={hidden_size} must be divisible by chunk_size={chunk_size}")


def check_probability(name: str, value: float) -> None:
    """Raise a ValueError unless `value` is a number in [0, 1]."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError(f"{name} should be a number in range [0, 1], got {value!r}")
