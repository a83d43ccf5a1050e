"""How a run came about, for its report: with which command, from which commit, when, where, and why it ended.

record.json of a run directory has it. Runs of older versions have no such file; a damaged one is as none.
"""

from __future__ import annotations

import contextlib
import datetime
import shlex
import sys
from pathlib import Path
from typing import Any

import torch

from tasks.runs.errors import UserError
from tasks.runs.machine import commit, device_name
from tasks.runs.run_directory import RunDirectory, read_json, write_json

STARTS, END = "starts", "end"
UNKNOWN: dict[str, str] = {}
"""The first start of a run that has no record of it."""


def record_start(run: RunDirectory, device: torch.device) -> None:
    """Add the start of this process to the record; the first one of a run is not a resumption.

    Args:
        run: whose training starts or is resumed.
        device: that it trains on.
    """
    before = (_read(run)[STARTS] or [UNKNOWN]) if run.last.exists() else []
    write_json(run.record, {STARTS: [*before, this_process(device)]})


def this_process(device: torch.device) -> dict[str, str]:
    """With which command, from which commit, when and where this process runs; by name, those that are known.

    Args:
        device: that it computes on.
    """
    count = torch.get_num_threads()
    threads = f"{count} thread{'s' * (count != 1)}"
    found = {
        "Command": shlex.join([Path(sys.orig_argv[0]).name, *sys.orig_argv[1:]]),
        "Commit": commit(),
        "Date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "Machine": f"{device_name(device)}, {threads}, torch {torch.__version__}",
    }
    return {name: value for name, value in found.items() if value is not None}


def record_end(run: RunDirectory, reason: str) -> None:
    """Say in the record why training ended.

    Args:
        run: whose training is at its end.
        reason: in a few words.
    """
    write_json(run.record, {**_read(run), END: reason})


def facts_of(run: RunDirectory) -> dict[str, str]:
    """The record in words.

    Args:
        run: finished or not.
    Returns:
        Facts by name, those that are known.
    """
    record = _read(run)
    facts: dict[str, str] = {}
    for number, start in enumerate(record[STARTS]):
        which = f", resumption {number}" if number else ""
        facts |= {f"{name}{which}": str(value) for name, value in start.items()}
    if END in record:
        facts["Training ended after"] = str(record[END])
    return facts


def _read(run: RunDirectory) -> dict[str, Any]:
    record: Any = None
    with contextlib.suppress(UserError):
        record = read_json(run.record)
    starts = record.get(STARTS) if isinstance(record, dict) else None
    known = isinstance(starts, list) and all(isinstance(start, dict) for start in starts)
    found: dict[str, Any] = record if known else {STARTS: []}
    return found
