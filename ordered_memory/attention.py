"""Masked slot attention (Ordered Memory, §3.1): which slot of the memory the current token attaches to."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ordered_memory.checks import check_fraction, is_number, positive_int
from ordered_memory.dropout import apply_mask, draw_mask
from ordered_memory.initialization import reset_as_concatenated, reset_children

OCCUPANCY_THRESHOLD = 1e-5
"""An occupancy below this counts as 0. The value of the authors' code; the paper gives none."""


def masked_attention(scores: Tensor, occupancy: Tensor, threshold: float = OCCUPANCY_THRESHOLD) -> Tensor:
    """Softmax over the slots, each weighted by the occupancy of the slot below it.

    Ordered Memory, equations (9)–(11): `m_i = occupancy_{i+1}`, taken as 0 below `threshold`;
    `p_i = m_i exp(a_i) / Σ_j m_j exp(a_j)`, and p = 0 where every m is 0 (an empty memory).
    The maximum that is subtracted before `exp` is taken over the slots with m > 0, so that a large score of
    a masked slot does not make the others underflow.

    Args:
        scores: a, (..., N), real.
        occupancy: (..., N + 1), fractions in [0, 1]: →π of the previous step, followed by one entry that
            is 0 before the first token and 1 after it.
        threshold: an occupancy below this counts as 0, in [0, 1]. An occupancy that counts as 0, or is 0, has
            a gradient of 0.
    Returns:
        p, (..., N): non-negative; sums to 1 over the slots, or is all 0 if the memory is empty. As softmax,
        it is NaN if a is -inf wherever m > 0.
    Raises:
        ValueError: `occupancy` does not have N + 1 entries, or `threshold` is not in [0, 1].
    Example:
        >>> masked_attention(torch.zeros(3), torch.tensor([0.0, 0.0, 1.0, 1.0]))
        tensor([0.0000, 0.5000, 0.5000])
    """
    if occupancy.shape[-1] != scores.shape[-1] + 1:
        raise ValueError(
            f"occupancy must have {scores.shape[-1] + 1} entries, one more than scores, got "
            f"{occupancy.shape[-1]}"
        )
    if not is_number(threshold) or not 0 <= threshold <= 1:
        raise ValueError(f"threshold must lie in [0, 1], got {threshold!r}")
    mask = occupancy[..., 1:]
    mask = mask.masked_fill(mask < threshold, 0.0)
    masked = mask == 0
    scores = scores.masked_fill(masked, -math.inf)
    largest = scores.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    weights = mask * torch.exp(scores - largest)
    empty = masked.all(-1, keepdim=True)
    return weights / (weights.sum(-1, keepdim=True) + empty)


class ScoreMasks(NamedTuple):
    """Dropout masks of the score at one time step; None where nothing is dropped.

    Args:
        query: for x̃, (B, D).
        key: for M̂, (B, N, D).
        features: for the input of the last linear map, (B, N, D).
    """

    query: Tensor | None
    key: Tensor | None
    features: Tensor | None


NO_SCORE_MASKS = ScoreMasks(None, None, None)


class _Score(nn.Module):
    """Base class of the scores: linear maps of the token, the slots and the features, dropout before each."""

    query: nn.Linear
    key: nn.Linear
    output: nn.Linear

    def __init__(self, slot_size: int, dropout: float) -> None:
        super().__init__()
        self.slot_size = positive_int("slot_size", slot_size)
        check_fraction(dropout=dropout)
        self.dropout = float(dropout)

    def reset_parameters(self) -> None:
        """Initialize the parameters again. The same seed gives the same values as at construction."""
        reset_children(self)

    def draw_masks(self, batch_size: int, num_slots: int, like: Tensor) -> ScoreMasks | None:
        """Draw the dropout masks of one time step from the global generator.

        Args:
            batch_size: B.
            num_slots: N.
            like: tensor whose dtype and device the masks take.
        Returns:
            The masks; None when nothing is dropped.
        """
        if not self.training or self.dropout == 0:
            return None
        slots = (batch_size, num_slots, self.slot_size)
        return ScoreMasks(
            query=draw_mask((batch_size, self.slot_size), self.dropout, like),
            key=draw_mask(slots, self.dropout, like),
            features=draw_mask(slots, self.dropout, like),
        )

    def forward(self, x: Tensor, candidate: Tensor, masks: ScoreMasks | None = None) -> Tensor:
        """Score every slot for the current token.

        Args:
            x: x̃, (B, D).
            candidate: M̂ of the previous step, (B, N, D).
            masks: dropout masks. If None, they are drawn in training mode; `NO_SCORE_MASKS` drops nothing.
        Returns:
            a, (B, N).
        """
        masks = masks or self.draw_masks(x.shape[0], candidate.shape[1], x) or NO_SCORE_MASKS
        query = self.query(apply_mask(x, masks.query))
        key = self.key(apply_mask(candidate, masks.key))
        features = self.features(query, key)
        scores: Tensor = self.output(apply_mask(features, masks.features)).squeeze(-1)
        return scores / math.sqrt(self.slot_size)

    def features(self, query: Tensor, key: Tensor) -> Tensor:
        """Combine queries and keys into the input of the last linear map.

        Args:
            query: the linear map of x̃, (B, D).
            key: the linear map of M̂, (B, N, D).
        Returns:
            (B, N, D).
        """
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"slot_size={self.slot_size}, dropout={self.dropout}"


