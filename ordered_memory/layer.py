"""`OrderedMemory`: the layer, with the conventions of PyTorch's own recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ordered_memory.attention import OCCUPANCY_THRESHOLD, SCORES
from ordered_memory.backends import BACKENDS
from ordered_memory.backends.module_checks import has_hooks, is_patched
from ordered_memory.cells import CELLS
from ordered_memory.checks import (
    check_device,
    check_dtype,
    check_fixed,
    check_flags,
    check_fraction,
    check_lengths,
    check_name,
    check_sequences,
    check_state_tensors,
    positive_int,
)
from ordered_memory.direction import Direction
from ordered_memory.initialization import reset_children
from ordered_memory.modes import clone_if_saved
from ordered_memory.packing import check_packed, unpack, unpack_indices
from ordered_memory.representation import constructor_arguments
from ordered_memory.state import OrderedMemoryState, check_state


class OrderedMemoryOutput(NamedTuple):
    """The output of `OrderedMemory`. Shapes are for (T, B, ·); with `batch_first` they are (B, T, ·).

    Args:
        output: M̂_N of every step, (T, B, D), or (T, B, 2D) if bidirectional, zero at padded steps; a
            PackedSequence if the input was one.
        state: state after each sequence's last token. If bidirectional, each of its tensors has a leading
            axis of 2, and entry 1 is the state of the backward direction, after the first token.
        attention: p of every token, (T, B, N), zero at padded steps; padded even if the input was packed. If
            bidirectional, (2, T, B, N), in the order of the tokens for both directions.
    """

    output: Tensor | Any  # not `| PackedSequence`, which type checkers would ask about at every use
    state: OrderedMemoryState
    attention: Tensor

    @property
    def summary(self) -> Tensor:
        """The summary of each sequence, (B, D): the output at its last token, `state.candidate[..., -1, :]`.

        If bidirectional, (2, B, D); entry 1 is the summary of the backward direction, its output at the first
        token. Without a batch axis it is (D,) or (2, D).
        """
        return self.state.candidate[..., -1, :]


def _shared_fraction(name: str, path: str) -> Any:
    """A property of the layer that reads and sets a fraction in every direction.

    Args:
        name: name of the property, for the error message.
        path: dotted path of the attribute within a direction.
    """
    submodule, _, attribute = path.rpartition(".")

    def read(layer: OrderedMemory) -> Any:
        return getattr(layer.directions[0].get_submodule(submodule), attribute)

    def write(layer: OrderedMemory, value: float) -> None:
        check_fraction(**{name: value})
        for direction in layer.directions:
            setattr(direction.get_submodule(submodule), attribute, float(value))

    return property(read, write)


class OrderedMemory(nn.Module):
    """Ordered Memory: a recurrent layer that induces trees with a stack of memory slots.

    Shen et al. (2019), equations (1)–(11) and Algorithm 1; see `ordered_memory.memory.step` for one step. The
    `summary` of the result has the output at each sequence's last token.

    Under autocast the results keep the dtype of the parameters, because the memory is carried over many
    steps.

    All arguments but `device` and `dtype` are also attributes. Setting one takes effect at the next call, but
    `input_size`, `slot_size`, `score`, `cell` and `bidirectional` cannot be changed (TypeError).

    Args:
        input_size: number of features of a token.
        slot_size: D, number of features of a slot and of the output.
        num_slots: N, depth of the stack, at least 1. Slots share weights, so a call may use more.
        cell_dropout: probability of dropping an input of a linear map in the cell, in [0, 1].
        attention_dropout: probability of dropping an input of a linear map in the score, in [0, 1].
        score: "normalized" (the score of the authors' code) or "additive" (equation 8 of the paper).
        cell: "gated" (the Gated Recursive Cell) or "tree-rnn" (the operator of the paper's ablation).
        bidirectional: also read each sequence from its end to its start.
        batch_first: input and output are (B, T, ·) instead of (T, B, ·).
        occupancy_threshold: an occupancy below this counts as 0, in [0, 1]. A larger threshold leaves fewer
            slots to compute. Close to 1, rounding decides which slots count.
        recompute_every: number of steps per gradient checkpoint. The forward pass stores the state once every
            `recompute_every` steps, and the backward pass runs the steps in between again. This saves memory
            and costs time. Memory use is lowest near √T. None stores every step. From the same seed, another
            value may draw other dropout masks.
        backend: implementation of the recurrence: "auto" (the fastest that can run here) or a name from
            `ordered_memory.backends.BACKENDS`. All give the same results, except that from the same seed they
            draw different dropout masks. A batch without sequences is always computed by "reference".
        device: device of the parameters.
        dtype: dtype of the parameters.
    Raises:
        TypeError: a flag is not a bool.
        ValueError: an argument is out of range or not one of the names listed.
    Example:
        >>> layer = OrderedMemory(input_size=16, slot_size=32, num_slots=8, batch_first=True)
        >>> out = layer(torch.randn(4, 10, 16), lengths=[10, 7, 3, 1])
        >>> out.output.shape, out.attention.shape, out.state.memory.shape
        (torch.Size([4, 10, 32]), torch.Size([4, 10, 8]), torch.Size([4, 8, 32]))
    """

    cell_dropout = _shared_fraction("cell_dropout", "cell.dropout")
    attention_dropout = _shared_fraction("attention_dropout", "score.dropout")
    occupancy_threshold = _shared_fraction("occupancy_threshold", "threshold")

    def __init__(
        self,
        input_size: int,
        slot_size: int,
        num_slots: int,
        *,
        cell_dropout: float = 0.0,
        attention_dropout: float = 0.0,
        score: str = "normalized",
        cell: str = "gated",
        bidirectional: bool = False,
        batch_first: bool = False,
        occupancy_threshold: float = OCCUPANCY_THRESHOLD,
        recompute_every: int | None = None,
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_flags(bidirectional=bidirectional, batch_first=batch_first)
        input_size = positive_int("input_size", input_size)
        slot_size = positive_int("slot_size", slot_size)
        check_name("score", score, SCORES)
        check_name("cell", cell, CELLS)
        check_name("backend", backend, ["auto", *BACKENDS])
        self.input_size = input_size
        self.slot_size = slot_size
        self.num_slots = num_slots
        self.score = score
        self.cell = cell
        self.bidirectional = bidirectional
        self.batch_first = batch_first
        self.recompute_every = recompute_every
        self.backend = backend
        self.directions = nn.ModuleList(
            Direction(input_size, slot_size, score, cell, reverse=reverse, device=device, dtype=dtype)
            for reverse in ([False, True] if bidirectional else [False])
        )
        self.cell_dropout = cell_dropout
        self.attention_dropout = attention_dropout
        self.occupancy_threshold = occupancy_threshold

    def reset_parameters(self) -> None:
        """Initialize the parameters again. The same seed gives the same values as at construction."""
        reset_children(self.directions)

    def forward(
        self,
        x: Tensor | PackedSequence,
        state: OrderedMemoryState | None = None,
        lengths: Tensor | Sequence[int] | None = None,
        num_slots: int | None = None,
    ) -> OrderedMemoryOutput:
        """Read a batch of sequences.

        Args:
            x: (T, B, input_size), or (B, T, input_size) with `batch_first`, or (T, input_size) for one
                sequence without a batch axis, or a PackedSequence. B may be 0, T may not.
            state: state to continue from, such as an earlier call's; None starts with an empty memory.
            lengths: number of tokens of each sequence, (B,) integers in 1..T, on the CPU as for
                `pack_padded_sequence`; None if nothing is padded. Values in the padding have no effect. With
                `state` a length may also be 0: such a sequence, which an earlier call has read to its end,
                keeps its state, and its output and attention are zero. Under `torch.compile`, prefer a
                tensor to a list: with a list, the layer is recompiled for each B.
            num_slots: N for this call; None for the layer's own.
        Returns:
            Named tuple (output, state, attention), without the batch axis if `x` has none.
        Raises:
            TypeError: `x` is neither a dense tensor nor a PackedSequence, or `state` is not three tensors.
            ValueError: `x`, `state`, `lengths` or `num_slots` has an unexpected size, value, dtype or device.
                (Under `torch.compile` lengths out of range raise a RuntimeError.)
            BackendError: the backend that `backend` names cannot run on these inputs. It is a RuntimeError.
        """
        num_slots = positive_int("num_slots", self.num_slots if num_slots is None else num_slots)
        check_state_tensors("state", state, 3, "three tensors, such as an OrderedMemoryState")
        if isinstance(x, PackedSequence):
            if lengths is not None:
                raise ValueError("lengths must be None for a PackedSequence, which carries its own")
            return self._forward_packed(x, state, num_slots)
        x = check_sequences("x", x)
        if x.dim() not in (2, 3):
            raise ValueError(f"x must have 2 or 3 axes, got {x.dim()}: shape {tuple(x.shape)}")
        if x.dim() == 2:
            if lengths is not None:
                raise ValueError("lengths must be None for an input without a batch axis")
            return self._forward_unbatched(x, state, num_slots)
        inputs = x.transpose(0, 1) if self.batch_first else x
        output, state, attention = self._run(inputs, state, lengths, num_slots)
        if self.batch_first:
            output, attention = output.transpose(0, 1), attention.transpose(-3, -2)
        return OrderedMemoryOutput(output, state, attention)

    if TYPE_CHECKING:  # the call of nn.Module takes and returns Any
        __call__ = forward

    def extra_repr(self) -> str:
        return constructor_arguments(self, OrderedMemory)

    def __prepare_scriptable__(self) -> NoReturn:
        raise NotImplementedError("OrderedMemory cannot be compiled by torch.jit.script; use torch.compile")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("score", "cell") and value != self.__dict__.get(name, value):
            shown = type(value).__name__ if isinstance(value, nn.Module) else repr(value)
            raise TypeError(
                f"{name} is the name of the {name} that the layer was built with, got {shown}; to replace "
                f"the module, set layer.directions[i].{name}"
            )
        check_fixed(self, name, value, ("input_size", "slot_size", "bidirectional"))
        if name == "batch_first":
            check_flags(batch_first=value)
        elif name == "num_slots" or (name == "recompute_every" and value is not None):
            value = positive_int(name, value)
        super().__setattr__(name, value)

    def _forward_packed(
        self, x: PackedSequence, state: OrderedMemoryState | None, num_slots: int
    ) -> OrderedMemoryOutput:
        # By index: compiled by PyTorch 2.12, a PackedSequence made in the graph has no named fields.
        data, batch_sizes, sorted_indices, unsorted_indices = x
        if data.dim() != 2:
            raise ValueError(f"the data of x must have 2 axes, got shape {tuple(data.shape)}")
        check_packed(x, "x")
        position, lengths = unpack_indices(batch_sizes, data, sorted_indices)
        shape = (batch_sizes.shape[0], lengths.shape[0], data.shape[1])
        padded = unpack(data, 0, position, shape[0] * shape[1]).view(shape)
        if unsorted_indices is not None:
            padded, lengths = padded.index_select(1, unsorted_indices), lengths[unsorted_indices.cpu()]
        output, state, attention = self._run(padded, state, lengths, num_slots)
        if sorted_indices is not None:
            output = output.index_select(1, sorted_indices)
        packed = output.flatten(0, 1).index_select(0, position)
        sequence = PackedSequence(packed, *x[1:])
        return OrderedMemoryOutput(
            sequence, state, attention.transpose(-3, -2) if self.batch_first else attention
        )

    def _forward_unbatched(
        self, x: Tensor, state: OrderedMemoryState | None, num_slots: int
    ) -> OrderedMemoryOutput:
        batch_axis = 1 if self.bidirectional else 0  # of the state
        if state is not None:
            leading = (2,) if self.bidirectional else ()
            check_state(OrderedMemoryState(*state), leading, num_slots, self.slot_size, x)
            state = OrderedMemoryState(*(tensor.unsqueeze(batch_axis) for tensor in state))
        output, state, attention = self._run(x.unsqueeze(1), state, None, num_slots)
        state = OrderedMemoryState(*(tensor.squeeze(batch_axis) for tensor in state))
        return OrderedMemoryOutput(output.squeeze(1), state, attention.squeeze(-2))

    def _run(
        self,
        inputs: Tensor,
        state: OrderedMemoryState | None,
        lengths: Tensor | Sequence[int] | None,
        num_slots: int,
    ) -> tuple[Tensor, OrderedMemoryState, Tensor]:
        """Read (T, B, input_size) in all directions: output (T, B, ·), state, and attention (…, T, B, N)."""
        self._check_inputs(inputs)
        checked_lengths = check_lengths(lengths, inputs, has_state=state is not None)
        states = self._state_of_each_direction(state, inputs, num_slots)
        # Not zip(strict=True): the graph may break in here, and PyTorch 2.8 cannot go on within it.
        results = [
            direction(inputs, states[i], checked_lengths, num_slots, self.backend, self.recompute_every)
            for i, direction in enumerate(self.directions)
        ]
        output = torch.cat([result.output for result in results], dim=-1)
        if not self.bidirectional:
            [result] = results
            final_state = OrderedMemoryState(*(clone_if_saved(tensor) for tensor in result.state))
            return output, final_state, clone_if_saved(result.attention)
        pairs = zip(*(result.state for result in results), strict=True)
        final_state = OrderedMemoryState(*(torch.stack(pair) for pair in pairs))
        return output, final_state, torch.stack([result.attention for result in results])

    def _check_inputs(self, inputs: Tensor) -> None:
        steps, _, features = inputs.shape
        if features != self.input_size:
            raise ValueError(f"x must have {self.input_size} features (input_size), got {features}")
        if steps == 0:
            raise ValueError("x must have at least one step, got T=0")
        projection = self.directions[0].projection
        # A hook or a `forward` that was set may bring the weights, as those of accelerate's offloading do.
        if isinstance(projection, nn.Linear) and not (has_hooks(projection) or is_patched(projection)):
            check_device("x", inputs, projection.weight)
            check_dtype("x", inputs, projection.weight)

    def _state_of_each_direction(
        self, state: OrderedMemoryState | None, inputs: Tensor, num_slots: int
    ) -> Sequence[OrderedMemoryState | None]:
        """The state of each direction, after checking it."""
        if state is None:
            return [None] * len(self.directions)
        state = OrderedMemoryState(*state)
        batch = (2, inputs.shape[1]) if self.bidirectional else (inputs.shape[1],)
        check_state(state, batch, num_slots, self.slot_size, inputs)
        if not self.bidirectional:
            return [state]
        return [OrderedMemoryState(*(tensor[i] for tensor in state)) for i in range(2)]
