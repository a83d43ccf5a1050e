"""One training run from its configuration to its results, and back from its checkpoint, for every task."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from lightning_fabric import Fabric
from torch import nn

from tasks.runs.checkpoints import load_weights, read_metadata
from tasks.classifiers.encoders import EncoderConfig
from tasks.runs.optimization import Optimization
from tasks.runs.run_directory import RunDirectory, config_from_dict, write_json
from tasks.runs.trainer import Trainer, build_fabric
from tasks.runs.config import TrainingConfig
from tasks.runs.task import Task

AnyConfig = TypeVar("AnyConfig", bound=EncoderConfig)
AnyModel = TypeVar("AnyModel", bound=nn.Module)


class Prepared(NamedTuple):
    """What a task brings to a run.

    Args:
        task: batches and losses.
        model: with its initial weights, on the CPU.
        optimization: of the model.
        description: of model and data, in a line.
        test: the one look at the test data, with the best weights, in the main process: writes the report and
            returns the results, JSON.
        results_text: the results for the terminal.
        metadata: JSON that goes beside the configuration into best.safetensors.
    """

    task: Task
    model: nn.Module
    optimization: Optimization
    description: str
    test: Callable[[RunDirectory, Fabric], dict[str, Any]]
    results_text: Callable[[dict[str, Any]], str]
    metadata: dict[str, Any] | None = None


def run_experiment(config: TrainingConfig, prepare: Callable[[], Prepared]) -> None:
    """Train, then test the best weights once and write the report; with `resume`, whatever of it is left.

    Args:
        config: of the run, with its directory.
        prepare: loads the data and builds the model, PyTorch's generator being seeded.
    Raises:
        UserError: bad options or data, a directory that holds another run or is in use.
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
    with run.locked() if main else nullcontext():
        fabric.launch()  # a directory in use is refused before there are other processes
        trainer = Trainer(
            config, prepared.task, prepared.model, prepared.optimization, fabric, run, prepared.metadata
        )
        trainer.restore()
        if main:
            run.write_config(config)  # only now: a checkpoint that is refused keeps the options that it has
            parameters = sum(parameter.numel() for parameter in prepared.model.parameters())
            print(f"{run.path}: {parameters:,} parameters; {prepared.description}", flush=True)
        fabric.barrier()
        trainer.fit()
        if main:
            results = run.read_results()
            if results is None or not run.report.exists():
                results = prepared.test(run, fabric)
                write_json(run.results, results)
            print(f"{prepared.results_text(results)}\nreport: {run.report}")
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def load_trained(
    path: Path,
    config_class: type[AnyConfig],
    build: Callable[[AnyConfig], AnyModel],
    occupancy_threshold: float | None = None,
) -> tuple[AnyModel, AnyConfig]:
    """The model in a best.safetensors, in evaluation mode, and what it was trained with.

    Args:
        path: of the file.
        config_class: of the task.
        build: makes a model from its configuration.
        occupancy_threshold: to use in place of the one that it was trained with.
    Raises:
        UserError: no such file, or not a checkpoint of this task.
    """
    config = config_from_dict(config_class, read_metadata(path), path)
    if occupancy_threshold is not None:
        config.occupancy_threshold = occupancy_threshold
    model = build(config)
    load_weights(path, model)
    model.eval()
    return model, config
