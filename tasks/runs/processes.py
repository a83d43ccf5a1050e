"""Helpers for distributed training: which process this is, and whether another one was lost."""

from __future__ import annotations

import os
import re

from torch import distributed


def is_main_process() -> bool:
    """Whether this process has rank 0 or is the only one."""
    return not _is_distributed() or distributed.get_rank() == 0


def is_launcher() -> bool:
    """Whether the user started this process, not Lightning Fabric; known before and after a run, too."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


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
