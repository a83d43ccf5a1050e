"""The two scores with their backward passes written out, for all candidates that can be attended to."""

from __future__ import annotations

import torch
from torch import Tensor

from ordered_memory.backends.contract import Weights
from ordered_memory.backends.sequence.gradients import WeightGradient
from ordered_memory.backends.sequence.masks import RowMasks

ROWS_AT_ONCE = 256
"""Candidates that go through all operations together: few enough to stay in the cache."""


class Score:
    """What both scores share: the key map, and `a = w · act`.

    Args:
        weights: of the recurrence.
        epsilon: of the key's LayerNorm.
    """

    def __init__(self, weights: Weights, epsilon: float) -> None:
        self.key, self.key_bias, self.score = weights.key, weights.key_bias, weights.score
        self.epsilon = epsilon
        self.key_t = self.key.t().contiguous()
        self.key_gradient = WeightGradient(self.key)
        self.key_bias_gradient = torch.zeros_like(self.key_bias)
        self.score_gradient = torch.zeros_like(self.score)

    def forward(
        self, query: Tensor, row: Tensor, candidate: Tensor, masks: tuple[RowMasks, RowMasks]
    ) -> tuple[Tensor, Tensor]:
        """The scores of candidates.

        Args:
            query: of the token of each row, (R, D).
            row: of each candidate, (E,).
            candidate: M̂, (E, D).
            masks: of the candidates and of the features.
        Returns:
            a, (E,), and what `backward` needs, (E, D).
        """
        values, saved = candidate.new_empty(len(row)), candidate.new_empty(candidate.shape)
        for chunk in _chunks(len(row)):
            inputs, features = (part.rows(chunk) for part in masks)
            key = saved[chunk]
            torch.addmm(self.key_bias, inputs.apply(candidate[chunk]), self.key_t, out=key)
            act = self._act(key, query.index_select(0, row[chunk]))
            torch.mv(features.apply(act), self.score, out=values[chunk])
        return values, saved

    def backward(
        self,
        gradient: Tensor,
        query: Tensor,
        row: Tensor,
        candidate: Tensor,
        masks: tuple[RowMasks, RowMasks],
        saved: Tensor,
        into: Tensor,
    ) -> Tensor:
        """The reverse of `forward`; sums the weights' gradients.

        Args:
            gradient: of the scores, (E,).
            query, row, candidate, masks: as for `forward`.
            saved: from `forward`.
            into: gradient of the candidates, (E, D), to be added to.
        Returns:
            The gradient of the queries, (R, D).
        """
        query_gradient = torch.zeros_like(query)
        key_gradient = torch.empty_like(saved)
        masked = candidate if masks[0].values is None else torch.empty_like(saved)
        for chunk in _chunks(len(row)):
            inputs, features = (part.rows(chunk) for part in masks)
            act, remember = self._act_again(saved[chunk], query.index_select(0, row[chunk]))
            self.score_gradient.addmv_(features.apply(act).t(), gradient[chunk])
            act_gradient = features.apply(torch.outer(gradient[chunk], self.score))
            sum_gradient = self._act_backward(act_gradient, act, saved[chunk], remember, key_gradient[chunk])
            query_gradient.index_add_(0, row[chunk], sum_gradient)
            self.key_bias_gradient += key_gradient[chunk].sum(0)
            mask = inputs.mask(into)
            if mask is None:
                into[chunk].addmm_(key_gradient[chunk], self.key)
            else:
                torch.mul(candidate[chunk], mask, out=masked[chunk])
                into[chunk].addcmul_(torch.mm(key_gradient[chunk], self.key), mask)
        self.key_gradient.add(key_gradient, masked)
        return query_gradient

    def gradients(self) -> dict[str, Tensor]:
        """Of the weights, by name."""
        key = {"key": self.key_gradient.result(), "key_bias": self.key_bias_gradient}
        return key | {"score": self.score_gradient}

    def _act(self, key: Tensor, query: Tensor) -> Tensor:
        """The features of keys and queries. Both may be overwritten, keys with what `backward` needs."""
        raise NotImplementedError

    def _act_again(self, saved: Tensor, query: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The features again, and what else `_act_backward` needs."""
        raise NotImplementedError

    def _act_backward(
        self, gradient: Tensor, act: Tensor, saved: Tensor, remember: tuple[Tensor, ...], key_gradient: Tensor
    ) -> Tensor:
        """The gradient of the query; writes that of the keys."""
        raise NotImplementedError


class Additive(Score):
    """`AdditiveScore`: `act = tanh(query + key)`."""

    def _act(self, key: Tensor, query: Tensor) -> Tensor:
        return key.add_(query).tanh_()

    def _act_again(self, saved: Tensor, query: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        return saved, ()

    def _act_backward(
        self, gradient: Tensor, act: Tensor, saved: Tensor, remember: tuple[Tensor, ...], key_gradient: Tensor
    ) -> Tensor:
        torch.ops.aten.tanh_backward(gradient, act, grad_input=key_gradient)
        return key_gradient


class Normalized(Score):
    """`NormalizedScore`: `act = relu(query + LN(key))`; the query comes normalised."""

    def __init__(self, weights: Weights, epsilon: float) -> None:
        super().__init__(weights, epsilon)
        assert weights.key_norm is not None
        assert weights.key_norm_bias is not None
        self.norm = [weights.key_norm, weights.key_norm_bias]
        self.norm_gradients = [torch.zeros_like(weight) for weight in self.norm]

    def _act(self, key: Tensor, query: Tensor) -> Tensor:
        return self._act_again(key, query)[0]

    def _act_again(self, saved: Tensor, query: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        weight, bias = self.norm
        normalized, mean, inverse = torch.native_layer_norm(
            saved, saved.shape[1:], weight, bias, self.epsilon
        )
        return normalized.add_(query).relu_(), (mean, inverse)

    def _act_backward(
        self, gradient: Tensor, act: Tensor, saved: Tensor, remember: tuple[Tensor, ...], key_gradient: Tensor
    ) -> Tensor:
        sum_gradient: Tensor = torch.ops.aten.threshold_backward(gradient, act, 0)
        of_key, weight, bias = torch.ops.aten.native_layer_norm_backward(
            sum_gradient, saved, saved.shape[1:], *remember, *self.norm, [True, True, True]
        )
        key_gradient.copy_(of_key)
        self.norm_gradients[0] += weight
        self.norm_gradients[1] += bias
        return sum_gradient

    def gradients(self) -> dict[str, Tensor]:
        weight, bias = self.norm_gradients
        return super().gradients() | {"key_norm": weight, "key_norm_bias": bias}


def score_kernel(weights: Weights, epsilon: float) -> Score:
    """The kernel of a score.

    Args:
        weights: of the additive score, which has no `key_norm`, or of the normalized one.
        epsilon: of the normalized score's LayerNorm.
    """
    return Additive(weights, epsilon) if weights.key_norm is None else Normalized(weights, epsilon)


def _chunks(rows: int) -> list[slice]:
    return [slice(a, a + ROWS_AT_ONCE) for a in range(0, rows, ROWS_AT_ONCE)]
