"""Curriculum learning: the first epochs have only short examples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.classifiers.encoders import EncoderConfig
from tasks.runs.batching import Indices
from tasks.runs.options import check_at_least


@dataclass
class CurriculumConfig(EncoderConfig):
    """Curriculum."""

    curriculum_epochs: int = 0
    """Number of epochs at the beginning that have short training examples only; the learning rate is not
    reduced in them. 0 for no curriculum."""
    curriculum_length: int = 20
    """Maximum number of tokens of a short example; of one with several sentences, those of the longest."""

    def check(self) -> None:
        super().check()
        check_at_least(0, self, "curriculum_epochs")
        check_at_least(1, self, "curriculum_length")

    @property
    def short_epochs(self) -> int:
        return self.curriculum_epochs

    @property
    def unused(self) -> dict[str, str]:
        unused = super().unused
        if not self.curriculum_epochs:
            unused["curriculum_length"] = "without --curriculum-epochs"
        return unused


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
