"""Cells that compose two children into a parent: the Gated Recursive Cell and the TreeRNN operator.

The left child is a memory slot, M_i. The right child, which is newer, is the candidate of the slot above it,
M̂_{i-1}. The half of the first linear map that acts on M_i does not depend on M̂_{i-1}, so a cell works in two
phases: `prepare` computes this half for all slots in one matrix product, then `compose` goes slot by slot.
A cell does not normalize its result: the LayerNorm is shared with the input projection, so the layer
applies it (`ordered_memory.memory.step`).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ordered_memory.checks import check_fraction, positive_int
from ordered_memory.dropout import apply_mask, draw_mask
from ordered_memory.initialization import reset_as_concatenated


class CellMasks(NamedTuple):
    """Dropout masks of the cell at one time step; None where nothing is dropped.

    Args:
        memory: for M, (B, N, D).
        candidate: for M̂ of the slot above, (B, N, D).
        hidden: for the hidden units, (B, N, 4D); None for the TreeRNN operator, which has no hidden units.
    """

    memory: Tensor | None
    candidate: Tensor | None
    hidden: Tensor | None

    def slot(self, i: int) -> CellMasks:
        """The masks of one slot, without the slot axis.

        Args:
            i: index of the slot, in [0, N).
        """
        return CellMasks(*(None if mask is None else mask[:, i] for mask in self))


NO_CELL_MASKS = CellMasks(None, None, None)


class _Cell(nn.Module):
    """Base class of the cells: the first linear map, stored as one half for each child."""

    expansion = 1
    """Number of outputs of the first linear map, in multiples of D."""
    hidden_units = 0

    def __init__(
        self,
        slot_size: int,
        dropout: float = 0.0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        slot_size = positive_int("slot_size", slot_size)
        check_fraction(dropout=dropout)
        self.slot_size = slot_size
        self.dropout = float(dropout)
        units = self.expansion * slot_size
        self.from_memory = nn.Linear(slot_size, units, bias=False, device=device, dtype=dtype)
        self.from_candidate = nn.Linear(slot_size, units, device=device, dtype=dtype)
        reset_as_concatenated(self.from_memory, self.from_candidate)

    def reset_parameters(self) -> None:
        """Initialize the parameters again. The same seed gives the same values as at construction."""
        self.from_memory.reset_parameters()  # as nn.Linear does at construction
        self.from_candidate.reset_parameters()
        reset_as_concatenated(self.from_memory, self.from_candidate)

    def draw_masks(self, batch_size: int, num_slots: int, like: Tensor) -> CellMasks | None:
        """Draw the dropout masks of one time step from the global generator.

        Args:
            batch_size: B.
            num_slots: N.
            like: tensor whose dtype and device the masks take.
        Returns:
            The masks; None when nothing is dropped.
        """
        return self._draw((batch_size, num_slots), like)

    def _draw(self, leading: tuple[int, ...], like: Tensor) -> CellMasks | None:
        if not self.training or self.dropout == 0:
            return None
        slots, hidden = (*leading, self.slot_size), (*leading, self.hidden_units)
        return CellMasks(
            memory=draw_mask(slots, self.dropout, like),
            candidate=draw_mask(slots, self.dropout, like),
            hidden=draw_mask(hidden, self.dropout, like) if self.hidden_units else None,
        )

    def prepare(self, memory: Tensor, masks: CellMasks = NO_CELL_MASKS) -> Tensor:
        """Compute the half of the first linear map that acts on the memory.

        Args:
            memory: M, (..., D): all slots at once, or one.
            masks: dropout masks of these slots.
        Returns:
            (..., units), the argument `prepared` of `compose`.
        """
        prepared: Tensor = self.from_memory(apply_mask(memory, masks.memory))
        return prepared

    def compose(
        self, prepared: Tensor, memory: Tensor, candidate: Tensor, masks: CellMasks = NO_CELL_MASKS
    ) -> Tensor:
        """Compose the parent of a slot and the candidate of the slot above it, before the LayerNorm.

        Args:
            prepared: `prepare(memory)`, (..., units).
            memory: M_i, (..., D).
            candidate: M̂_{i-1}, (..., D).
            masks: dropout masks of this slot.
        Returns:
            (..., D).
        """
        raise NotImplementedError

    def forward(self, memory: Tensor, candidate: Tensor) -> Tensor:
        """Run both phases, with dropout in training mode. The LayerNorm is left to the caller.

        Args:
            memory: M_i, the left child, (..., D).
            candidate: M̂_{i-1}, the right child, (..., D).
        Returns:
            (..., D).
        """
        masks = self._draw(memory.shape[:-1], memory) or NO_CELL_MASKS
        return self.compose(self.prepare(memory, masks), memory, candidate, masks)

    def extra_repr(self) -> str:
        return f"slot_size={self.slot_size}, dropout={self.dropout}"


class GatedRecursiveCell(_Cell):
    """The Gated Recursive Cell.

    Ordered Memory, §3.2, with W1 of 4D × 2D and W2 of 4D × 4D:
    `[g_m; g_c; g_u; u] = W2 relu(W1 [M_i; M̂_{i-1}] + b1) + b2`;
    `o_i = LN(σ(g_m) ∘ M_i + σ(g_c) ∘ M̂_{i-1} + σ(g_u) ∘ u)`. The LayerNorm is left to the caller.

    Args:
        slot_size: D.
        dropout: probability of dropping an input of either linear map, in [0, 1].
        device: device of the parameters.
        dtype: dtype of the parameters.
    Raises:
        ValueError: `slot_size` is not a positive integer, or `dropout` is outside [0, 1].
    Example:
        >>> GatedRecursiveCell(8)(torch.zeros(2, 8), torch.zeros(2, 8)).shape
        torch.Size([2, 8])
    """

    expansion = 4

    def __init__(
        self,
        slot_size: int,
        dropout: float = 0.0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(slot_size, dropout, device=device, dtype=dtype)
        self.hidden_units = 4 * self.slot_size
        self.output = nn.Linear(self.hidden_units, self.hidden_units, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Initialize the parameters again. The same seed gives the same values as at construction."""
        super().reset_parameters()
        self.output.reset_parameters()

    def compose(
        self, prepared: Tensor, memory: Tensor, candidate: Tensor, masks: CellMasks = NO_CELL_MASKS
    ) -> Tensor:
        hidden = F.relu(prepared + self.from_candidate(apply_mask(candidate, masks.candidate)))
        units = self.output(apply_mask(hidden, masks.hidden))
        gates, update = units.split((3 * self.slot_size, self.slot_size), dim=-1)
        memory_gate, candidate_gate, update_gate = torch.sigmoid(gates).chunk(3, dim=-1)
        composed: Tensor = memory_gate * memory + candidate_gate * candidate + update_gate * update
        return composed


