"""The commands of the tasks in this process: tiny runs of them, and what they say."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tasks.language_model.__main__ import main as language_model
from tasks.listops.__main__ import main as listops
from tasks.logic.__main__ import main as logic
from tasks.runs import command_line
from tasks.sst.__main__ import main as sst

TINY = {
    "listops": "--expressions 300 --validation-size 40 --max-train-length 12 --epochs 1 "
    "--embedding-size 6 --slot-size 6 --num-slots 3",
    "logic": "--generated 600 --batch-size 64 --layers 1 --heads 2 --chunk-size 2 --epochs 1 "
    "--embedding-size 6 --slot-size 8 --num-slots 3 --test-num-slots 5",
    "sst": "--generated 60 --vectors none --batch-size 64 --chunk-size 2 --epochs 1 "
    "--embedding-size 6 --slot-size 8 --num-slots 3 --test-num-slots 5",
    "language_model": "--preset demo --sentences 200 --num-layers 2 --chunk-size 2 --epochs 1 "
    "--embedding-size 6 --hidden-size 8",
}
"""Options of a training run that takes a second."""

MAIN = {"listops": listops, "logic": logic, "sst": sst, "language_model": language_model}


def errors_in(text: str) -> str:
    """What a command says on standard error, but for warnings of options without effect."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("warning: "))


def refusal(main: partial[int], capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Run a command that must end with status 2 and one line on standard error; what this line says."""
    assert main([str(word) for word in words]) == 2
    error = capsys.readouterr().err
    line = re.fullmatch(rf"python -m {re.escape(main.args[0])}: error: (.*)\n", error)
    assert line, error
    return line[1]


@contextlib.contextmanager
def parsers_made_once() -> Iterator[None]:
    """Have tyro keep the parser of each configuration with each set of defaults; by itself it keeps none."""
    try:
        from tyro._parsers import ParserSpecification
    except ImportError:  # another version of tyro: the tests take longer
        yield
        return
    groups, parsers = {}, {}
    group, make = command_line._grouped, ParserSpecification.from_callable_or_type

    def group_once(cls, default):
        key = cls, repr(default)
        if key not in groups:
            groups[key] = group(cls, default)
        return groups[key]

    def make_once(of, **options):
        if options.get("parent_classes"):  # part of another parser
            return make(of, **options)
        key = of, options.get("description")
        if key not in parsers:
            parsers[key] = make(of, **options)
        return parsers[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command_line, "_grouped", group_once)
        patch.setattr(ParserSpecification, "from_callable_or_type", make_once)
        yield


def make_runs(directory: Path) -> dict[str, str]:
    """Train a tiny run of each task; return paths by name: `listops`, `listops_last`, `listops_run`, …"""
    paths = {}
    for task, main in MAIN.items():
        run = directory / task
        assert main(["train", *TINY[task].split(), "--run-dir", str(run)]) == 0
        paths |= {task: run / "best.safetensors", f"{task}_last": run / "last.safetensors"}
        paths |= {f"{task}_config": run / "config.json", f"{task}_run": run}
    return {name: str(path) for name, path in paths.items()}
