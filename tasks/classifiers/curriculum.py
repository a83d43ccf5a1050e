"""Curriculum learning: the first epochs have only short examples."""

from __future__ import annotations

import numpy as np

from tasks.classifiers.config import CurriculumConfig
from tasks.runs.batching import Indices


def examples_of_epoch(config: CurriculumConfig, sentence_lengths: Indices, epoch: int) -> Indices:
    """Choose the training examples of an epoch: the short ones, or all after `curriculum_epochs`.

    Args:
        config: the curriculum.
        sentence_lengths: number of tokens of each sentence, (n, k) int64.
        epoch: starts at 1.
    Returns:
        Their indices in increasing order.
    """
    if epoch > config.curriculum_epochs:
        return np.arange(len(sentence_lengths))
    return np.flatnonzero(sentence_lengths.max(1) <= config.curriculum_length)
