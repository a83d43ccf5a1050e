"""Tiny models without dropout, of any kind, and what every classifier does."""

import torch

from tasks.classifiers.classification import compute_losses

TINY = {
    "slot_size": 8,
    "num_slots": 4,
    "chunk_size": 2,
    "layers": 2,
    "heads": 2,
    "cell_dropout": 0.0,
    "attention_dropout": 0.0,
    "input_dropout": 0.0,
    "output_dropout": 0.0,
}
"""Options for the configuration of any classifier."""


def assert_batch_mates_change_nothing(model, data):
    """Neither padding nor batch-mates change an answer."""
    model = model.double().eval()
    together = model(data.batch(range(len(data.labels)))).logits
    for index, expected in enumerate(together):
        alone = model(data.batch([index])).logits
        assert torch.allclose(alone[0], expected, rtol=1e-9, atol=1e-11), index


def assert_every_weight_learns(model, data):
    """The loss of all examples gives a gradient to every weight."""
    batch = data.batch(range(len(data.labels)))
    losses = compute_losses(model(batch), batch.labels)
    (losses.loss.mean() + (0 if losses.penalty is None else losses.penalty)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        # The last bias of a score shifts all scores alike; elsewhere none is idle.
        assert parameter.grad.abs().sum() > 0 or name.endswith("score.output.bias"), name
