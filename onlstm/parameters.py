"""Parameters, state and argument checks of both `ONLSTM` and `ONLSTMCell`."""

from __future__ import annotations

import math
import numbers
import re
import warnings
from typing import NoReturn

import torch
from torch import Tensor, nn

from ordered_memory.checks import as_int, check_device, check_dtype, check_flags, check_state_tensors

State = tuple[Tensor, Tensor]
"""Hidden state and cell state, (h, c)."""


class OrderedNeurons(nn.Module):
    """Base class of `ONLSTM` and `ONLSTMCell`: what both do with their parameters."""

    input_size: int
    hidden_size: int
    bias: bool
    chunk_size: int

    def reset_parameters(self) -> None:
        """Initialize all parameters again, uniformly in [-1 / √H, 1 / √H], as nn.LSTM does."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def set_forget_bias(self, value: float) -> None:
        """Set the bias of the forget gate f, b_ih + b_hh, to `value` in every layer and direction.

        Its rows are H to 2H, as in nn.LSTM, but these are not the second quarter of all rows: the common
        idiom `bias[n // 4 : n // 2] = 1` sets other rows. The master forget gate needs no such bias: adding a
        constant to its logits changes nothing.

        Args:
            value: the sum of both biases; 1 is the common choice for LSTMs.
        Raises:
            ValueError: `value` is not a finite number, there are no biases, or one is parametrized or pruned.
        Example:
            >>> from onlstm import ONLSTM
            >>> lstm = ONLSTM(10, 20, chunk_size=5)
            >>> lstm.set_forget_bias(1.0)
            >>> (lstm.bias_ih_l0 + lstm.bias_hh_l0)[20:40].unique()
            tensor([1.], grad_fn=<Unique2Backward0>)
        """
        if not isinstance(value, numbers.Real) or not math.isfinite(value):
            raise ValueError(f"value must be a finite number, got {value!r}")
        parametrized = [name for name in getattr(self, "parametrizations", {}) if name.startswith("bias")]
        if parametrized:
            raise ValueError(
                f"{parametrized[0]} is parametrized: set the parameters that it is computed from"
            )
        biases = [(name, p) for name, p in self.named_parameters(recurse=False) if name.startswith("bias")]
        if not biases:
            raise ValueError("expected biases to set, got a module with bias=False")
        for name, _ in biases:
            if not re.fullmatch(r"bias_(ih|hh)(_l\d+(_reverse)?)?", name):
                raise ValueError(f"{name} is what a bias is computed from, as by pruning: set it yourself")
        rows = slice(self.hidden_size, 2 * self.hidden_size)
        for name, parameter in biases:
            nn.init.constant_(parameter[rows], value if "_ih" in name else 0.0)

    def __prepare_scriptable__(self) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__} cannot be compiled by torch.jit.script; use torch.compile"
        )

    def _add_parameters(
        self, features: int, suffix: str, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        """Register the parameters of one layer and direction, uninitialized.

        With M = H / C they are weight_ih (4H + 2M, features), weight_hh (4H + 2M, H) and, if the module has
        biases, bias_ih and bias_hh (4H + 2M,), each name followed by `suffix`.
        """
        rows = 4 * self.hidden_size + 2 * (self.hidden_size // self.chunk_size)
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (rows, features),
            "weight_hh": (rows, self.hidden_size),
        }
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        for name, shape in shapes.items():
            parameter = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
            self.register_parameter(f"{name}{suffix}", parameter)

    def _check_tokens(self, tokens: Tensor, weight: Tensor, dtype_error: type[Exception]) -> None:
        """Check the features, device and dtype of the input. The types of exceptions are those of PyTorch."""
        if tokens.shape[-1] != self.input_size:
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. "
                f"Expected {self.input_size}, got {tokens.shape[-1]}"
            )
        check_device("input", tokens, weight, RuntimeError)
        check_dtype("input", tokens, weight, dtype_error)


def check_sizes(
    input_size: int, hidden_size: int, num_layers: int, chunk_size: int, **flags: bool
) -> tuple[int, int, int, int]:
    """Check the arguments of a constructor. The types of exceptions are those of nn.LSTM.

    Args:
        input_size, hidden_size, num_layers: positive integers.
        chunk_size: must divide `hidden_size`. If they are equal, there is a warning.
        **flags: by name.
    Returns:
        The sizes as ints.
    Raises:
        TypeError: a flag is not a bool, or a size is not an int.
        ValueError: a size is not positive, or `chunk_size` does not divide `hidden_size`.
    """
    check_flags(**flags)
    sizes = {
        "input_size": as_int(input_size),
        "hidden_size": as_int(hidden_size),
        "num_layers": as_int(num_layers),
        "chunk_size": as_int(chunk_size),
    }
    for name, size in sizes.items():
        if not isinstance(size, int):
            raise TypeError(f"{name} should be of type int, got: {type(size).__name__}")
        if size <= 0:
            raise ValueError(f"{name} must be greater than zero, got {size}")
    hidden_size, chunk_size = sizes["hidden_size"], sizes["chunk_size"]
    if hidden_size % chunk_size:
        raise ValueError(f"hidden_size={hidden_size} must be divisible by chunk_size={chunk_size}")
    if hidden_size == chunk_size:
        warnings.warn(
            f"with hidden_size=chunk_size={chunk_size} there is one chunk, and the last is never written: "
            "the output is zero unless an initial cell state is given",
            stacklevel=3,
        )
    return sizes["input_size"], hidden_size, sizes["num_layers"], chunk_size


def check_pair(hx: object, *, name: str = "hx", or_lengths: bool = False) -> None:
    """Check that the caller's initial state is a pair or None.

    Args:
        hx: (h, c), or None.
        name: name of the argument, for the error message.
        or_lengths: whether the caller may have meant lengths, for the error message.
    Raises:
        TypeError: `hx` is anything else.
    """
    check_state_tensors(name, hx, 2, "a pair of tensors (h, c)", or_lengths=or_lengths)


def check_state_axes(hx: State | None, axes: int, batched: bool) -> None:
    """Check that the caller's initial state has a batch axis if the input has one.

    Args:
        hx: (h, c), or None.
        axes: number of axes of the input. The state of a layer or a cell must have the same number.
        batched: whether one of them is the batch axis.
    Raises:
        RuntimeError: a tensor has the wrong number of axes. nn.LSTM raises this type, too.
    """
    if hx is not None and (hx[0].dim() != axes or hx[1].dim() != axes):
        raise RuntimeError(
            f"For {'batched' if batched else 'unbatched'} {axes}-D input, hx and cx should also be "
            f"{axes}-D but got ({hx[0].dim()}-D, {hx[1].dim()}-D) tensors"
        )


def check_state(state: tuple[Tensor, Tensor], shape: tuple[int, ...], like: Tensor) -> None:
    """Check the shape, dtype and device of the caller's initial state.

    Args:
        state: (h, c).
        shape: expected shape of both.
        like: the input, whose dtype and device are expected.
    Raises:
        RuntimeError: a tensor has the wrong shape, dtype or device. nn.LSTM raises this type, too.
    """
    for i, tensor in enumerate(state):
        if tuple(tensor.shape) != shape:
            raise RuntimeError(f"Expected hidden[{i}] size {shape}, got {list(tensor.shape)}")
        check_device(f"hx[{i}]", tensor, like, RuntimeError)
        check_dtype(f"hx[{i}]", tensor, like, RuntimeError)
