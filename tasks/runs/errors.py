"""Exceptions that the command line reports in one line, and its exit statuses."""

from __future__ import annotations

import re

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class UserError(ValueError):
    """An error that the user can fix. Its message says in one line what is wrong, and where."""


class Diverged(UserError):
    """The loss or a weight is no longer finite. All processes of a run raise this at the same step."""


class Interrupted(KeyboardInterrupt):
    """Training was stopped by Ctrl-C or SIGTERM.

    Args:
        message: says in one line what was saved.
        resumable: whether there is a checkpoint to resume from.
    """

    def __init__(self, message: str, *, resumable: bool) -> None:
        super().__init__(message)
        self.resumable = resumable


_OUT_OF_MEMORY = re.compile(
    "can't allocate memory|out of memory|Storage size calculation overflowed|integer multiplication overflow"
    "|Maximum allowed (?:size|dimension) exceeded|array is too big"
)
_ALLOCATION = re.compile(
    r"you tried to allocate \d+ bytes|Tried to allocate \S+ \S+|Unable to allocate \S+ \S+"
)


def memory_error_text(error: BaseException) -> str | None:
    """How much memory an error of Python, NumPy or PyTorch says was requested, or else the type of the error.

    Args:
        error: any exception.
    Returns:
        None if it is not an out-of-memory error.
    """
    text = str(error)
    if not isinstance(error, MemoryError) and not _OUT_OF_MEMORY.search(text):
        return None
    match = _ALLOCATION.search(text)
    return match.group() if match else type(error).__name__
