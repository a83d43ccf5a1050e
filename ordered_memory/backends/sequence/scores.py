"""The two scores with explicit backward passes, for all candidates that can be attended to."""

from __future__ import annotations

import torch
from torch import Tensor

from ordered_memory.backends.contract import Weights
from ordered_memory.backends.sequence.maps import LayerNorm, Linear
from ordered_memory.backends.sequence.masks import RowMasks

ROWS_AT_ONCE = 256
"""Number of candidates that are processed together: few enough to stay in the cache."""


class Score:
    """Base class of the scores: the map of the keys, and `a = w · features`.

    Args:
        weights: weights of the recurrence.
    """

    def __init__(self, weights: Weights) -> None:
        self.key, self.score_out = Linear(weights, "key", "key_bias"), weights.score_out
        self.d_score_out = torch.zeros_like(self.score_out)

    def forward(
        self, query: Tensor, row: Tensor, candidate: Tensor, masks: tuple[RowMasks, RowMasks]
    ) -> tuple[Tensor, Tensor]:
        """Score candidates.

        Args:
            query: the query of each row, (R, D).
            row: the row of each candidate, (E,).
            candidate: M̂, (E, D).
            masks: dropout masks of the candidates and of the features.
        Returns:
            a, (E,), and a tensor saved for `backward`, (E, D).
        """
        values, saved = candidate.new_empty(len(row)), candidate.new_empty(candidate.shape)
        for chunk in _chunks(len(row)):
            candidate_masks, feature_masks = (mask.rows(chunk) for mask in masks)
            key = saved[chunk]
            self.key.forward(candidate[chunk], candidate_masks, key)
            features = self._features(key, query.index_select(0, row[chunk]))
            torch.mv(feature_masks.apply(features), self.score_out, out=values[chunk])
        return values, saved

    def backward(
        self,
        d_scores: Tensor,
        query: Tensor,
        row: Tensor,
        candidate: Tensor,
        masks: tuple[RowMasks, RowMasks],
        saved: Tensor,
        d_candidate: Tensor,
    ) -> Tensor:
        """The backward pass of `forward`, which also accumulates the gradients of the weights.

        Args:
            d_scores: gradient of the scores, (E,).
            query, row, candidate, masks: arguments of `forward`.
            saved: tensor that `forward` saved.
            d_candidate: gradient of the candidates, (E, D); accumulated in place.
        Returns:
            The gradient of the queries, (R, D).
        """
        d_query = torch.zeros_like(query)
        d_keys = torch.empty_like(saved)
        masked = candidate if masks[0].values is None else torch.empty_like(saved)
        for chunk in _chunks(len(row)):
            candidate_masks, feature_masks = (mask.rows(chunk) for mask in masks)
            features, *statistics = self._recompute(saved[chunk], query.index_select(0, row[chunk]))
            self.d_score_out.addmv_(feature_masks.apply(features).t(), d_scores[chunk])
            d_features = feature_masks.apply(torch.outer(d_scores[chunk], self.score_out))
            d_sum = self._features_backward(d_features, saved[chunk], features, statistics, d_keys[chunk])
            d_query.index_add_(0, row[chunk], d_sum)
            self.key.backward(
                d_keys[chunk], candidate[chunk], candidate_masks, masked[chunk], d_candidate[chunk]
            )
        self.key.add_weight_gradient(d_keys, masked)
        return d_query

    def gradients(self) -> dict[str, Tensor]:
        """The gradients of the weights, by name."""
        return self.key.gradients() | {"score_out": self.d_score_out}

    def _features(self, key: Tensor, query: Tensor) -> Tensor:
        """Compute the features. May overwrite both arguments; then `key` holds what `backward` needs."""
        raise NotImplementedError

    def _recompute(self, saved: Tensor, query: Tensor) -> tuple[Tensor, ...]:
        """Recompute the features, then mean and rstd if there is a LayerNorm, from what `forward` saved."""
        raise NotImplementedError

    def _features_backward(
        self, d_features: Tensor, saved: Tensor, features: Tensor, statistics: list[Tensor], d_keys: Tensor
    ) -> Tensor:
        """Return the gradient of the queries and write that of the keys."""
        raise NotImplementedError


class Additive(Score):
    """`AdditiveScore`: `features = tanh(query + key)`."""

    def _features(self, key: Tensor, query: Tensor) -> Tensor:
        return key.add_(query).tanh_()

    def _recompute(self, saved: Tensor, query: Tensor) -> tuple[Tensor, ...]:
        return (saved,)

    def _features_backward(
        self, d_features: Tensor, saved: Tensor, features: Tensor, statistics: list[Tensor], d_keys: Tensor
    ) -> Tensor:
        torch.ops.aten.tanh_backward(d_features, features, grad_input=d_keys)
        return d_keys


class Normalized(Score):
    """`NormalizedScore`: `features = relu(query + LN(key))`, where the query is already normalized.

    Args:
        weights: weights of the recurrence.
        epsilon: epsilon of the LayerNorm of the keys.
    """

    def __init__(self, weights: Weights, epsilon: float) -> None:
        super().__init__(weights)
        self.norm = LayerNorm(weights, "key_norm", epsilon)

    def _features(self, key: Tensor, query: Tensor) -> Tensor:
        return self._recompute(key, query)[0]

    def _recompute(self, saved: Tensor, query: Tensor) -> tuple[Tensor, ...]:
        normalized, mean, rstd = self.norm.forward(saved)
        return normalized.add_(query).relu_(), mean, rstd

    def _features_backward(
        self, d_features: Tensor, saved: Tensor, features: Tensor, statistics: list[Tensor], d_keys: Tensor
    ) -> Tensor:
        d_sum: Tensor = torch.ops.aten.threshold_backward(d_features, features, 0)
        d_keys.copy_(self.norm.backward(d_sum, saved, *statistics))
        return d_sum

    def gradients(self) -> dict[str, Tensor]:
        return super().gradients() | self.norm.gradients


def _chunks(rows: int) -> list[slice]:
    return [slice(a, a + ROWS_AT_ONCE) for a in range(0, rows, ROWS_AT_ONCE)]
