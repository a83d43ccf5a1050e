"""Run an experiment: train, select the best epoch, test, write the report."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING

import torch

from tasks.runs.config import TrainingConfig
from tasks.runs.errors import Interrupted, UserError
from tasks.runs.files import write_json
from tasks.runs.interfaces import Experiment
from tasks.runs.options import flag
from tasks.runs.progress import stop_reason_text
from tasks.runs.record import record_end
from tasks.runs.run_directory import RunDirectory, digest_of_test_data
from tasks.runs.saved_config import changed_options, check_types, config_to_dict
from tasks.runs.threads import use_threads

if TYPE_CHECKING:
    from tasks.runs.trainer import Trainer


def run_experiment(config: TrainingConfig, prepare: Callable[[], Experiment]) -> None:
    """Train, then test the best weights once and write the report; with `resume`, continue a stopped run.

    Args:
        config: configuration of the run.
        prepare: loads the data and builds the model; called after PyTorch's generator is seeded.
    Raises:
        UserError: bad options or data, or the run directory is in use or holds another run.
        Interrupted: stopped by Ctrl-C or SIGTERM; the message says what was saved.
    """
    # Only training imports Lightning Fabric, which takes long.
    from tasks.runs.fabric import build_fabric
    from tasks.runs.trainer import Trainer

    check_types(config)
    config.check()
    run = RunDirectory(config.directory)
    fabric = build_fabric(config)
    is_main = fabric.is_global_zero
    if is_main:
        if config.resume:
            run.check_single()
        else:
            run.check_free()
        use_threads(config.threads, config.devices)
    trainer, is_interrupted = None, False
    try:
        torch.manual_seed(config.seed)
        with nullcontext() if is_main else _silence():  # all processes load the data, and one says so
            experiment = prepare()
        with run.locked() if is_main else nullcontext():
            if is_main and not config.resume:
                run.check_free()  # again: another process may have trained here while the data were loaded
            fabric.launch()  # starts the other processes, now that the run directory is known to be free
            if config.threads is not None:
                torch.set_num_threads(config.threads)  # launching several processes changes the number
            trainer = Trainer(config, experiment, fabric, run)
            _run(trainer, experiment)
    except KeyboardInterrupt:
        if is_main:
            raise _interruption(run, trainer, config.resume) from None
        is_interrupted = True
    if torch.distributed.is_initialized():
        # Delete DDP before its process group. Otherwise DDP destroys the group while it holds the GIL, which
        # a gloo thread may be waiting for.
        del trainer
        gc.collect()
        torch.distributed.destroy_process_group()
    if is_interrupted:
        # The main process reports it. This one ends: what would come next, such as another seed, has no main
        # process. The status is 0, or Lightning would kill the main process.
        raise SystemExit(0)


@contextmanager
def _silence() -> Iterator[None]:
    with (
        open(os.devnull, "w", encoding="utf-8", errors="backslashreplace") as nowhere,  # takes any text
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        yield


def _run(trainer: Trainer, experiment: Experiment) -> None:
    """Restore, train, test, report."""
    from tasks.runs.fabric import others_wait

    run, config, fabric = trainer.run, trainer.config, trainer.fabric
    if run.last.exists():
        _check_model_options(trainer)
    trainer.restore()
    progress = trainer.progress
    # Finished and tested, and the options do not extend it.
    done = progress.finished and progress.nothing_left(config) and _is_tested(run, experiment)
    if trainer.saved_step is not None:
        _check_limits(trainer, done)
    if fabric.is_global_zero:
        if not done:  # the checkpoint was accepted, and these options will have an effect
            write_json(run.config, config_to_dict(config))
        parameters = sum(parameter.numel() for parameter in experiment.model.parameters())
        print(f"{run.path}: {parameters:,} parameters; {experiment.description}", flush=True)
        if progress.step and not progress.nothing_left(config):
            print(f"resuming from step {progress.step:,} in epoch {progress.epoch}", flush=True)
        if trainer.saved_step is None and config.initial_weights is not None:
            print(f"starting from the weights of {config.initial_weights}", flush=True)
    fabric.barrier()
    trainer.fit()
    with others_wait(fabric):
        if fabric.is_global_zero:
            _test(trainer, experiment)


def _test(trainer: Trainer, experiment: Experiment) -> None:
    """Test the best weights and write the report, unless this was done; print the results."""
    run, config, progress = trainer.run, trainer.config, trainer.progress
    reason = stop_reason_text(progress, config)
    print(f"finished: {reason}; best epoch {progress.best_epoch}", flush=True)
    record_end(run, reason)
    text = run.results_text(experiment.results_text)
    if text is None or not run.report.exists() or not _is_tested(run, experiment):
        print("testing the best weights and writing the report", flush=True)
        trainer.update_best_metadata()
        run.remove_results()
        results, write_report = experiment.test(run, trainer.device)
        write_json(run.results, results | {"data": experiment.data})  # also if the report fails
        write_report()
        text = experiment.results_text(results)
    print(f"{text}\nreport: {run.report}")


def _is_tested(run: RunDirectory, experiment: Experiment) -> bool:
    """Whether results.json has results on the test data of today."""
    try:
        return digest_of_test_data(run.read_results()) == experiment.data["test"]
    except UserError:
        return False


def _check_limits(trainer: Trainer, done: bool) -> None:
    """Raise a UserError if a changed option can no longer have an effect: the run has gone too far."""
    run, config, progress = trainer.run, trainer.config, trainer.progress
    limit = "--max-minutes" if progress.out_of_time(config) else "--epochs"
    for name, saved, current in changed_options(run, config) if done else ():
        raise UserError(
            f"{flag(name)} {current}: {run.path} is already finished, with {saved}; {limit} ended it: give a "
            "higher one to train it further, or another --run-dir to start a new run"
        )
    epochs_begun = progress.epoch if progress.step_in_epoch else progress.epoch - 1
    if config.epochs < epochs_begun:
        raise UserError(f"--epochs {config.epochs}: {run.path} is in epoch {epochs_begun} already")


def _check_model_options(trainer: Trainer) -> None:
    """Raise a UserError if a changed option contradicts the saved weights or optimizer state."""
    run, config = trainer.run, trainer.config
    for name, saved, current in changed_options(run, config):
        if name in config.architecture:
            raise UserError(
                f"{flag(name)} {current}: {run.path} resumes a model with {flag(name)} {saved}; use another "
                "--run-dir to start a new run"
            )
        if name in ("initial_weights", "seed", *trainer.optimization.restored_options):
            raise UserError(
                f"{flag(name)} {current}: {run.path} resumes with the weights and the optimizer state of its "
                f"checkpoint, which started with {saved}; use another --run-dir to start a new run"
            )


def _interruption(run: RunDirectory, trainer: Trainer | None, resume: bool) -> Interrupted:
    if trainer is not None and trainer.saved_step is not None:
        return Interrupted(f"interrupted; {run.last} has step {trainer.saved_step:,}", resumable=True)
    if resume and run.last.exists():
        return Interrupted(f"interrupted before training; {run.last} is as it was", resumable=True)
    return Interrupted("interrupted before the first checkpoint: nothing was saved", resumable=False)
