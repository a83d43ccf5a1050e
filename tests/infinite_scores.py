"""Scores that have overflowed."""

import torch
from torch import nn

from ordered_memory.attention import AdditiveScore


def make_scores_minus_infinity(score: AdditiveScore) -> None:
    """Set the weights so that the score of every slot is -inf."""
    for weight, value in ((score.query.weight, 0), (score.key.weight, 0), (score.key.bias, 9)):
        nn.init.constant_(weight, value)
    nn.init.constant_(score.output.weight, -torch.inf)
