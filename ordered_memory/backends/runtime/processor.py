"""What Linux says of the processor."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path


@cache
def features() -> str:
    """Its features, separated by blanks; where this is not Linux, its name."""
    return next((line for line in _lines() if line.startswith("flags")), platform.processor())


@cache
def is_amd() -> bool:
    """Whether AMD made it; False if that is not known."""
    return any(line.startswith("vendor_id") and line.endswith("AuthenticAMD") for line in _lines())


def _lines() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
