"""The processes of one run that trains on several devices."""

from __future__ import annotations

import re

from torch import distributed


def is_main_process() -> bool:
    """Whether this is the process of rank 0, or the only one."""
    return not _is_distributed() or distributed.get_rank() == 0


def is_lost_process(error: BaseException) -> bool:
    """Whether this process failed because another one of the same run had ended.

    Args:
        error: what was raised.
    Returns:
        True for the error of a broken connection between processes that train together.
    """
    return _is_distributed() and re.search(r"[Cc]onnection (was )?(closed|reset)", str(error)) is not None


def _is_distributed() -> bool:
    return distributed.is_available() and distributed.is_initialized()
