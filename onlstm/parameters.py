"""The parameters of an ON-LSTM and the checks of its arguments, for both `ONLSTM` and `ONLSTMCell`."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ordered_memory.checks import check_device, check_dtype


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


def set_forget_bias(module: nn.Module, hidden_size: int, value: float) -> None:
    """Set b_ih + b_hh of the forget gate f, rows H to 2H, to `value` in every layer and direction."""
    biases = [(name, p) for name, p in module.named_parameters(recurse=False) if name.startswith("bias")]
    if not biases:
        raise ValueError("expected biases to set, got a module with bias=False")
    for name, parameter in biases:
        nn.init.constant_(parameter[hidden_size : 2 * hidden_size], value if "_ih" in name else 0.0)


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


def check_state(state: tuple[Tensor, Tensor], shape: tuple[int, ...], like: Tensor) -> None:
    """Raise a RuntimeError, as nn.LSTM does, unless both tensors have `shape` and fit the input `like`."""
    for i, tensor in enumerate(state):
        if tuple(tensor.shape) != shape:
            raise RuntimeError(f"Expected hidden[{i}] size {shape}, got {list(tensor.shape)}")
        check_device(f"hx[{i}]", tensor, like, RuntimeError)
        check_dtype(f"hx[{i}]", tensor, like, RuntimeError)
