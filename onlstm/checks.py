"""Checks of the arguments of `onlstm.functional.run_recurrence`, for the definition and all backends."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def check_recurrence(
    tokens: Tensor,
    batch_sizes: Sequence[int] | Tensor,
    weights: tuple[Tensor, Tensor, Tensor | None],
    hidden: Tensor,
    cell: Tensor,
    chunk_size: int,
) -> None:
    """Check the shapes of the tensors; no values are read.

    Args:
        tokens, batch_sizes, weights, hidden, cell, chunk_size: arguments of `run_recurrence`.
    Raises:
        ValueError: a tensor has the wrong shape.
    """
    weight_ih, weight_hh, bias = weights
    for name, tensor, axes in (
        ("tokens", tokens, 2),
        ("batch_sizes", batch_sizes, 1),
        ("weights.weight_hh", weight_hh, 2),
        ("hidden", hidden, 2),
    ):
        if isinstance(tensor, Tensor) and tensor.dim() != axes:
            raise ValueError(f"{name} must have {axes} axes, got shape {tuple(tensor.shape)}")
    rows, size = weight_hh.shape
    if chunk_size < 1 or size % chunk_size or rows != 4 * size + 2 * (size // chunk_size):
        raise ValueError(
            f"weights.weight_hh must be (4H + 2M, H), got {(rows, size)} for chunk_size={chunk_size}"
        )
    for name, given, shape in (
        ("weights.weight_ih", weight_ih, (rows, tokens.shape[1])),
        ("weights.bias", bias, (rows,)),
        ("hidden", hidden, (hidden.shape[0], size)),
        ("cell", cell, (hidden.shape[0], size)),
    ):
        if given is not None and tuple(given.shape) != shape:
            raise ValueError(f"{name} must have shape {shape}, got {tuple(given.shape)}")


def check_batch_sizes(batch_sizes: list[int], num_tokens: int, num_sequences: int) -> None:
    """Check the number of sequences at each step.

    Args:
        batch_sizes: argument of `run_recurrence`.
        num_tokens: P.
        num_sequences: B.
    Raises:
        ValueError: they are not positive and non-increasing, the first one is larger than B, or their sum is
            not P.
    """
    if not batch_sizes or sorted(batch_sizes, reverse=True) != batch_sizes or batch_sizes[-1] < 1:
        raise ValueError(f"batch_sizes must be positive and non-increasing, got {batch_sizes[:20]}")
    if batch_sizes[0] > num_sequences:
        raise ValueError(f"batch_sizes[0] must be at most {num_sequences} (B), got {batch_sizes[0]}")
    if sum(batch_sizes) != num_tokens:
        raise ValueError(
            f"tokens must have {sum(batch_sizes)} rows, the sum of batch_sizes, got {num_tokens}"
        )
