"""Batches of embeddings, the same for all contenders.

Axes: B batch, T time, E embedding size, D slot size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tasks.benchmark.workloads import Sizes, TokenBatch


class Batch(NamedTuple):
    """The input of a network.

    Args:
        inputs: embeddings, (T, B, E).
        lengths: (B,) int64, on the CPU.
        mask: True at tokens, False at padding, (T, B) bool.
        weights: the loss is the sum of the network's output times these: (B, D) for a summary of each
            sequence, (T, B, H) for an output at every token.
    """

    inputs: Tensor
    lengths: Tensor
    mask: Tensor
    weights: Tensor


def embed(batch: TokenBatch, table: Tensor, sizes: Sizes, seed: int) -> Batch:
    """Look up the embeddings of a batch of tokens.

    Args:
        batch: tokens, padded with 0 on the right.
        table: embeddings, (vocabulary + 1, E), on the device of the new batch.
        sizes: gives D.
        seed: seed of the weights of the loss.
    Returns:
        The batch.
    """
    tokens = torch.from_numpy(batch.tokens).to(table.device)
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(tokens.shape[1], sizes.slot_size, generator=generator).to(table.device)
    return Batch(table[tokens], torch.from_numpy(batch.lengths), tokens != 0, weights)


def pad_left(batch: Batch) -> Batch:
    """Move the padding of a batch to the left.

    Args:
        batch: padded on the right.
    """
    steps = len(batch.inputs)
    t = torch.arange(steps, device=batch.inputs.device).unsqueeze(1)
    source = (t + batch.lengths.to(t.device)) % steps
    inputs = batch.inputs.gather(0, source.unsqueeze(-1).expand_as(batch.inputs))
    return batch._replace(inputs=inputs, mask=batch.mask.gather(0, source))
