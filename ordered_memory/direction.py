"""One direction of `OrderedMemory`: its parameters and its forward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ordered_memory.attention import OCCUPANCY_THRESHOLD, SCORES, check_score
from ordered_memory.backends import select_backend
from ordered_memory.cells import CELLS, check_cell
from ordered_memory.devices import copy_to
from ordered_memory.initialization import reset_children
from ordered_memory.memory import initial_state
from ordered_memory.modes import is_transformed
from ordered_memory.recomputation import run_in_segments
from ordered_memory.recurrence import DropoutSampler, Modules, RecurrenceOutput
from ordered_memory.state import OrderedMemoryState


class Direction(nn.Module):
    """One direction of `OrderedMemory`.

    Args:
        input_size: number of features of a token.
        slot_size: D.
        score, cell: names, as in `OrderedMemory`.
        reverse: whether to read each sequence from its end to its start.
        device: device of the parameters.
        dtype: dtype of the parameters.
    """

    def __init__(
        self,
        input_size: int,
        slot_size: int,
        score: str,
        cell: str,
        *,
        reverse: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.projection = nn.Linear(input_size, slot_size, device=device, dtype=dtype)
        self.norm = nn.LayerNorm(slot_size, device=device, dtype=dtype)
        self.score = SCORES[score](slot_size, device=device, dtype=dtype)
        self.cell = CELLS[cell](slot_size, device=device, dtype=dtype)
        self.threshold = OCCUPANCY_THRESHOLD
        self.reverse = reverse

    def reset_parameters(self) -> None:
        """Initialize the parameters again. The same seed gives the same values as at construction."""
        reset_children(self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("score", "cell") and isinstance(value, nn.Module):
            (check_score if name == "score" else check_cell)(value)
            slot_size = getattr(self._modules.get(name), "slot_size", None)
            given = getattr(value, "slot_size", slot_size)
            if slot_size is not None and given != slot_size:
                raise ValueError(f"{name} must have slot_size={slot_size}, got slot_size={given}")
        super().__setattr__(name, value)

    def forward(
        self,
        inputs: Tensor,
        state: OrderedMemoryState | None,
        lengths: Tensor | None,
        num_slots: int,
        backend: str,
        recompute_every: int | None,
    ) -> RecurrenceOutput:
        """Read a batch of sequences.

        Args:
            inputs: (T, B, input_size), T at least 1.
            state: state to continue from; None starts with an empty memory.
            lengths: number of tokens of each sequence, (B,) int64 on the CPU; None if nothing is padded.
            num_slots: N.
            backend, recompute_every: as in `OrderedMemory`.
        Returns:
            Output, state and attention, in the order of the tokens.
        """
        # The backends get the lengths on the CPU, so that they need not wait for the device to read them.
        device_lengths = None if lengths is None else copy_to(lengths, inputs.device)
        if device_lengths is not None:
            # Values in the padding, such as NaN, must not reach any gradient.
            padding = torch.arange(inputs.shape[0], device=inputs.device).unsqueeze(1) >= device_lengths
            inputs = inputs.masked_fill(padding.unsqueeze(-1), 0.0)
        if self.reverse:
            inputs = _reverse(inputs, device_lengths)
        projected = self.norm(self.projection(inputs))
        # Autocast on a CPU changes the dtype. (Under FSDP or DataParallel there may be no parameters.)
        dtypes = [parameter.dtype for parameter in self.parameters() if parameter.is_floating_point()]
        projected = projected.to(dtypes[0] if dtypes else projected.dtype)
        if state is None:
            state = initial_state(projected.shape[1], num_slots, projected)
        else:
            state = OrderedMemoryState(*(tensor.to(projected.dtype) for tensor in state))  # under autocast
        modules = self.recurrent_modules()
        # Only the definition handles an empty batch.
        run = select_backend("reference" if projected.shape[1] == 0 else backend, projected, modules, state)
        masks = self.dropout_sampler(projected[0], num_slots)
        # With `recompute_every`, each segment draws its own dropout masks. So segments are also used without
        # gradients if there is dropout: an outer checkpoint runs the layer once without and once with
        # gradients, and both runs must draw the same masks. Transforms do not support checkpoints.
        in_segments = torch.is_grad_enabled() or masks is not None
        if recompute_every is not None and in_segments and not is_transformed(projected, *state):
            result = run_in_segments(run, recompute_every, projected, state, modules, lengths, masks)
        else:
            result = run(projected, state, modules, lengths, masks)
        if self.reverse:
            output, attention = (
                _reverse(sequences, device_lengths) for sequences in (result.output, result.attention)
            )
            result = RecurrenceOutput(output, result.state, attention)
        return result

    def recurrent_modules(self) -> Modules:
        """The modules that act inside the recurrence."""
        return Modules(self.score, self.cell, self.norm, self.threshold)

    def dropout_sampler(self, like: Tensor, num_slots: int) -> DropoutSampler | None:
        """Create the object that draws the dropout masks of each time step.

        Args:
            like: x̃ of one step, (B, D).
            num_slots: N.
        Returns:
            The sampler; None when nothing is dropped.
        """
        if not any(module.training and module.dropout for module in (self.score, self.cell)):
            return None
        return DropoutSampler(self.recurrent_modules(), like, num_slots)


def _reverse(sequences: Tensor, lengths: Tensor | None) -> Tensor:
    """Reverse each sequence of (T, B, ·) within its own length; padding stays where it is."""
    if lengths is None:
        return sequences.flip(0)
    t = torch.arange(sequences.shape[0], device=sequences.device).unsqueeze(1)
    source = torch.where(t < lengths, lengths - 1 - t, t)
    return sequences.gather(0, source.unsqueeze(-1).expand_as(sequences))
