"""What the processor can do, as Linux says, and the warning where it cannot multiply bfloat16 numbers."""

from __future__ import annotations

import logging
import platform
from functools import cache
from pathlib import Path

from ordered_memory.backends.tracing import constant

logger = logging.getLogger(__name__)


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


@cache
@constant
def say_that_products_stay_float32() -> None:
    """Log it as a warning, the first time alone."""
    logger.warning(
        "bfloat16 autocast: the recurrence stays float32, as this processor has neither AMX nor AVX512_BF16"
    )
