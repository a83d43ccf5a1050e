"""What the encoders of the classification tasks return."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ordered_memory.tree_recovery import ReadingDirection


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
        distances: forget distance of each token in the forward direction, (B, T), or of all layers,
            (L, B, T).
        backward_attention: the attention in the backward direction, (B, T, N).
        backward_distances: the distances in the backward direction, (B, T) or (L, B, T).
    """

    summary: Tensor
    attention: Tensor | None = None
    merges: Tensor | None = None
    penalty: Tensor | None = None
    rollout: Rollout | None = None
    distances: Tensor | None = None
    backward_attention: Tensor | None = None
    backward_distances: Tensor | None = None

    @property
    def distances_of_trees(self) -> dict[ReadingDirection, Tensor]:
        """The distances in each direction, (L, B, T); empty if trees are read from merges or attention."""
        if self.merges is not None or self.attention is not None or self.distances is None:
            return {}
        found: dict[ReadingDirection, Tensor | None] = {
            "forward": self.distances,
            "backward": self.backward_distances,
        }
        return {
            direction: distances if distances.dim() == 3 else distances.unsqueeze(0)
            for direction, distances in found.items()
            if distances is not None
        }
