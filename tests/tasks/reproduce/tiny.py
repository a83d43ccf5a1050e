"""A tiny table, whose commands run in this process."""

import json
from contextlib import contextmanager
from importlib import import_module

import pytest

from tasks.formatting.summary import Published
from tasks.reproduce.commands import TABLES, run_table
from tasks.reproduce.config import ReproduceConfig
from tasks.reproduce.execution import Workers
from tasks.reproduce.table import Cell, CommandSpec, RowSpec, TableSpec
from tests.commands import TINY

OPTIONS = (*TINY["listops"].replace("--epochs 1", "--epochs 2").split(), "--threads", "1")
HARD = CommandSpec("listops", ("--test", "10-args", "--size", "3"))


def row(model, *options):
    training = CommandSpec("listops", (*OPTIONS, "--model", model, *options))
    cells = {"100": Cell(training, ("accuracy",)), "200": Cell(training, ("accuracy",), HARD)}
    return RowSpec(model.upper(), model, cells, {"100": Published(99, 0.5)})


TINY_TABLE = TableSpec(
    title="Tiny",
    columns=("100", "200"),
    rows=(
        row("lstm"),
        RowSpec("Other (literature)", "other", {}, {"200": Published(1.5)}),
    ),
    digits=3,
    axis="tokens",
)


@contextmanager
def commands_in_this_process():
    """Commands run in this process, and are counted by their subcommands."""
    counts = {"train": 0, "evaluate": 0}

    def command(self, words, log):
        module, subcommand, *rest = words
        counts[subcommand] += 1
        return import_module(f"{module}.__main__").main([subcommand, *rest])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workers, "_command", command)
        patch.setitem(TABLES, "tiny", TINY_TABLE)
        yield counts


def asked(directory, **options):
    """Ask for the table; its JSON."""
    run_table("tiny", ReproduceConfig(directory=directory, **options))
    return json.loads((directory / "tiny-paper.json").read_text())
