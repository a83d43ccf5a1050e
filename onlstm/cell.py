"""`ONLSTMCell`: a drop-in replacement for `nn.LSTMCell` with ordered neurons.

Axes: B batch, H hidden units, C chunk size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from onlstm.distances import Distances
from onlstm.functional import step
from onlstm.parameters import OrderedNeurons, State, check_pair, check_sizes, check_state, check_state_axes
from ordered_memory.checks import check_fixed
from ordered_memory.representation import constructor_arguments


class ONLSTMCell(OrderedNeurons):
    """An ON-LSTM cell, for one time step: a drop-in replacement for `nn.LSTMCell`.

    ON-LSTM, equations (1)–(5) and (9)–(14); see `onlstm.functional.step`. The last C units are never
    written, as in `ONLSTM`. All arguments but `device` and `dtype` are also attributes; they cannot be
    changed (TypeError).

    Args:
        input_size: number of features of a token.
        hidden_size: H, number of units.
        bias: whether to use the biases b_ih and b_hh.
        device: device of the parameters.
        dtype: dtype of the parameters.
        chunk_size: C, number of units per entry of a master gate; must divide H.
    Raises:
        TypeError: a size is not an int, or `bias` is not a bool.
        ValueError: an argument is out of range, or `chunk_size` does not divide `hidden_size`.
    Example:
        >>> hidden, cell = ONLSTMCell(10, 20, chunk_size=4)(torch.randn(3, 10))
        >>> hidden.shape
        torch.Size([3, 20])
    """

    weight_ih: Tensor
    weight_hh: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        chunk_size: int = 1,
    ) -> None:
        super().__init__()
        input_size, hidden_size, _, chunk_size = check_sizes(
            input_size, hidden_size, 1, chunk_size, bias=bias
        )
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        self.chunk_size = chunk_size
        self._add_parameters(input_size, "", device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor, hx: State | None = None, *, distances: bool = False) -> tuple[Any, ...]:
        """Read one token of each sequence.

        Args:
            input: (B, input_size), or (input_size,) without a batch axis.
            hx: state (h, c), (B, H) each, or (H,) without a batch axis; None for zeros.
            distances: also return the distances of the token.
        Returns:
            The next state (h, c), of the same shapes; with `distances` a `Distances` as a third entry, (B,)
            each, or () without a batch axis. `from_distances` takes those of all tokens, stacked to (T, B).
        Raises:
            TypeError: `input` is not a tensor, or `hx` is not a pair.
            ValueError: `input` does not have one or two axes.
            RuntimeError: `input` has the wrong number of features, or a dtype or device other than the
                parameters', or `hx` has the wrong shape, dtype or device. These exception types are those of
                nn.LSTMCell.
        """
        if not isinstance(input, Tensor):
            raise TypeError(f"input must be a Tensor, got {type(input).__name__}")
        check_pair(hx)
        if input.dim() not in (1, 2):
            raise ValueError(f"ONLSTMCell: Expected input to be 1D or 2D, got {input.dim()}D instead")
        check_state_axes(hx, input.dim(), input.dim() == 2)
        weight = self.weight_ih
        self._check_tokens(input, weight, RuntimeError)
        expected = (*input.shape[:-1], self.hidden_size)
        if hx is None:
            hx = (input.new_zeros(expected), input.new_zeros(expected))
        check_state(hx, expected, input)
        dtype = weight.dtype  # of everything but matrix products, also under autocast
        preactivations = F.linear(input, weight, getattr(self, "bias_ih", None)).to(dtype)
        preactivations = preactivations + F.linear(hx[0], self.weight_hh, getattr(self, "bias_hh", None))
        hidden, cell, master_gates = step(preactivations, hx[1].to(dtype), self.chunk_size)
        state = (hidden.to(hx[0].dtype), cell.to(hx[1].dtype))
        return (*state, Distances(*master_gates.distances())) if distances else state

    if TYPE_CHECKING:  # the call of nn.Module takes and returns Any
        __call__ = forward

    def __setattr__(self, name: str, value: Any) -> None:
        check_fixed(self, name, value, ("input_size", "hidden_size", "bias", "chunk_size"))
        super().__setattr__(name, value)

    def extra_repr(self) -> str:
        return constructor_arguments(self, ONLSTMCell)
