"""What the encoders of the classification tasks return."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Rollout(NamedTuple):
    """The actions taken on a batch, for the policy gradient. Entries of padding are meaningless.

    Args:
        log_probabilities: log π of the action at each token, (B, T).
        values: v, the predicted reward, at each token, (B, T).
        entropies: entropy of π at each token in nats, (B, T).
        lengths: number of tokens of each sequence, (B,) int64.
    """

    log_probabilities: Tensor
    values: Tensor
    entropies: Tensor
    lengths: Tensor


class Encoded(NamedTuple):
    """The output of an encoder for a batch of B sequences; what it does not have is None.

    Args:
        summary: one vector for each sequence, (B, H).
        attention: attention over the N slots at each token, (B, T, N), in the forward direction.
        merges: which neighbors the encoder merged in each step, (B, T - 1) int64: i merges nodes i and i + 1
            of the remaining ones. A sequence of n tokens has n - 1 steps; later entries are meaningless.
        penalty: a penalty for each sequence, (B,), whose mean is added to the training loss.
        rollout: the actions that the encoder took, which become a penalty by policy gradient.
        distances: forget distance of each token, (B, T), of the last layer in the forward direction.
    """

    summary: Tensor
    attention: Tensor | None = None
    merges: Tensor | None = None
    penalty: Tensor | None = None
    rollout: Rollout | None = None
    distances: Tensor | None = None
