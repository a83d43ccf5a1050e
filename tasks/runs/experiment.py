"""One training run from its configuration to its results, and back from its checkpoint, for every task."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from lightning_fabric import Fabric
from torch import nn

from tasks.runs.checkpoints import load_weights, read_metadata
from tasks.runs.config import COMPUTATION, TrainingConfig
from tasks.runs.errors import Interrupted, UserError
from tasks.runs.hub import find_checkpoint
from tasks.runs.optimization import Optimization
from tasks.runs.options import flag
from tasks.runs.progress import end_text, finished_text
from tasks.runs.record import record_end
from tasks.runs.run_directory import RunDirectory, config_from_dict, read_json, write_json
from tasks.runs.task import Task
from tasks.runs.threads import use_threads
from tasks.runs.trainer import Trainer, build_fabric

AnyConfig = TypeVar("AnyConfig", bound=TrainingConfig)
AnyModel = TypeVar("AnyModel", bound=nn.Module)


class Prepared(NamedTuple):
    """What a task provides for a run.

    Args:
        task: batches and losses.
        model: with its initial weights, on the CPU.
        optimization: of the model.
        description: model and data in one line.
        test: evaluates the best weights on the test data, once and in the main process; writes the report and
            returns the results as JSON values.
        results_text: formats the results for the terminal.
        metadata: JSON values saved beside the configuration in best.safetensors.
    """

    task: Task
    model: nn.Module
    optimization: Optimization
    description: str
    test: Callable[[RunDirectory, Fabric], dict[str, Any]]
    results_text: Callable[[dict[str, Any]], str]
    metadata: dict[str, Any] | None = None


def run_experiment(config: TrainingConfig, prepare: Callable[[], Prepared]) -> None:
    """Train, then test the best weights once and write the report; with `resume`, finish what is left of it.

    Args:
        config: of the run, with its directory.
        prepare: loads the data and builds the model; called after PyTorch's generator is seeded.
    Raises:
        UserError: bad options or data, or the directory holds another run or is in use.
        Interrupted: stopped by Ctrl-C or SIGTERM; says what was saved.
    """
    config.check()
    run = RunDirectory(config.directory)
    fabric = build_fabric(config)
    main = fabric.is_global_zero
    if main and not config.resume:
        run.check_free()
    if main:
        use_threads(config, config.devices)
    trainer = None
    try:
        torch.manual_seed(config.seed)
        prepared = prepare()
        with run.locked() if main else nullcontext():
            fabric.launch()  # other processes start only after a directory in use is refused
            if config.threads is not None:
                torch.set_num_threads(config.threads)  # launching several processes changes it
            trainer = Trainer(
                config, prepared.task, prepared.model, prepared.optimization, fabric, run, prepared.metadata
            )
            _run(trainer, prepared)
    except KeyboardInterrupt:
        if main:
            raise _interrupted(run, trainer) from None
    if torch.distributed.is_initialized():
        # Outliving the group, DDP would destroy it while holding the GIL that a thread of gloo may wait for.
        del trainer
        gc.collect()
        torch.distributed.destroy_process_group()


def _run(trainer: Trainer, prepared: Prepared) -> None:
    """Restore, train, test, report."""
    run, config, fabric = trainer.run, trainer.config, trainer.fabric
    trainer.restore()
    _check_changes(trainer)
    if fabric.is_global_zero:
        run.write_config(config)  # only now: a refused checkpoint keeps its options
        parameters = sum(parameter.numel() for parameter in prepared.model.parameters())
        print(f"{run.path}: {parameters:,} parameters; {prepared.description}", flush=True)
    fabric.barrier()
    if not trainer.progress.finished and trainer.progress.step and fabric.is_global_zero:
        print(f"resuming from step {trainer.progress.step:,} in epoch {trainer.progress.epoch}", flush=True)
    progress = trainer.fit()
    if fabric.is_global_zero:
        print(finished_text(progress, config), flush=True)
        record_end(run, end_text(progress, config))
        text = text_of_saved(run.read_results(), prepared.results_text)
        if text is None or not run.report.exists():
            print("testing the best weights and writing the report", flush=True)
            results = prepared.test(run, fabric)
            write_json(run.results, results)
            text = prepared.results_text(results)
        print(f"{text}\nreport: {run.report}")
    fabric.barrier()


def _check_changes(trainer: Trainer) -> None:
    """Raise a UserError for a changed option that could do nothing to the run that was restored."""
    run, config = trainer.run, trainer.config
    if trainer.saved_step is None:
        return
    finished = trainer.progress.over(config) and run.read_results() is not None
    for name, before, now in changed_options(run, config):
        if finished:
            raise UserError(
                f"{flag(name)} {now}: {run.path} is finished, and had {before}; more --epochs or "
                "--max-minutes train it further, another --run-dir begins a new run"
            )
        if name in trainer.optimization.restored_options:
            raise UserError(
                f"{flag(name)} {now}: {run.path} goes on with the optimizer of its checkpoint, which began "
                f"with {before}; another --run-dir begins a new run"
            )


def changed_options(run: RunDirectory, config: TrainingConfig) -> list[tuple[str, Any, Any]]:
    """The options that set a run apart from the one in its directory; files that they name may have moved.

    Args:
        run: the directory.
        config: the options of now.
    Returns:
        The name of each, its value in the directory and its value now.
    Raises:
        UserError: the saved configuration cannot be read.
    """
    if not run.config.exists():
        return []
    saved = vars(config_from_dict(type(config), read_json(run.config), run.config))
    return [
        (name, saved[name], now)
        for name, now in vars(config).items()
        if name not in COMPUTATION and now != saved[name] and not isinstance(now, Path)
    ]


def text_of_saved(
    results: dict[str, Any] | None, results_text: Callable[[dict[str, Any]], str]
) -> str | None:
    """The results of a finished run as text; None if there are none, or not such ones.

    Args:
        results: of results.json.
        results_text: formats results.
    """
    try:
        return None if results is None else results_text(results)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None


def _interrupted(run: RunDirectory, trainer: Trainer | None) -> Interrupted:
    if trainer is None or trainer.saved_step is None:
        return Interrupted("interrupted before the first checkpoint: nothing was saved", resumable=False)
    return Interrupted(f"interrupted; {run.last} has step {trainer.saved_step:,}", resumable=True)


def load_trained(
    path: Path,
    config_class: type[AnyConfig],
    build: Callable[..., AnyModel],
    *,
    beside: str | None = None,
    **options: Any,
) -> tuple[AnyModel, AnyConfig]:
    """The model in a checkpoint, in evaluation mode, and the configuration of its training.

    Args:
        path: a best.safetensors, a directory, or a name on the Hugging Face Hub.
        config_class: the task's configuration class.
        build: builds a model from its configuration and, if `beside` is given, that part of the metadata.
        beside: a key of `Prepared.metadata`.
        options: fields of the configuration to replace; None keeps the value of training.
    Raises:
        UserError: no such file, not a checkpoint of this task, or an option out of range.
    """
    path = find_checkpoint(path)
    metadata = read_metadata(path)
    if beside is not None and beside not in metadata:
        raise UserError(f"{path}: not a checkpoint of this task (it lacks {beside})")
    description = () if beside is None else (metadata.pop(beside),)
    config = read_config(config_class, metadata, path)
    given = {name: value for name, value in options.items() if value is not None}
    config = dataclasses.replace(config, **given)
    config.check()
    model = build(config, *description)
    load_weights(path, model)
    model.eval()
    return model, config


def read_config(config_class: type[AnyConfig], values: Any, path: Path) -> AnyConfig:
    """The configuration of a run, checked.

    Args:
        config_class: the task's configuration class.
        values: the content of a config.json, or the metadata of a best.safetensors.
        path: the file, for errors.
    Raises:
        UserError: not the configuration of such a run; names the file and the option.
    """
    config = config_from_dict(config_class, values, path)
    try:
        config.check()
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return config
