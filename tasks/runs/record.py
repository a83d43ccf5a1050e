"""The provenance of a run, for its report: command, git commit, date, machine, and why training stopped.

It is stored in record.json. A run whose file is missing or damaged has none.
"""

from __future__ import annotations

import contextlib
import datetime
from typing import Any

import torch

from tasks.formatting.tables import count_text
from tasks.runs.errors import UserError
from tasks.runs.files import read_json, write_json
from tasks.runs.machine import commit, device_name
from tasks.runs.processes import current_command
from tasks.runs.run_directory import RunDirectory

STARTS, END = "starts", "end"
UNKNOWN: dict[str, str] = {}
"""Stands for the first start of a run whose record is missing."""


def record_start(run: RunDirectory, device: torch.device) -> None:
    """Add this process to the record, when training starts or is resumed.

    Args:
        run: the run directory.
        device: the device that this process trains on.
    """
    earlier_starts = (_read(run)[STARTS] or [UNKNOWN]) if run.last.exists() else []
    write_json(run.record, {STARTS: [*earlier_starts, this_process(device)]})


def this_process(device: torch.device) -> dict[str, str]:
    """Describe this process: its command, git commit, date and machine. What is unknown is left out.

    Args:
        device: the device that this process computes on.
    """
    threads = count_text(torch.get_num_threads(), "thread")
    facts = {
        "Command": current_command(),
        "Commit": commit(),
        "Date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "Machine": f"{device_name(device)}, {threads}, torch {torch.__version__}",
    }
    return {name: value for name, value in facts.items() if value is not None}


def record_end(run: RunDirectory, reason: str) -> None:
    """Add to the record why training stopped.

    Args:
        run: the run directory.
        reason: reason in a few words.
    """
    write_json(run.record, {**_read(run), END: reason})


def run_facts(run: RunDirectory) -> dict[str, str]:
    """Read the record of a run, for its report.

    Args:
        run: the directory of a run, finished or not.
    Returns:
        Values by name, such as "Command" and "Date", and "Command, resumption 1" after a resumption.
    """
    record = _read(run)
    facts: dict[str, str] = {}
    for number, start in enumerate(record[STARTS]):
        suffix = f", resumption {number}" if number else ""
        facts |= {f"{name}{suffix}": str(value) for name, value in start.items()}
    if END in record:
        facts["Training ended after"] = str(record[END])
    return facts


def _read(run: RunDirectory) -> dict[str, Any]:
    record: Any = None
    with contextlib.suppress(UserError):
        record = read_json(run.record)
    starts = record.get(STARTS) if isinstance(record, dict) else None
    is_valid = isinstance(starts, list) and all(isinstance(start, dict) for start in starts)
    checked_record: dict[str, Any] = record if is_valid else {STARTS: []}
    return checked_record
