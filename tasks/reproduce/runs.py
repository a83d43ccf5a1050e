"""The runs that a table needs: their command lines, directories and states."""

from __future__ import annotations

import hashlib
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from tasks.reproduce.table import CommandSpec
from tasks.runs.command_line import parse_run
from tasks.runs.config import LIMITS
from tasks.runs.errors import UserError
from tasks.runs.files import is_finite_number, read_json
from tasks.runs.progress import epochs_trained
from tasks.runs.run_directory import RunDirectory
from tasks.runs.saved_config import changed_options, config_from_dict

LONGEST_NAME = 240
"""Most bytes of the name of a directory or, without its suffix, of a file; file systems allow 255."""


class Kind(StrEnum):
    """What is left to do for a run. The values are written into the JSON file of a table."""

    MISSING = "missing"
    """All of it: there is no checkpoint to continue from."""
    TRAINING_LEFT = "unfinished"
    """The rest of the training, if there is any, the final test and the evaluations."""
    EVALUATIONS_LEFT = "trained"
    """One or more evaluations; training and the final test are done."""
    FINISHED = "finished"
    """Nothing."""
    DIVERGED = "diverged"
    """Nothing: a run that has diverged is not continued, and has no results."""


class State(NamedTuple):
    """The state of a run.

    Args:
        kind: what is left to do.
        epochs: number of epochs that the run has been trained; a time limit may have cut the last one short.
        text: describes the state in a table.
    """

    kind: Kind
    epochs: float
    text: str

    @property
    def needs_training(self) -> bool:
        """Whether the run has to be trained, from the start or from its last checkpoint."""
        return self.kind in (Kind.MISSING, Kind.TRAINING_LEFT)

    @property
    def is_tested(self) -> bool:
        """Whether training and the final test are done; evaluations may be left."""
        return self.kind in (Kind.EVALUATIONS_LEFT, Kind.FINISHED)