class AdditiveScore(_Score):
    """The paper's score: a network with one tanh layer on the concatenation of token and slot.

    Ordered Memory, equation (8): `a_i = w2 · tanh(W1 [x̃; M̂_i] + b1) + b2`, divided by sqrt(D). W1 maps 2D → D
    and w2 maps D → 1. W1 is stored as two D × D halves, so that the token's half is computed once for
    all slots.

    Args:
        slot_size: D.
        dropout: probability of dropping an input of either linear map, in [0, 1].
        device: device of the parameters.
        dtype: dtype of the parameters.
    Raises:
        ValueError: `slot_size` is not a positive integer, or `dropout` is outside [0, 1].
    Example:
        >>> AdditiveScore(8)(torch.zeros(2, 8), torch.zeros(2, 5, 8)).shape
        torch.Size([2, 5])
    """

    def __init__(
        self,
        slot_size: int,
        dropout: float = 0.0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(slot_size, dropout)
        slot_size = self.slot_size
        self.query = nn.Linear(slot_size, slot_size, bias=False, device=device, dtype=dtype)
        self.key = nn.Linear(slot_size, slot_size, device=device, dtype=dtype)
        self.output = nn.Linear(slot_size, 1, device=device, dtype=dtype)
        reset_as_concatenated(self.query, self.key)

    def reset_parameters(self) -> None:
        """Initialize the parameters again. The same seed gives the same values as at construction."""
        super().reset_parameters()
        reset_as_concatenated(self.query, self.key)

    def features(self, query: Tensor, key: Tensor) -> Tensor:
        return torch.tanh(query.unsqueeze(1) + key)


class NormalizedScore(_Score):
    """The score of the authors' code: a ReLU of the sum of query and key, each with a LayerNorm.

    `a_i = (w · relu(LN(W_q x̃ + b_q) + LN(W_k M̂_i + b_k)) + b) / sqrt(D)`, with dropout before each linear
    map.

    Args:
        slot_size: D.
        dropout: probability of dropping an input of any linear map, in [0, 1].
        device: device of the parameters.
        dtype: dtype of the parameters.
    Raises:
        ValueError: `slot_size` is not a positive integer, or `dropout` is outside [0, 1].
    Example:
        >>> NormalizedScore(8)(torch.zeros(2, 8), torch.zeros(2, 5, 8)).shape
        torch.Size([2, 5])
    """

    def __init__(
        self,
        slot_size: int,
        dropout: float = 0.0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(slot_size, dropout)
        slot_size = self.slot_size
        self.query = nn.Linear(slot_size, slot_size, device=device, dtype=dtype)
        self.query_norm = nn.LayerNorm(slot_size, device=device, dtype=dtype)
        self.key = nn.Linear(slot_size, slot_size, device=device, dtype=dtype)
        self.key_norm = nn.LayerNorm(slot_size, device=device, dtype=dtype)
        self.output = nn.Linear(slot_size, 1, device=device, dtype=dtype)

    def features(self, query: Tensor, key: Tensor) -> Tensor:
        return F.relu(self.query_norm(query).unsqueeze(1) + self.key_norm(key))


SCORES: dict[str, type[AdditiveScore] | type[NormalizedScore]] = {
    "additive": AdditiveScore,
    "normalized": NormalizedScore,
}


def check_score(score: nn.Module) -> None:
    """Check that a custom score has what the layer uses: `forward` with masks, `draw_masks`, and `dropout`.

    Args:
        score: a custom score, or one of `SCORES`.
    Raises:
        TypeError: one of these is missing, or `forward` does not take (x, candidate, masks).
    """
    problem = next(
        (f"has no `{name}`" for name in ("draw_masks", "dropout") if not hasattr(score, name)), None
    )
    if problem is None and not _takes_three(score.forward):
        problem = "has a `forward` that does not take (x, candidate, masks)"
    if problem is not None:
        raise TypeError(
            "score must derive from NormalizedScore or AdditiveScore and override `features`, got "
            f"{type(score).__name__}, which {problem}"
        )


def _takes_three(function: Callable[..., Tensor]) -> bool:
    """Whether a function can be called with three positional arguments, as far as Python can tell."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # it is not written in Python
        return True
    try:
        signature.bind(None, None, None)
    except TypeError:
        return False
    return True
