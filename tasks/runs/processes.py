"""Which process this is, what it was called with, and whether another one of its run was lost."""

from __future__ import annotations

import os
import re
import shlex
import sys
from contextvars import ContextVar
from pathlib import Path

from torch import distributed

given_command: ContextVar[str | None] = ContextVar("given_command", default=None)
"""The command for which Python code called `main([…])`; None if it is the command line of this process."""


def current_command() -> str:
    """The command line of this process or, within `main([…])`, one that does the same."""
    return given_command.get() or shlex.join([Path(sys.orig_argv[0]).name, *sys.orig_argv[1:]])


def is_main_process() -> bool:
    """Whether this process has rank 0 or is the only one.

    Before and after a run, whether the user started it, not Lightning Fabric.
    """
    return distributed.get_rank() == 0 if _is_distributed() else os.environ.get("LOCAL_RANK", "0") == "0"


def is_lost_process(error: BaseException) -> bool:
    """Whether this process failed because another process of the same run had ended.

    Args:
        error: the error that was raised.
    Returns:
        True if the error reports a broken connection between the processes.
    """
    return _is_distributed() and re.search(r"[Cc]onnection (was )?(closed|reset)", str(error)) is not None


def _is_distributed() -> bool:
    return distributed.is_available() and distributed.is_initialized()
