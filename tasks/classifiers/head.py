"""The classification head: an MLP on top of the encoder."""

from __future__ import annotations

from torch import nn

from tasks.classifiers.encoders import EncoderConfig


def build_head(config: EncoderConfig, input_size: int, classes: int) -> nn.Sequential:
    """Linear → ELU → linear, with dropout before each linear layer.

    Args:
        config: hidden size (`slot_size`) and `output_dropout`.
        input_size: size of the input.
        classes: C, number of classes.
    Returns:
        A module that maps (B, input_size) to logits (B, C).
    """
    return nn.Sequential(
        nn.Dropout(config.output_dropout),
        nn.Linear(input_size, config.slot_size),
        nn.ELU(),
        nn.Dropout(config.output_dropout),
        nn.Linear(config.slot_size, classes),
    )
