"""One training run from its configuration to its results, for every task."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext

import torch

from tasks.runs.config import TrainingConfig
from tasks.runs.errors import Interrupted, UserError
from tasks.runs.fabric import build_fabric
from tasks.runs.options import flag
from tasks.runs.progress import end_text, finished_text
from tasks.runs.record import record_end
from tasks.runs.run_directory import RunDirectory, changed_options, write_json
from tasks.runs.task import Prepared
from tasks.runs.threads import use_threads
from tasks.runs.trained import text_of_saved
from tasks.runs.trainer import Trainer


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
            results = prepared.test(run, fabric.device)
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


def _interrupted(run: RunDirectory, trainer: Trainer | None) -> Interrupted:
    if trainer is None or trainer.saved_step is None:
        return Interrupted("interrupted before the first checkpoint: nothing was saved", resumable=False)
    return Interrupted(f"interrupted; {run.last} has step {trainer.saved_step:,}", resumable=True)
