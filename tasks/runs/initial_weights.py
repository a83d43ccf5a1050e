"""`--initial-weights`: where a run starts, and a warning if those weights may know held-out examples."""

from __future__ import annotations

import sys
from pathlib import Path

from tasks.runs.checkpoints import read_metadata
from tasks.runs.config import TrainingConfig
from tasks.runs.hub import find_checkpoint
from tasks.runs.options import flag
from tasks.runs.run_directory import RunDirectory
from tasks.runs.saved_config import config_from_dict


def initial_checkpoint(config: TrainingConfig) -> Path | None:
    """The checkpoint that the model of a run is built from; None for random weights.

    Args:
        config: options of the run. A resumed run no longer needs the file of `initial_weights`: its own
            checkpoint of the best epoch describes the same model. (`Trainer.restore` then loads the weights
            of the last step.)
    """
    best = RunDirectory(config.directory).best
    return best if config.resume and config.initial_weights and best.exists() else config.initial_weights


def warn_of_other_data(config: TrainingConfig, start: Path) -> None:
    """Warn if the initial weights may have been trained on examples that are now held out.

    Args:
        config: configuration of the run.
        start: the checkpoint of the initial weights, which belongs to the same task.
    """
    path = find_checkpoint(start)
    values = {name: value for name, value in read_metadata(path).items() if name in vars(config)}
    saved = config_from_dict(type(config), values, path)
    if saved.draws_data != config.draws_data or saved.generates_data != config.generates_data:
        return  # other examples; files may be the same in another directory
    held_out = "it may have been trained on examples that are held out now"
    seed = saved.seed_of_data
    if config.draws_data and seed != config.seed_of_data:
        print(
            f"warning: {start} was trained on data of seed {seed}, but this run uses data of seed "
            f"{config.seed_of_data}: {held_out}; --data-seed {seed} uses the same data",
            file=sys.stderr,
        )
    for name in config.data_options:
        before, now = getattr(saved, name), getattr(config, name)
        if before != now and name not in config.unused:
            option = flag(name)
            print(
                f"warning: {start} was trained with {option} {before}, but this run has {option} {now}: "
                f"{held_out}",
                file=sys.stderr,
            )
