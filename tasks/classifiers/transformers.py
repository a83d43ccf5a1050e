"""Transformer encoders that summarize a sequence, or a pair of sequences, in one vector.

B is the batch size, T the length of the longest sequence, E the embedding size, D the hidden size.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ordered_memory.devices import copy_to


class _SummaryTransformer(nn.Module):
    """A pre-LN Transformer encoder over [summary; tokens] with a learned summary vector, like BERT's [CLS].

    Args:
        size: D, even.
        layers: number of layers or, if `shared`, of steps.
        heads: number of attention heads.
        dropout: inside the layers.
        shared: use one layer for all steps, each of which adds the positional encodings and a learned
            embedding of the step to its input: the Universal Transformer of Dehghani et al. (2019), with a
            fixed number of steps.
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
        if shared:
            # Learned, as in the authors' code: with the paper's sinusoids, two steps learned more slowly.
            self.step_embeddings = nn.Parameter(torch.empty(layers, size).normal_(std=size**-0.5))

    def summarize(self, tokens: Tensor, positions: Tensor, padded: Tensor) -> Tensor:
        """Compute the summary: the first output of the last layer, whose other outputs are not computed.

        Args:
            tokens: embeddings, (B, S, D).
            positions: positional encodings, (S, D) or (B, S, D), which are added once, or by a shared layer
                at each step.
            padded: which tokens are padding, (B, S) bool.
        Returns:
            (B, D).
        """
        summary = self.summary.expand(len(tokens), 1, -1)
        tokens = torch.cat([summary, tokens], dim=1)
        mask = torch.cat([padded.new_zeros(len(tokens), 1), padded], dim=1)
        position_encoding = pad(positions, (0, 0, 1, 0))
        for step in range(self.steps):
            if self.shared or step == 0:
                tokens = tokens + position_encoding
            if self.shared:
                tokens = tokens + self.step_embeddings[step]
            layer = self.layers[0 if self.shared else step]
            if step < self.steps - 1:
                tokens = layer(tokens, src_key_padding_mask=mask)
            else:
                tokens = _first_output(layer, tokens, mask)
        result: Tensor = self.norm(tokens[:, 0])
        return result


class Transformer(_SummaryTransformer):
    """A Transformer encoder over [summary; sequence].

    Its input is W x + b of each embedding x; a sinusoidal encoding of the position is added.

    Args:
        input_size: E.
        size, layers, heads, dropout, shared: as for the base class.
    """

    def __init__(
        self, input_size: int, size: int, layers: int, heads: int, dropout: float, *, shared: bool
    ) -> None:
        super().__init__(size, layers, heads, dropout, shared=shared)
        self.projection = nn.Linear(input_size, size)

    def forward(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """Encode a batch of sequences.

        Args:
            embedded: (B, T, E), padded on the right.
            lengths: (B,) int64.
        Returns:
            Summaries, (B, D).
        """
        tokens = self.projection(embedded)
        positions, padded = _positions_and_padding(tokens, lengths)
        return self.summarize(tokens, positions, padded)


class PairTransformer(_SummaryTransformer):
    """A Transformer encoder over [summary; left; right], in which each formula can attend to the other.

    Its input is the sum of the embedding, a sinusoidal encoding of the position in its own formula, and a
    segment embedding (left or right).

    Args:
        size: D, even; also the embedding size.
        layers, heads, dropout, shared: as for the base class.
    """

    def __init__(self, size: int, layers: int, heads: int, dropout: float, *, shared: bool) -> None:
        super().__init__(size, layers, heads, dropout, shared=shared)
        # As large as positions and words: if the sides are hard to tell apart, pairs are learned slowly.
        self.formulas = nn.Parameter(torch.empty(2, size).normal_())

    def forward(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """Encode a batch of pairs.

        Args:
            embedded: (2B, T, D), padded on the right: the left formulas, then the right ones.
            lengths: (2B,) int64.
        Returns:
            Summaries of the pairs, (B, D).
        """
        positions, padded = _positions_and_padding(embedded, lengths)
        left, right = embedded.chunk(2)
        tokens = torch.cat([left + self.formulas[0], right + self.formulas[1]], dim=1)
        # The right formula follows the last token of the left one, so that all padding is at the end.
        padded = torch.cat(padded.chunk(2), dim=1)
        longest = int(lengths.view(2, -1).sum(0).max())
        places = padded.int().argsort(dim=1, stable=True)[:, :longest]
        tokens = tokens.gather(1, places.unsqueeze(-1).expand(-1, -1, tokens.shape[-1]))
        return self.summarize(tokens, positions.repeat(2, 1)[places], padded.gather(1, places))


def _first_output(layer: Any, tokens: Tensor, mask: Tensor) -> Tensor:
    """The output of a pre-LN `nn.TransformerEncoderLayer` for the first token alone, (B, 1, D).

    Args:
        layer: the layer.
        tokens: its input, (B, S, D).
        mask: which tokens are padding, (B, S) bool.
    """
    keys = layer.norm1(tokens)
    attended, _ = layer.self_attn(keys[:, :1], keys, keys, key_padding_mask=mask, need_weights=False)
    first: Tensor = tokens[:, :1] + layer.dropout1(attended)
    hidden = layer.dropout(layer.activation(layer.linear1(layer.norm2(first))))
    result: Tensor = first + layer.dropout2(layer.linear2(hidden))
    return result


def sinusoids(positions: Tensor, size: int) -> Tensor:
    """Compute the sinusoidal positional encoding of Vaswani et al. (2017), §3.5.

    Args:
        positions: (T,).
        size: D, even.
    Returns:
        (T, D): first the sines, then the cosines.
    Example:
        >>> sinusoids(torch.tensor([0]), 4)
        tensor([[0., 0., 1., 1.]])
    """
    rates = torch.exp(torch.arange(size // 2, device=positions.device) * (-2 * math.log(10_000) / size))
    angles = positions.unsqueeze(1) * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def _positions_and_padding(tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Positional encodings, (T, D), and which tokens are padding, (B, T)."""
    steps = torch.arange(tokens.shape[1], device=tokens.device)
    padded = steps >= copy_to(lengths, tokens.device).unsqueeze(1)
    return sinusoids(steps, tokens.shape[-1]).to(tokens.dtype), padded