class TreeRNNCell(_Cell):
    """The plain TreeRNN operator of the paper's ablation.

    `o_i = LN(tanh(W [M_i; M̂_{i-1}] + b))`, W of D × 2D: the composition function of Bowman et al. (2015),
    from whom the ablation takes its name. The LayerNorm is left to the caller.

    Args:
        slot_size: D.
        dropout: probability of dropping an input of the linear map, in [0, 1].
        device: device of the parameters.
        dtype: dtype of the parameters.
    Raises:
        ValueError: `slot_size` is not a positive integer, or `dropout` is outside [0, 1].
    Example:
        >>> TreeRNNCell(8)(torch.zeros(2, 8), torch.zeros(2, 8)).shape
        torch.Size([2, 8])
    """

    def compose(
        self, prepared: Tensor, memory: Tensor, candidate: Tensor, masks: CellMasks = NO_CELL_MASKS
    ) -> Tensor:
        from_candidate: Tensor = self.from_candidate(apply_mask(candidate, masks.candidate))
        return torch.tanh(prepared + from_candidate)


CELLS: dict[str, type[GatedRecursiveCell] | type[TreeRNNCell]] = {
    "gated": GatedRecursiveCell,
    "tree-rnn": TreeRNNCell,
}


def check_cell(cell: nn.Module) -> None:
    """Check that a custom cell has what the layer calls: `prepare`, `compose`, `draw_masks`, and `dropout`.

    Args:
        cell: a custom cell, or one of `CELLS`.
    Raises:
        TypeError: one of these is missing, or the class overrides `forward` but not `compose`.
    """
    cls = type(cell)
    for name in ("prepare", "compose", "draw_masks", "dropout"):
        if not hasattr(cell, name):
            raise TypeError(
                "cell must derive from GatedRecursiveCell or TreeRNNCell and override `compose`, got "
                f"{cls.__name__}, which has no `{name}`"
            )
    builtin_compose = [builtin.compose for builtin in CELLS.values()]
    if (
        getattr(cls, "forward", None) is not _Cell.forward
        and getattr(cls, "compose", None) in builtin_compose
    ):
        raise TypeError(
            f"the layer does not call the forward of a cell: override compose in {cls.__name__}, and, if "
            "needed, prepare"
        )
