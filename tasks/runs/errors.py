"""Exceptions that the command line shows as one line."""

from __future__ import annotations

import re

from torch import distributed


class UserError(ValueError):
    """Something the user can put right. The message is one line that says what is wrong, and where."""


class Interrupted(KeyboardInterrupt):
    """Training was stopped by Ctrl-C or SIGTERM.

    Args:
        message: what has been saved, in one line.
        resumable: whether there is a checkpoint to go on from.
    """

    def __init__(self, message: str, *, resumable: bool) -> None:
        super().__init__(message)
        self.resumable = resumable


_OUT_OF_MEMORY = re.compile(
    "can't allocate memory|out of memory|Storage size calculation overflowed|integer multiplication overflow"
)


_ALLOCATION = re.compile(
    r"you tried to allocate \d+ bytes|Tried to allocate \S+ \S+|Unable to allocate \S+ \S+"
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, NumPy or PyTorch means that memory does not suffice.

    Args:
        error: any exception.
    """
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error)) is not None
    )


def memory_error_text(error: BaseException) -> str:
    """The allocation that failed, in the words of the error; the error's type where it does not say.

    Args:
        error: for which `is_out_of_memory` holds.
    """
    found = _ALLOCATION.search(str(error))
    return found.group() if found else type(error).__name__


def is_lost_process(error: BaseException) -> bool:
    """Whether this process failed because another one of the same run had ended.

    Args:
        error: what was raised.
    Returns:
        True for the error of a broken connection between processes that train together.
    """
    together = distributed.is_available() and distributed.is_initialized()
    return together and re.search(r"[Cc]onnection (was )?(closed|reset)", str(error)) is not None
