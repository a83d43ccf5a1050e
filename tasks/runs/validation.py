"""The mean validation loss and accuracy of a model, by which training selects the best epoch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from tasks.runs.fabric import all_reduce
from tasks.runs.interfaces import Objective, Scores
from tasks.runs.machine import to_device


@torch.no_grad()
def validate(objective: Objective, model: nn.Module, batches: Iterable[Any], fabric: Fabric) -> Scores:
    """Compute the mean loss and accuracy of a model, which is left in evaluation mode.

    Args:
        objective: computes the losses of a batch.
        model: model on the device of `fabric`.
        batches: batches on the CPU; each process computes every `world_size`-th of them.
        fabric: already launched.
    """
    model.eval()
    sums = torch.zeros(3, dtype=torch.float64, device=fabric.device)
    for i, batch in enumerate(batches):
        if i % fabric.world_size == fabric.global_rank:
            loss, correct, _ = objective.losses(model, to_device(batch, fabric.device))
            count = torch.tensor(len(loss), dtype=torch.float64, device=fabric.device)
            sums += torch.stack([loss.double().sum(), correct.double().sum(), count])
    loss_sum, correct_sum, examples = all_reduce(fabric, sums).tolist()
    return Scores(loss_sum / examples, correct_sum / examples)