@dataclass(frozen=True)
class Run:
    """A training run with its evaluations.

    Args:
        training: the task and the options that the table gives it.
        seed: seed of the run.
        root: directory that contains the directories of all runs.
        preset: preset of the task.
        options: further options of training, for data, precision and training time.
        train_options: further options of training that the user adds; part of the name.
        evaluations: for each evaluation that the table needs, all options of its command: those that the
            table gives it, and those for its data.
        extends: whether to continue a run that a lower time limit stopped.
    """

    training: CommandSpec
    seed: int
    root: Path
    preset: str
    options: tuple[str, ...]
    evaluations: Mapping[CommandSpec, tuple[str, ...]] = field(hash=False)
    extends: bool = False
    train_options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the run, and its directory below `root`. Tables that need the same run share it."""
        options = words_in_name((*self.training.options, *self.train_options))
        return f"{self.training.task}/{'-'.join(filter(None, [self.preset, options]))}-seed-{self.seed}"

    @cached_property
    def files(self) -> RunDirectory:
        """The run's directory."""
        return RunDirectory(self.root / self.name)

    def results_of(self, evaluation: CommandSpec | None) -> Path:
        """The file with the results of an evaluation, or of the final test.

        Args:
            evaluation: an evaluation of the table; None for the final test.
        """
        if evaluation is None:
            return self.files.results
        words = (evaluation.task, *self.evaluations[evaluation])
        name = words_in_name(words)
        # a/b.mrg and a--b.mrg are not the treebank a-b.mrg.
        if name != "-".join(word.removeprefix("--") for word in words):
            name += f"-{_checksum(' '.join(words))}"
        return self.files.path / f"{short_name(name)}.json"

    def commands(self, threads: int | None) -> Iterator[tuple[str, ...]]:
        """Yield the remaining commands: training, if it is not finished, and evaluations.

        There are none for a run that has diverged.

        Args:
            threads: CPU threads of each command; None for PyTorch's default.
        Yields:
            The arguments of `python -m`.
        """
        thread_options = () if threads is None else ("--threads", str(threads))
        state = self.state()
        if state.kind == Kind.DIVERGED:
            return
        if state.needs_training:
            yield (f"tasks.{self.training.task}", "train", *self._training_words, "--resume", *thread_options)
        for evaluation, options in self.evaluations.items():
            # Training may replace the best weights, and make results obsolete that are up to date now.
            if state.needs_training or not self.is_evaluated(evaluation):
                files = ("--checkpoint", str(self.files.best), "--json", str(self.results_of(evaluation)))
                yield (f"tasks.{evaluation.task}", "evaluate", *options, *files, *thread_options)

    def state(self) -> State:
        """The state of the run, according to the files in its directory."""
        files = self.files
        epochs = epochs_trained(files.read_metrics()) if files.metrics.exists() else 0.0
        number = f"{round(epochs, 2):g}"
        if files.diverged.exists():
            return State(Kind.DIVERGED, epochs, _diverged_text(files.diverged))
        if not files.results.exists() or self._has_more_time(epochs):
            if not files.last.exists():
                return State(Kind.MISSING, 0.0, "missing")
            text = f"unfinished after {number} of {self.saved.epochs} epochs"
            return State(Kind.TRAINING_LEFT, epochs, text)
        epochs_text = f"after {number} of {self.config.epochs} epochs"
        num_missing = sum(not self.is_evaluated(evaluation) for evaluation in self.evaluations)
        if num_missing:
            text = f"trained {epochs_text}, {num_missing} of {len(self.evaluations)} tests left"
            return State(Kind.EVALUATIONS_LEFT, epochs, text)
        return State(Kind.FINISHED, epochs, f"finished {epochs_text}")

    def is_evaluated(self, evaluation: CommandSpec) -> bool:
        """Whether an evaluation has results, and neither the best weights nor its data are newer.

        Args:
            evaluation: an evaluation of the table.
        """
        results, best = self.results_of(evaluation), self.files.best
        if not results.exists() or not best.exists():
            return False
        changes = [best.stat().st_mtime, *map(_last_change, self.evaluations[evaluation])]
        return results.stat().st_mtime >= max(changes)

    def check(self) -> None:
        """Check that the options are valid and agree with the run in the directory, if there is one.

        Raises:
            UserError: an option is out of range, or the directory holds a run with other options.
        """
        self.config.check()
        for name, saved_value, needed in changed_options(self.files, self.config):
            if name not in LIMITS:
                raise UserError(
                    f"{self.files.path}: its run has {name} {saved_value}, but the table needs {needed}; "
                    "move it away, or use another --directory"
                )

    @cached_property
    def config(self) -> Any:
        """The configuration that the options of the run give."""
        subcommand = import_module(f"tasks.{self.training.task}.__main__").SUBCOMMANDS["train"]
        program = f"python -m tasks.{self.training.task}"
        try:
            return parse_run(subcommand.config, subcommand.presets, list(self._training_words), program)
        except SystemExit:  # tyro has said which option is wrong
            options = " ".join(self.train_options)
            raise UserError(f"--train-options: {program} train does not accept {options}") from None

    @property
    def saved(self) -> Any:
        """The configuration in the config.json of the run's directory."""
        return config_from_dict(type(self.config), read_json(self.files.config), self.files.config)

    def best_validation_score(self) -> float:
        """The score of the best epoch on the validation data; higher is better.

        Raises:
            UserError: metrics.jsonl is missing, empty or damaged.
        """
        rows = self.files.read_metrics("selection_score")
        if not rows:
            raise UserError(f"{self.files.metrics}: has no epochs, but the run is finished")
        return max(float(row["selection_score"]) for row in rows)

    @property
    def _training_words(self) -> tuple[str, ...]:
        """The arguments of `train`, without `--resume` and `--threads`."""
        run_options = ("--seed", str(self.seed), "--run-dir", str(self.files.path))
        options = (*self.training.options, *self.train_options, *self.options)
        return ("--preset", self.preset, *options, *run_options)

    def _has_more_time(self, epochs: float) -> bool:
        """Whether a time limit stopped the run after some epochs, and the user has given a higher one."""
        saved, limit = self.saved.max_minutes, self.config.max_minutes
        stopped = epochs < self.saved.epochs and saved is not None
        return self.extends and stopped and limit is not None and limit > saved


def words_in_name(words: Sequence[str]) -> str:
    """Words of a command line as a part of the name of a file or directory.

    Args:
        words: options and their values.
    """
    return re.sub(r"[^\w.]+", "-", " ".join(words)).strip("-")


def short_name(name: str) -> str:
    """A name of at most `LONGEST_NAME` bytes; a checksum stands for what a longer one has in addition.

    Args:
        name: name of a file or directory, without a suffix.
    """
    text = name.encode()
    if len(text) <= LONGEST_NAME:
        return name
    return f"{text[: LONGEST_NAME - 9].decode(errors='ignore')}-{_checksum(name)}"


def _last_change(word: str) -> float:
    """The time at which the file or the directory that a word names has changed; 0 if there is none."""
    path = Path(word)
    paths = [path, *path.rglob("*")] if path.is_dir() else [path]
    # A file that was moved here, or copied with its times, has an old mtime and a new ctime.
    statuses = [path.stat() for path in paths if path.exists()]
    return max((max(status.st_mtime, status.st_ctime) for status in statuses), default=0.0)


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:8]


def _diverged_text(path: Path) -> str:
    """Describe at which step and in which epoch a run diverged, according to its diverged.json."""
    values = read_json(path)
    numbers = [values.get(name) if isinstance(values, dict) else None for name in ("step", "epoch")]
    if not all(map(is_finite_number, numbers)):
        raise UserError(f"{path}: expected the numbers step and epoch, got {reprlib.repr(values)}")
    step, epoch = numbers
    return f"diverged at step {step:,} in epoch {epoch}"
