"""The trees with the highest total span score, and span scores of distances.

B is the number of sentences, T the number of tokens of the longest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch_struct
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ordered_memory.charts import from_chart
from ordered_memory.checks import check_tensor, is_number, sequence_lengths
from ordered_memory.trees import Tree

SENTENCES_PER_CKY, CELLS_PER_CKY = 512, 4_000_000
"""Maximum batch of CKY: number of sentences, and number of sentences times T³ (about 200 MB)."""
LONGEST_CKY = 800
"""Number of tokens above which the commands and traces do without CKY: time and memory (4 GB) grow with its
cube."""
WITHOUT_FLOAT64 = {"mps"}
"""Types of devices that cannot compute in float64."""


def span_scores(distances: Tensor, temperature: float = 1.0) -> Tensor:
    """Span scores under which the tree with the highest total score is the most probable one given distances.

    Let a tree be sampled top-down, where a span i..j (inclusive) is split before its token k, i < k ≤ j,
    with probability softmax_k(d_k / τ) over d_{i+1..j}. Then

        log P(tree) = Σ_{spans i..j split before k} (d_k / τ - logsumexp_{i<l≤j} d_l / τ).

    A binary tree splits exactly once before each token but the first, so the first terms have the same sum in
    all trees. What remains is a sum over the spans of the tree: score(i, j) = -logsumexp_{i<k≤j} d_k / τ.
    As τ → 0, all probability goes to the tree of `greedy` with "unbiased".

    Args:
        distances: d, (B, T); values after the end of a sentence do not affect its spans.
        temperature: τ > 0, in master-gate entries.
    Returns:
        (B, T, T) float64, the argument of `cky`: score(i, j) for i < j, else 0; on the CPU if the device of
        the distances has no float64.
    Raises:
        TypeError: the distances are not a tensor.
        ValueError: the distances have other axes or are complex, or the temperature is not positive.
    Example:
        >>> span_scores(torch.tensor([[0.0, 1.0, 2.0]]))[0, 1].tolist()
        [0.0, 0.0, -2.0]
    """
    check_tensor("distances", distances)
    if distances.dim() != 2:
        raise ValueError(f"expected distances to be (B, T), got shape {tuple(distances.shape)}")
    check_temperature(temperature)
    d = as_float64("distances", distances) / temperature
    size = d.shape[1]
    upper_triangle = torch.ones(size, size, dtype=torch.bool, device=d.device).triu(1)
    log_sums = d[:, None, :].expand(-1, size, -1).masked_fill(~upper_triangle, -torch.inf).logcumsumexp(-1)
    return torch.where(upper_triangle, -log_sums, 0.0)


def cky(scores: Tensor, lengths: Sequence[int] | Tensor | None = None) -> list[Tree]:
    """The binary trees with the highest total span score, by dynamic programming in torch-struct.

    It computes in float64, on the CPU if the device of the scores has none.

    Args:
        scores: (B, T, T), any real dtype: entry (i, j) is the score of the span i..j, both inclusive.
            -inf excludes a span, unless every tree has an excluded one. Entries below the diagonal or beyond
            a sentence's length are ignored.
        lengths: number of tokens of each sentence, (B,), in 1..T; None if every sentence has T tokens.
    Returns:
        B binary trees. Ties are broken deterministically.
    Raises:
        TypeError: the scores are not a tensor.
        ValueError: the scores have the wrong shape, are complex, contain NaN or +inf, or are too large
            beside -inf; or the lengths do not fit them.
    Example:
        >>> cky(torch.tensor([[[0.0, 1.0, 0.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]]))
        [(0, (1, 2))]
    """
    check_tensor("scores", scores)
    if scores.dim() != 3 or scores.shape[1] != scores.shape[2]:
        raise ValueError(f"expected scores to be (B, T, T), got shape {tuple(scores.shape)}")
    sizes = sequence_lengths(lengths, *scores.shape[:2])
    if not sizes:
        return []
    scores = as_float64("scores", scores.detach())
    # torch-struct computes the argmax as a gradient, and sets requires_grad on the tensor that it gets.
    # It also makes tensors on the default device.
    with torch.inference_mode(False), torch.enable_grad(), scores.device:
        ends = torch.tensor(sizes, device=scores.device)
        potentials = _zero_outside(scores, ends)
        if bool(potentials.isnan().any() | potentials.isposinf().any()):
            raise ValueError("expected scores to be finite or -inf, got NaN or infinity")
        potentials = _exclude(potentials)
        if bool(potentials.isneginf().any()):
            raise ValueError("expected smaller scores beside -inf: their sums are not finite")
        charts = _TreeCRF(potentials.unsqueeze(-1), lengths=ends).argmax
    return [from_chart(chart, size) for chart, size in zip(charts.squeeze(-1).cpu(), sizes, strict=True)]


class _TreeCRF(torch_struct.TreeCRF):  # type: ignore[misc]
    # torch.distributions warns about a class that does not define this.
    arg_constraints: dict[str, Any] = {}  # noqa: RUF012 - as in its base class


def most_probable(distances: Sequence[Tensor], temperature: float) -> list[Tree]:
    """`cky` on the `span_scores` of sentences.

    Args:
        distances: those of each sentence, (T,).
        temperature: see `span_scores`.
    Returns:
        A tree for each sentence.
    """

    def scores(batch: Sequence[int]) -> Tensor:
        return span_scores(pad_sequence([distances[i] for i in batch], batch_first=True), temperature)

    return cky_in_batches([len(d) for d in distances], scores)


def cky_in_batches(lengths: Sequence[int], scores: Callable[[Sequence[int]], Tensor]) -> list[Tree]:
    """`cky` on many sentences, in batches of similar lengths that limit memory use.

    Args:
        lengths: number of tokens of each sentence.
        scores: returns the span scores of a batch, (B, T, T), given the indices of its sentences. The first
            of them is the longest, with T tokens.
    Returns:
        A tree for each sentence.
    """
    order = sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True)
    tree_by_index: dict[int, Tree] = {}
    while order:
        longest = lengths[order[0]]
        batch_size = max(1, min(SENTENCES_PER_CKY, CELLS_PER_CKY // longest**3))
        batch, order = order[:batch_size], order[batch_size:]
        trees = cky(scores(batch), [lengths[i] for i in batch])
        tree_by_index.update(zip(batch, trees, strict=True))
    return [tree_by_index[i] for i in range(len(lengths))]


def check_temperature(temperature: float) -> None:
    """Check the temperature of `span_scores`.

    Args:
        temperature: τ.
    Raises:
        ValueError: it is not a positive number, or a tensor of one.
    """
    if not is_number(temperature) or not temperature > 0:
        raise ValueError(f"expected temperature > 0, got {temperature!r}")


def as_float64(name: str, values: Tensor) -> Tensor:
    """Convert real numbers to float64, on the CPU if their device (such as MPS) does not support float64.

    Args:
        name: name of the argument, for the error message.
        values: value of the argument.
    Returns:
        The values, in float64.
    Raises:
        ValueError: the values are complex.
    """
    if values.is_complex():
        raise ValueError(f"expected {name} to be real, got {values.dtype}")
    return (values.cpu() if values.device.type in WITHOUT_FLOAT64 else values).to(torch.float64)


def _exclude(scores: Tensor) -> Tensor:
    """Replace -inf by scores so low that a tree with one of them is worse than any tree without."""
    excluded = scores.isneginf()
    lowest, highest = scores.masked_fill(excluded, 0).aminmax()
    return scores.masked_fill(excluded, lowest - 2 * scores.shape[1] * (highest - lowest + 1))


def _zero_outside(scores: Tensor, ends: Tensor) -> Tensor:
    """A copy of the scores with zeros below the diagonal and beyond the end of each sentence."""
    inside = torch.arange(scores.shape[1], device=scores.device) < ends[:, None]
    spans_inside = (inside[:, :, None] & inside[:, None, :]).triu()
    return scores.where(spans_inside, 0)
