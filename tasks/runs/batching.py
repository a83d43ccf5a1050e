"""Cut a data set into batches of sequences of similar length, and pad them.

Such batches have little padding, which not every model leaves out of its computation.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Indices = NDArray[np.int64]

BATCHES_PER_BUCKET = 50
"""Number of batches that are sorted by length together. More give less padding, fewer a more random order."""


def bucketed_batches(
    lengths: Sequence[int] | NDArray[np.integer], batch_size: int, *, seed: int, epoch: int
) -> list[Indices]:
    """Cut one training epoch into batches of similar lengths, in random order.

    The examples are shuffled, cut into buckets of `BATCHES_PER_BUCKET` batches, sorted by length within
    each bucket and cut into batches; then the batches are shuffled. One batch may be smaller.

    Args:
        lengths: (n,) length of each example.
        batch_size: examples in a batch.
        seed: not negative.
        epoch: not negative; with the seed it determines the result.
    Returns:
        Arrays of indices; every index 0..n-1 is in exactly one.
    Raises:
        ValueError: `batch_size` is less than 1 or `lengths` is not one-dimensional.

    Example:
        >>> batches = bucketed_batches([5, 1, 5, 1], 2, seed=0, epoch=0)
        >>> sorted(sorted(batch.tolist()) for batch in batches)
        [[0, 2], [1, 3]]
    """
    sizes = _check(lengths, batch_size)
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(sizes.size)
    batches: list[Indices] = []
    for start in range(0, sizes.size, batch_size * BATCHES_PER_BUCKET):
        bucket = order[start : start + batch_size * BATCHES_PER_BUCKET]
        bucket = bucket[np.argsort(sizes[bucket], kind="stable")]
        batches += [bucket[i : i + batch_size] for i in range(0, bucket.size, batch_size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def evaluation_batches(
    lengths: Sequence[int] | NDArray[np.integer], batch_size: int, max_tokens: int | None = None
) -> list[Indices]:
    """Cut a data set into batches by decreasing length.

    The longest examples come first, so that running out of memory happens at once.

    Args:
        lengths: (n,) length of each example.
        batch_size: maximum number of examples in a batch.
        max_tokens: maximum number of tokens in a batch, padding included; None for no limit. A longer example
            has a batch of its own.
    Returns:
        Arrays of indices; every index 0..n-1 is in exactly one.
    Raises:
        ValueError: `batch_size` or `max_tokens` is less than 1 or `lengths` is not one-dimensional.

    Example:
        >>> [batch.tolist() for batch in evaluation_batches([2, 9, 3, 4], 3, max_tokens=10)]
        [[1], [3, 2], [0]]
    """
    sizes = _check(lengths, batch_size)
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, not {max_tokens}")
    order = np.argsort(-sizes, kind="stable")
    batches: list[Indices] = []
    start = 0
    while start < order.size:
        longest = max(1, int(sizes[order[start]]))
        fitting = batch_size if max_tokens is None else max(1, min(batch_size, max_tokens // longest))
        batches.append(order[start : start + fitting])
        start += fitting
    return batches


class TokenSequences:
    """Sequences of token ids, concatenated in one array.

    Args:
        sequences: token ids, one byte each.
    Example:
        >>> TokenSequences([bytes([5]), bytes([6, 7])]).pad(np.array([1, 0]))
        (tensor([[6, 7],
                [5, 0]]), tensor([2, 1]))
    """

    def __init__(self, sequences: Sequence[bytes]) -> None:
        self.tokens = np.frombuffer(b"".join(sequences), dtype=np.uint8)
        self.lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
        self.starts = np.cumsum(self.lengths) - self.lengths

    def pad(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Collate sequences to a padded batch.

        Args:
            indices: which sequences, (B,).
        Returns:
            Their tokens, padded with 0 on the right, (B, T) int64, and their lengths, (B,) int64.
        """
        lengths = self.lengths[indices]
        steps = np.arange(lengths.max(initial=0))
        is_token = steps < lengths[:, None]
        positions = np.where(is_token, self.starts[indices][:, None] + steps, 0)
        padded = np.where(is_token, self.tokens[positions], 0).astype(np.int64)
        return torch.from_numpy(padded), torch.from_numpy(lengths)


def _check(lengths: Sequence[int] | NDArray[np.integer], batch_size: int) -> Indices:
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    sizes = np.asarray(lengths, dtype=np.int64)
    if sizes.ndim != 1:
        raise ValueError(f"lengths must have one axis, not the shape {sizes.shape}")
    return sizes
