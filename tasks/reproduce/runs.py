"""The runs that a table needs: their command lines, their directories, and how far each is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tasks.reproduce.layout import Evaluation, Training
from tasks.runs.command_line import parse_run
from tasks.runs.config import COMPUTATION
from tasks.runs.errors import UserError
from tasks.runs.run_directory import RunDirectory, config_from_dict, read_json

Kind = Literal["missing", "unfinished", "diverged", "trained", "finished"]

MAY_DIFFER = COMPUTATION | {"epochs", "max_minutes"}
"""Options that do not set a run apart: where and how it is computed, and how long at most."""


class State(NamedTuple):
    """How far a run is.

    Args:
        kind: `trained` runs lack an evaluation; a diverged run is not continued.
        epochs: how many it has trained.
        text: the same for the reader.
    """

    kind: Kind
    epochs: int
    text: str


class Command(NamedTuple):
    """`python -m tasks.TASK WORDS`."""

    task: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """A training run with its evaluations.

    Args:
        training: what it trains.
        seed: of the run.
        root: holds the directories of all runs.
        preset: of the task.
        options: of this call, after those of the training: its data, the minutes of a demonstration.
        evaluations: evaluations with the options of this call, by what the table names them.
    """

    training: Training
    seed: int
    root: Path
    preset: str
    options: tuple[str, ...]
    evaluations: tuple[tuple[Evaluation, Evaluation], ...]

    @property
    def name(self) -> str:
        """The same for the same run of every table."""
        words = [self.preset, *(word.removeprefix("--") for word in self.training.options)]
        return f"{self.training.task}/{'-'.join(words)}-seed-{self.seed}"

    @cached_property
    def files(self) -> RunDirectory:
        """The run's directory."""
        return RunDirectory(self.root / self.name)

    def results_of(self, evaluation: Evaluation | None) -> Path:
        """The file with the results of an evaluation, or of the final test.

        Args:
            evaluation: as the table names it; None for the final test.
        """
        if evaluation is None:
            return self.files.results
        task, options = dict(self.evaluations)[evaluation]
        words = re.sub(r"[^\w.]+", "-", "-".join([task, *options]))
        return self.files.path / f"{words[-150:]}.json"

    def commands(self, threads: int | None) -> Iterator[Command]:
        """What is left to do, in order: training, if it has not finished, and the evaluations.

        Nothing is left of a run that has diverged.

        Args:
            threads: of each command; None for PyTorch's number.
        """
        how = () if threads is None else ("--threads", str(threads))
        kind = self.state().kind
        if kind == "diverged":
            return
        if kind in ("missing", "unfinished"):
            yield Command(self.training.task, ("train", *self._training_words, "--resume", *how))
        for named, (task, options) in self.evaluations:
            if not self._is_evaluated(named):
                checkpoint = ("--checkpoint", str(self.files.best))
                target = ("--json", str(self.results_of(named)))
                yield Command(task, ("evaluate", *options, *checkpoint, *target, *how))

    def state(self) -> State:
        """How far the run is, from the files in its directory."""
        files = self.files
        epochs = len(files.read_metrics()) if files.metrics.exists() else 0
        if files.diverged.exists():
            step = read_json(files.diverged)
            return State("diverged", epochs, f"diverged at step {step['step']:,} in epoch {step['epoch']}")
        if not files.results.exists():
            if not files.last.exists():
                return State("missing", 0, "missing")
            return State("unfinished", epochs, f"unfinished after {epochs} of {self.saved.epochs} epochs")
        ended = f"after {epochs} of {self.config.epochs} epochs"
        left = sum(not self._is_evaluated(named) for named, _ in self.evaluations)
        if left:
            return State("trained", epochs, f"trained {ended}, {left} of {len(self.evaluations)} tests left")
        return State("finished", epochs, f"finished {ended}")

    def check(self) -> None:
        """Check that the options are valid, and those of the run in the directory, if there is one.

        Raises:
            UserError: a bad option, or the directory holds a run with other ones.
        """
        self.config.check()
        if not self.files.config.exists():
            return
        for name, wanted in vars(self.config).items():
            found = getattr(self.saved, name)
            if name not in MAY_DIFFER and found != wanted:
                raise UserError(
                    f"{self.files.path}: its run has {name} {found}, the table needs {wanted}; move it away, "
                    "or name another --directory"
                )

    @cached_property
    def config(self) -> Any:
        """The configuration that the options stand for."""
        verb = import_module(f"tasks.{self.training.task}.__main__").VERBS["train"]
        program = f"python -m tasks.{self.training.task}"
        return parse_run(verb.config, verb.presets, list(self._training_words), program)

    @property
    def saved(self) -> Any:
        """The configuration of the run in the directory."""
        return config_from_dict(type(self.config), read_json(self.files.config), self.files.config)

    def validation(self) -> float:
        """The score that its best epoch was chosen by; higher is better."""
        rows = self.files.read_metrics()
        if "validation_accuracy" in rows[0]:
            return max(float(row["validation_accuracy"]) for row in rows)
        return max(-float(row["validation_loss"]) for row in rows)

    @property
    def _training_words(self) -> tuple[str, ...]:
        place = ("--seed", str(self.seed), "--run-dir", str(self.files.path))
        return ("--preset", self.preset, *self.training.options, *self.options, *place)

    def _is_evaluated(self, named: Evaluation) -> bool:
        """Whether the results are there and belong to the best weights of today."""
        results, best = self.results_of(named), self.files.best
        return results.exists() and best.exists() and results.stat().st_mtime >= best.stat().st_mtime
