"""`ONLSTM`: a drop-in replacement for `nn.LSTM` with ordered neurons.

Axes: B batch, T time, P tokens of a packed batch, H hidden units, C chunk size, M = H / C entries of a master
gate, L layers, D directions.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from onlstm.backends import BACKENDS, select_backend
from onlstm.distances import Distances
from onlstm.functional import RecurrenceOutput, Weights
from onlstm.packing import reorder, reversal_of
from onlstm.parameters import OrderedNeurons, State, check_pair, check_sizes, check_state, check_state_axes
from ordered_memory.checks import (
    check_fixed,
    check_flags,
    check_fraction,
    check_lengths,
    check_name,
    check_sequences,
)
from ordered_memory.modes import CAST_BY_AUTOCAST, autocast_dtype, clone_if_saved
from ordered_memory.packing import batch_size_of, check_packed, pack_indices, unpack
from ordered_memory.representation import constructor_arguments

FIXED = ("input_size", "hidden_size", "num_layers", "bias", "bidirectional", "proj_size", "chunk_size")
"""The attributes of `ONLSTM` that cannot be changed."""


class ONLSTM(OrderedNeurons):
    """A multi-layer ON-LSTM: a drop-in replacement for `nn.LSTM`.

    ON-LSTM, equations (1)–(5) and (9)–(14); see `onlstm.functional.step`. Parameters have the same names and
    initialization as in nn.LSTM. Weights and biases have 4H + 2M rows: i, f, ĉ and o as in nn.LSTM, then the
    logits of the two master gates.

    The bias of the forget gate is rows H to 2H, as in nn.LSTM, but these are not the second quarter of all
    rows: the common idiom `bias[n // 4 : n // 2] = 1` sets other rows. Use `set_forget_bias`.

    All arguments but `device` and `dtype` are also attributes. Setting `batch_first`, `dropout`,
    `weight_dropout` or `backend` takes effect at the next call; the others cannot be changed (TypeError).

    According to the paper's equations, the last C units are never written: their cell state remains c_0, and
    if that is zero, their output is zero, up to rounding. This is a small part of the units if C is much
    smaller than H.

    Args:
        input_size: number of features of a token.
        hidden_size: H, number of units.
        num_layers: L, number of layers.
        bias: whether to use the biases b_ih and b_hh.
        batch_first: input and output are (B, T, ·) instead of (T, B, ·).
        dropout: probability of dropping an output of any layer but the last, in [0, 1].
        bidirectional: also read each sequence from its end to its start.
        proj_size: must be 0: ON-LSTM has no projections. The argument is here for compatibility with nn.LSTM.
        device: device of the parameters.
        dtype: dtype of the parameters.
        chunk_size: C, number of units per entry of a master gate; must divide H. With C = H no unit is ever
            written, and there is a warning.
        weight_dropout: probability p of dropping a recurrent weight (DropConnect), in [0, 1]; the others are
            divided by 1 - p. One mask is drawn per layer, direction and call.
        backend: implementation of the recurrence: "auto" (the fastest that can run here) or a name from
            `onlstm.backends.BACKENDS`. All give the same results. A batch without sequences is always
            computed by "reference".
    Raises:
        TypeError: a size is not an int, or a flag is not a bool.
        ValueError: an argument is out of range, or `chunk_size` does not divide `hidden_size`.
    Example:
        >>> lstm = ONLSTM(10, 20, num_layers=2, chunk_size=5)
        >>> output, (h_n, c_n) = lstm(torch.randn(7, 3, 10))
        >>> output.shape, h_n.shape
        (torch.Size([7, 3, 20]), torch.Size([2, 3, 20]))
        >>> output, state, distances = lstm(torch.randn(7, 3, 10), distances=True)
        >>> distances.forget.shape
        torch.Size([2, 7, 3])
    """

    mode = "LSTM"
    """As in nn.LSTM: generic code for nn.RNN, nn.GRU and nn.LSTM uses it to see that the state is (h, c)."""

    weight_ih_l0: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        chunk_size: int = 1,
        weight_dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        flags = {"bias": bias, "batch_first": batch_first, "bidirectional": bidirectional}
        input_size, hidden_size, num_layers, chunk_size = check_sizes(
            input_size, hidden_size, num_layers, chunk_size, **flags
        )
        if proj_size != 0:
            raise ValueError(f"proj_size must be 0: ON-LSTM has no projections, got {proj_size}")
        check_fraction(dropout=dropout, weight_dropout=weight_dropout)
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                f"dropout={dropout} has no effect with num_layers=1: dropout acts between layers",
                stacklevel=2,
            )
        check_name("backend", backend, ["auto", *BACKENDS])
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.proj_size = 0
        self.chunk_size = chunk_size
        self.weight_dropout = weight_dropout
        self.backend = backend
        for suffix in self._suffixes():
            features = input_size if suffix.startswith("_l0") else hidden_size * (2 if bidirectional else 1)
            self._add_parameters(features, suffix, device, dtype)
        self.reset_parameters()

    def flatten_parameters(self) -> None:
        """Do nothing. nn.LSTM has this method for cuDNN, and code written for nn.LSTM may call it."""

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The parameters of every layer and direction, as nn.LSTM lists them: W_ih, W_hh, b_ih, b_hh."""
        return self._weights()

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: State | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        distances: bool = False,
    ) -> tuple[Any, ...]:
        """Read a batch of sequences.

        Under autocast the output and the state have the autocast dtype, as in nn.LSTM; the recurrence itself
        and the distances keep the dtype of the parameters.

        Args:
            input: (T, B, input_size), or (B, T, input_size) with `batch_first`, or (T, input_size) for one
                sequence without a batch axis, or a PackedSequence. B may be 0, T may not.
            hx: initial state (h_0, c_0), (L · D, B, H) each, or (L · D, H) without a batch axis; None for
                zeros.
            lengths: number of tokens of each sequence, (B,) integers in 1..T, on the CPU as for
                `pack_padded_sequence`; None if nothing is padded. (nn.LSTM has no such argument: its padded
                sequences must be packed.) Values in the padding have no effect, and h_n and c_n are the state
                after each sequence's last token (in the backward direction, after its first). With `hx` a
                length may also be 0: such a sequence, which an earlier call has read to its end, keeps its
                state, and its output and distances are zero (in a graph, not all may be 0). `torch.compile`
                of older versions of PyTorch breaks the graph here, unless
                `torch._dynamo.config.capture_dynamic_output_shape_ops` is True.
            distances: also return the distances of every layer and direction.
        Returns:
            output, (h_n, c_n) as nn.LSTM does, and with `distances` a `Distances` as a third entry. Output
            and distances are zero at padded steps.
        Raises:
            TypeError: `input` is neither a dense tensor nor a PackedSequence, or `hx` is not a pair.
            ValueError: `input` does not have two or three axes, or has the wrong dtype; or `lengths` is not
                one integer in range for each sequence, or is given with a PackedSequence or without a batch
                axis. (Under `torch.compile` lengths out of range raise a RuntimeError.)
            RuntimeError: `input` has the wrong number of features, is on the wrong device or has T = 0, or
                `hx` has the wrong shape, dtype or device. These exception types are those of nn.LSTM. A
                BackendError, which is a RuntimeError: the backend that `backend` names cannot run here.
        """
        check_pair(hx, or_lengths=True)
        if isinstance(input, PackedSequence):
            if lengths is not None:
                raise ValueError("lengths must be None for a PackedSequence, which carries its own")
            results: tuple[Any, ...] = self._forward_packed(input, hx)
        else:
            results = self._forward_padded(check_sequences("input", input), hx, lengths)
        return results if distances else results[:2]

    if TYPE_CHECKING:  # the call of nn.Module takes and returns Any
        __call__ = forward

    def extra_repr(self) -> str:
        return constructor_arguments(self, ONLSTM)

    def __setattr__(self, name: str, value: Any) -> None:
        check_fixed(self, name, value, FIXED)
        if name in ("dropout", "weight_dropout"):
            check_fraction(**{name: value})
            value = float(value)
        elif name == "batch_first":
            check_flags(batch_first=value)
        super().__setattr__(name, value)

    def _suffixes(self) -> list[str]:
        """The suffixes of the parameter names of all layers and directions: "_l0", "_l0_reverse", "_l1", …"""
        directions = ("", "_reverse") if self.bidirectional else ("",)
        return [f"_l{layer}{direction}" for layer in range(self.num_layers) for direction in directions]

    def _weights(self) -> list[list[Tensor]]:
        """`all_weights`. (If a weight is missing, an error in a property names the property instead.)"""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[: 4 if self.bias else 2]
        return [[getattr(self, name + suffix) for name in names] for suffix in self._suffixes()]

    def _forward_packed(
        self, packed: PackedSequence, hx: State | None
    ) -> tuple[PackedSequence, State, Distances]:
        weights = self._weights()
        # By index: compiled by PyTorch 2.12, a PackedSequence made in the graph has no named fields.
        data, batch_sizes, sorted_indices, unsorted_indices = packed
        if data.dim() != 2:
            raise RuntimeError(f"input must have 2 dimensions, got {data.dim()}")
        self._check_tokens(data, weights[0][0], ValueError)
        check_packed(packed, "input")
        carried_size = hx[0].shape[1] if hx is not None and hx[0].dim() == 3 else None
        batch_size = batch_size_of(batch_sizes, sorted_indices, carried_size)
        if hx is not None:
            self._check_state(hx, batch_size, data)
        hx = reorder(hx, sorted_indices)
        reversal = reversal_of(batch_sizes, data) if self.bidirectional else None
        output, state, distances = self._run(data, batch_sizes, batch_size, hx, reversal, weights)
        state = reorder(state, unsorted_indices)
        return PackedSequence(output, *packed[1:]), state, distances

    def _forward_padded(
        self, input: Tensor, hx: State | None, lengths: Tensor | Sequence[int] | None
    ) -> tuple[Tensor, State, Distances]:
        if input.dim() not in (2, 3):
            raise ValueError(f"ONLSTM: Expected input to be 2D or 3D, got {input.dim()}D instead")
        batched = input.dim() == 3
        check_state_axes(hx, input.dim(), batched)
        if batched:
            time_major = input.transpose(0, 1) if self.batch_first else input
        else:
            if lengths is not None:
                raise ValueError("lengths must be None for an input without a batch axis")
            time_major = input.unsqueeze(1)
            hx = None if hx is None else (hx[0].unsqueeze(1), hx[1].unsqueeze(1))
        weights = self._weights()
        self._check_tokens(time_major, weights[0][0], ValueError)
        steps, batch_size = time_major.shape[:2]
        if steps == 0:
            raise RuntimeError("Expected sequence length to be larger than 0, got 0")
        if hx is not None:
            self._check_state(hx, batch_size, time_major)
        checked_lengths = check_lengths(lengths, time_major, has_state=hx is not None)
        tokens, count = time_major.flatten(0, 1), steps * batch_size
        reversal = None
        if checked_lengths is None or batch_size == 0:
            batch_sizes = torch.full((steps,), batch_size, dtype=torch.int64, device="cpu")
            if self.bidirectional:
                reversal = torch.arange(count, device=tokens.device)
                reversal = reversal.view(steps, batch_size).flip(0).flatten()
            output, state, distances = self._run(tokens, batch_sizes, batch_size, hx, reversal, weights)
        else:
            if torch.compiler.is_compiling() and hx is not None:
                torch._assert_async((checked_lengths > 0).any(), "in a graph, one length must be above 0")
            positions, batch_sizes, order = pack_indices(checked_lengths, steps, tokens.device)
            if positions.shape[0] == 0:  # every sequence has ended: one step that reads no tokens
                batch_sizes = batch_sizes.new_zeros(1)
            tokens, hx = tokens.index_select(0, positions), reorder(hx, order)
            if self.bidirectional:
                reversal = reversal_of(batch_sizes, tokens)
            output, state, distances = self._run(tokens, batch_sizes, batch_size, hx, reversal, weights)
            output, state = unpack(output, 0, positions, count), reorder(state, order.argsort())
            distances = Distances(*(unpack(tensor, 1, positions, count) for tensor in distances))
        output = output.unflatten(0, (steps, batch_size))
        distances = Distances(*(tensor.unflatten(1, (steps, batch_size)) for tensor in distances))
        if not batched:
            output, state = output.squeeze(1), (state[0].squeeze(1), state[1].squeeze(1))
            distances = Distances(*(tensor.squeeze(2) for tensor in distances))
        elif self.batch_first:
            output = output.transpose(0, 1)
            distances = Distances(*(tensor.transpose(1, 2) for tensor in distances))
        return output, state, distances

    def _run(
        self,
        tokens: Tensor,
        batch_sizes: Tensor,
        batch_size: int,
        hx: State | None,
        reversal: Tensor | None,
        weights: list[list[Tensor]],
    ) -> tuple[Tensor, State, Distances]:
        """Run all layers on packed tokens, (P, input_size); the state is in the order of the packed batch.

        `reversal` is the permutation of packed tokens that reverses every sequence, None for one direction.
        `weights` is `all_weights`, read once per call, because a parametrized one is computed when read.
        """
        if hx is None:
            zeros = tokens.new_zeros(len(weights), batch_size, self.hidden_size)
            hx = (zeros, zeros)
        dtype = weights[0][0].dtype
        tokens, hidden, cell = tokens.to(dtype), hx[0].to(dtype), hx[1].to(dtype)  # under autocast
        orders = [None] if reversal is None else [None, reversal]  # in which each direction reads
        results: list[tuple[Tensor, ...]] = []
        for layer in range(self.num_layers):
            outputs = []
            for order in orders:
                index = len(results)
                read = tokens if order is None else tokens[order]
                output, h, c, *direction_distances = self._run_direction(
                    weights[index], read, batch_sizes, hidden[index], cell[index]
                )
                if order is not None:  # the permutation is its own inverse
                    output, *direction_distances = (
                        tensor[order] for tensor in (output, *direction_distances)
                    )
                results.append((h, c, *direction_distances))
                outputs.append(output)
            tokens = outputs[0] if reversal is None else torch.cat(outputs, dim=-1)
            if layer < self.num_layers - 1:
                tokens = F.dropout(tokens, self.dropout, self.training)
        tokens = clone_if_saved(tokens) if reversal is None else tokens  # which `cat` has copied
        h_n, c_n, *all_distances = (torch.stack(tensors) for tensors in zip(*results, strict=True))
        output, h_n, c_n = (_to_autocast_dtype(tensor) for tensor in (tokens, h_n, c_n))
        return output, (h_n, c_n), Distances(*(tensor.to(dtype) for tensor in all_distances))

    def _run_direction(
        self, parameters: list[Tensor], tokens: Tensor, batch_sizes: Tensor, hidden: Tensor, cell: Tensor
    ) -> RecurrenceOutput:
        """Run one direction of one layer."""
        weight_ih, weight_hh, *biases = parameters
        recurrent = F.dropout(weight_hh, self.weight_dropout, self.training)
        weights = Weights(weight_ih, recurrent, biases[0] + biases[1] if biases else None)
        # Only the definition handles an empty batch.
        backend = self.backend if tokens.shape[0] else "reference"
        run = select_backend(backend, tokens, weights, hidden, cell)
        return run(tokens, batch_sizes, weights, hidden, cell, self.chunk_size)

    def _check_state(self, hx: State, batch_size: int, tokens: Tensor) -> None:
        directions = 2 if self.bidirectional else 1
        check_state(hx, (self.num_layers * directions, batch_size, self.hidden_size), tokens)


def _to_autocast_dtype(tensor: Tensor) -> Tensor:
    """Convert a result to the dtype that nn.LSTM returns: the autocast dtype, if autocast is enabled."""
    dtype = autocast_dtype(tensor.device)
    return tensor if dtype is None or tensor.dtype not in CAST_BY_AUTOCAST else tensor.to(dtype)
