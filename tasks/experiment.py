"""One training run from its configuration to its results, the same way for every task."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from lightning_fabric import Fabric
from torch import nn

from tasks.run_directory import RunDirectory
from tasks.training import Task, Trainer, build_fabric
from tasks.training_config import TrainingConfig


class Prepared(NamedTuple):
    """What a task brings to a run.

    Args:
        task: batches and losses.
        model: with its initial weights, on the CPU.
        description: of model and data, in a line.
        finish: the one look at the test data, in the main process, unless it has been taken already.
    """

    task: Task
    model: nn.Module
    description: str
    finish: Callable[[RunDirectory, Fabric], None]


def run_experiment(config: TrainingConfig, prepare: Callable[[], Prepared]) -> None:
    """Train, then test the best weights once and write the report; with `resume`, whatever of it is left.

    Args:
        config: of the run, with its directory.
        prepare: loads the data and builds the model, PyTorch's generator being seeded.
    Raises:
        UserError: bad options or data, a directory that holds another run.
        KeyboardInterrupt: stopped; the run directory holds a checkpoint.
    """
    config.check()
    run = RunDirectory(config.directory)
    fabric = build_fabric(config)
    main = fabric.is_global_zero
    if main and not config.resume:
        run.check_free()
    torch.manual_seed(config.seed)
    prepared = prepare()
    fabric.launch()
    if main:
        run.create(config)
        parameters = sum(parameter.numel() for parameter in prepared.model.parameters())
        print(f"{run.path}: {parameters:,} parameters; {prepared.description}", flush=True)
    fabric.barrier()
    Trainer(config, prepared.task, prepared.model, fabric, run).fit()
    if main:
        prepared.finish(run, fabric)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
