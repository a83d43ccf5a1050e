"""The two scores with their reverse passes written out, for all candidates that can be attended to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ordered_memory.attention import AdditiveScore, NormalizedScore, ScoreMasks
from ordered_memory.backends.sequence.gradients import LinearGradient
from ordered_memory.dropout import apply_mask

Saved = tuple[Tensor, ...]


class Score:
    """What both scores share: the key map, and `a = w · act / sqrt(D) + b / sqrt(D)`.

    Args:
        weights: `key.weight`, `key.bias`, `output.weight`, `output.bias`, then the score's own.
        gain: factor on the weights of maps whose inputs are dropped.
    """

    def __init__(self, weights: Sequence[Tensor], gain: float) -> None:
        key, self.key_bias, output, output_bias = weights[:4]
        self.scale = 1 / math.sqrt(key.shape[0])
        self.key = key * gain
        self.key_t = self.key.t().contiguous()
        self.output_gain = gain * self.scale
        self.output = output[0] * self.output_gain
        self.output_bias = output_bias * self.scale
        self.key_gradient = LinearGradient(key, gain=gain)
        self.output_gradient = torch.zeros_like(self.output)
        self.bias_gradient = torch.zeros_like(output_bias)

    def forward(self, query: Tensor, candidate: Tensor, masks: ScoreMasks) -> tuple[Tensor, Saved]:
        """The scores of candidates.

        Args:
            query: of the token that each candidate is scored for, (E, D).
            candidate: M̂, (E, D).
            masks: of the entries.
        Returns:
            a, (E,), and what `backward` needs.
        """
        raise NotImplementedError

    def backward(
        self, gradient: Tensor, candidate: Tensor, masks: ScoreMasks, saved: Saved
    ) -> tuple[Tensor, Tensor]:
        """The reverse of `forward`; sums the parameters' gradients.

        Args:
            gradient: of the scores, (E,).
            candidate: M̂, (E, D).
            masks: of the entries.
            saved: of `forward`.
        Returns:
            The gradients of the queries and of the candidates, (E, D) each.
        """
        raise NotImplementedError

    def gradients(self) -> tuple[Tensor | None, ...]:
        """Of the weights, in the order that they were given in."""
        output = (self.output_gradient * self.output_gain).unsqueeze(0)
        return *self.key_gradient.result(), output, self.bias_gradient * self.scale

    def _keys(self, candidate: Tensor, masks: ScoreMasks) -> Tensor:
        return torch.addmm(self.key_bias, apply_mask(candidate, masks.key), self.key_t)

    def _score(self, act: Tensor, masks: ScoreMasks) -> Tensor:
        return torch.mv(apply_mask(act, masks.hidden), self.output) + self.output_bias

    def _act_gradient(self, gradient: Tensor, act: Tensor, masks: ScoreMasks) -> Tensor:
        self.output_gradient.addmv_(apply_mask(act, masks.hidden).t(), gradient)
        self.bias_gradient.add_(gradient.sum())
        return apply_mask(torch.outer(gradient, self.output), masks.hidden)

    def _candidate_gradient(self, key_gradient: Tensor, candidate: Tensor, masks: ScoreMasks) -> Tensor:
        self.key_gradient.add(key_gradient, apply_mask(candidate, masks.key))
        return apply_mask(torch.mm(key_gradient, self.key), masks.key)


class Additive(Score):
    """`AdditiveScore`: `act = tanh(query + key)`."""

    def forward(self, query: Tensor, candidate: Tensor, masks: ScoreMasks) -> tuple[Tensor, Saved]:
        act = self._keys(candidate, masks).add_(query).tanh_()
        return self._score(act, masks), (act,)

    def backward(
        self, gradient: Tensor, candidate: Tensor, masks: ScoreMasks, saved: Saved
    ) -> tuple[Tensor, Tensor]:
        (act,) = saved
        sum_gradient = torch.ops.aten.tanh_backward(self._act_gradient(gradient, act, masks), act)
        return sum_gradient, self._candidate_gradient(sum_gradient, candidate, masks)


class Normalized(Score):
    """`NormalizedScore`: `act = relu(query + LN(key))`; the query comes normalised."""

    def __init__(self, weights: Sequence[Tensor], gain: float) -> None:
        super().__init__(weights, gain)
        self.norm_weight, self.norm_bias = weights[4:]
        self.norm_gradients = [torch.zeros_like(self.norm_weight), torch.zeros_like(self.norm_bias)]
        self.epsilon = 1e-5

    def forward(self, query: Tensor, candidate: Tensor, masks: ScoreMasks) -> tuple[Tensor, Saved]:
        key = self._keys(candidate, masks)
        act, mean, inverse = torch.native_layer_norm(
            key, key.shape[1:], self.norm_weight, self.norm_bias, self.epsilon
        )
        act = act.add_(query).relu_()
        return self._score(act, masks), (key, mean, inverse, act)

    def backward(
        self, gradient: Tensor, candidate: Tensor, masks: ScoreMasks, saved: Saved
    ) -> tuple[Tensor, Tensor]:
        key, mean, inverse, act = saved
        sum_gradient = torch.ops.aten.threshold_backward(self._act_gradient(gradient, act, masks), act, 0)
        key_gradient, weight, bias = torch.ops.aten.native_layer_norm_backward(
            sum_gradient, key, key.shape[1:], mean, inverse, self.norm_weight, self.norm_bias, [True] * 3
        )
        self.norm_gradients[0].add_(weight)
        self.norm_gradients[1].add_(bias)
        return sum_gradient, self._candidate_gradient(key_gradient, candidate, masks)

    def gradients(self) -> tuple[Tensor | None, ...]:
        return *super().gradients(), *self.norm_gradients


SCORE_KERNELS: dict[type, type[Score]] = {AdditiveScore: Additive, NormalizedScore: Normalized}


def score_weights(score: AdditiveScore | NormalizedScore) -> list[Tensor]:
    """The parameters in the order that the kernels take them; the query's map is the caller's."""
    weights = [score.key.weight, score.key.bias, score.output.weight, score.output.bias]
    if isinstance(score, NormalizedScore):
        weights += [score.key_norm.weight, score.key_norm.bias]
    return weights


def queries(score: AdditiveScore | NormalizedScore, tokens: Tensor, mask: Tensor | None) -> Tensor:
    """The queries of all tokens, (tokens, D), by autograd."""
    mapped: Tensor = score.query(apply_mask(tokens, mask))
    return score.query_norm(mapped) if isinstance(score, NormalizedScore) else mapped
