"""Transformers that summarise sequences: one by one, or two at once.

B is the batch, T the longest sequence in it, E the features of an embedded token, D those inside the layers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class _SummaryTransformer(nn.Module):
    """A Transformer encoder over [summary; tokens], whose summary is a learnt vector that attends to all.

    Layers normalise first.

    Args:
        size: D, even.
        layers: how many; or steps, if they share their weights.
        heads: that D is divided among.
        dropout: inside the layers.
        shared: one layer for all steps, told the step by a sinusoidal encoding: the Universal Transformer
            of Dehghani et al. (2019) with a fixed number of steps.
    """

    def __init__(self, size: int, layers: int, heads: int, dropout: float, *, shared: bool) -> None:
        super().__init__()
        self.steps, self.shared = layers, shared
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(size, heads, 4 * size, dropout, batch_first=True, norm_first=True)
            for _ in range(1 if shared else layers)
        )
        self.norm = nn.LayerNorm(size)
        self.summary = nn.Parameter(torch.empty(size).normal_(std=size**-0.5))

    def summarise(self, tokens: Tensor, positions: Tensor, padded: Tensor) -> Tensor:
        """The summary after the last layer.

        Args:
            tokens: with their positions, (B, S, D).
            positions: sinusoids of the tokens, (S, D), which shared layers add again before each step.
            padded: which tokens are padding, (B, S).
        Returns:
            (B, D).
        """
        summary = self.summary.expand(len(tokens), 1, -1)
        tokens = torch.cat([summary, tokens], dim=1)
        mask = torch.cat([padded.new_zeros(len(tokens), 1), padded], dim=1)
        for step in range(self.steps):
            if self.shared:
                time = sinusoids(torch.tensor([step], device=tokens.device), tokens.shape[-1])
                place = torch.cat([torch.zeros_like(positions[:1]), positions])
                tokens = tokens + place + time.to(place.dtype)
            tokens = self.layers[0 if self.shared else step](tokens, src_key_padding_mask=mask)
        result: Tensor = self.norm(tokens[:, 0])
        return result


class Transformer(_SummaryTransformer):
    """A Transformer encoder of single sequences, over [summary; sequence].

    A token is W x + b of its embedding, plus a sinusoidal encoding of its position.

    Args:
        input_size: E.
        size: D, even.
        layers: how many; or steps, if they share their weights.
        heads: that D is divided among.
        dropout: inside the layers.
        shared: one layer for all steps: the Universal Transformer.
    """

    def __init__(
        self, input_size: int, size: int, layers: int, heads: int, dropout: float, *, shared: bool
    ) -> None:
        super().__init__(size, layers, heads, dropout, shared=shared)
        self.projection = nn.Linear(input_size, size)

    def forward(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """Read a batch of sequences.

        Args:
            embedded: tokens, (B, T, E).
            lengths: (B,) int64.
        Returns:
            Summaries, (B, D).
        """
        tokens = self.projection(embedded)
        positions, padded = _places(tokens, lengths)
        return self.summarise(tokens + positions, positions, padded)


class PairTransformer(_SummaryTransformer):
    """A Transformer encoder over [summary; left; right], so that each formula may attend to the other.

    A token is its embedding, a sinusoidal encoding of its position in its own formula, and a vector for the
    formula it stands in.

    Args:
        size: D, even.
        layers: how many; or steps, if they share their weights.
        heads: that D is divided among.
        dropout: inside the layers.
        shared: one layer for all steps: the Universal Transformer.
    """

    def __init__(self, size: int, layers: int, heads: int, dropout: float, *, shared: bool) -> None:
        super().__init__(size, layers, heads, dropout, shared=shared)
        self.formulas = nn.Parameter(torch.empty(2, size).normal_(std=size**-0.5))

    def forward(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """Read a batch of pairs.

        Args:
            embedded: tokens, (2B, T, D): left formulas, then right ones.
            lengths: (2B,) int64.
        Returns:
            Summaries of the pairs, (B, D).
        """
        positions, padded = _places(embedded, lengths)
        left, right = (embedded + positions).chunk(2)
        tokens = torch.cat([left + self.formulas[0], right + self.formulas[1]], dim=1)
        return self.summarise(tokens, positions.repeat(2, 1), torch.cat(padded.chunk(2), dim=1))


def sinusoids(positions: Tensor, size: int) -> Tensor:
    """Vaswani et al. (2017), §3.5.

    Args:
        positions: (T,).
        size: D, even.
    Returns:
        (T, D): sines, then cosines.
    Example:
        >>> sinusoids(torch.tensor([0]), 4)
        tensor([[0., 0., 1., 1.]])
    """
    rates = torch.exp(torch.arange(size // 2, device=positions.device) * (-2 * math.log(10_000) / size))
    angles = positions.unsqueeze(1) * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def _places(tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Sinusoids of the positions, (T, D), and which tokens are padding, (B, T)."""
    steps = torch.arange(tokens.shape[1], device=tokens.device)
    padded = steps >= lengths.to(tokens.device).unsqueeze(1)
    return sinusoids(steps, tokens.shape[-1]).to(tokens.dtype), padded
