"""Transformers that read both formulas at once, so that every token of one may attend to those of the other.

B is the batch, T the longest formula in it, D the features of a token.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class PairTransformer(nn.Module):
    """A Transformer encoder over [summary; left; right].

    A token is its embedding, a sinusoidal encoding of its position in its own formula, and a vector for the
    formula it stands in. The summary is a learnt vector that attends to all. Layers normalise first.

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
        self.formulas = nn.Parameter(torch.empty(2, size).normal_(std=size**-0.5))

    def forward(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """Read a batch of pairs.

        Args:
            embedded: tokens, (2B, T, D): left formulas, then right ones.
            lengths: (2B,) int64.
        Returns:
            Summaries of the pairs, (B, D).
        """
        double, longest, size = embedded.shape
        steps = torch.arange(longest, device=embedded.device)
        positions = sinusoids(steps, size).to(embedded.dtype)
        left, right = (embedded + positions).chunk(2)
        summary = self.summary.expand(double // 2, 1, size)
        tokens = torch.cat([summary, left + self.formulas[0], right + self.formulas[1]], dim=1)
        padded = steps >= lengths.to(embedded.device).unsqueeze(1)
        mask = torch.cat([padded.new_zeros(double // 2, 1), *padded.chunk(2)], dim=1)
        for step in range(self.steps):
            if self.shared:
                time = sinusoids(torch.tensor([step], device=embedded.device), size).to(embedded.dtype)
                place = torch.cat([torch.zeros_like(positions[:1]), positions, positions])
                tokens = tokens + place + time
            tokens = self.layers[0 if self.shared else step](tokens, src_key_padding_mask=mask)
        result: Tensor = self.norm(tokens[:, 0])
        return result


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
