"""The features of the processor, as Linux reports them, and a warning if it has no bfloat16 products."""

from __future__ import annotations

import logging
import platform
from functools import cache
from pathlib import Path

from ordered_memory.modes import assume_constant_result

logger = logging.getLogger(__name__)


ARM = ("Features", "CPU implementer", "CPU part")
"""The lines of /proc/cpuinfo that identify an ARM processor. There are several, as its cores may differ."""


@cache
def features() -> str:
    """The features of the processor, separated by spaces, on ARM with its maker and its part number.

    They are part of the key of cached code, which is compiled for this processor alone. If they are unknown,
    as on systems other than Linux, the result is the name of the processor.
    """
    lines = _lines()
    x86 = [line for line in lines if line.startswith("flags")][:1]
    arm = dict.fromkeys(line for line in lines if line.startswith(ARM))
    return " ".join(x86 or arm) or platform.processor()


@cache
def is_amd() -> bool:
    """Whether the processor is made by AMD; False if this is not known."""
    return any(line.startswith("vendor_id") and line.endswith("AuthenticAMD") for line in _lines())


def _lines() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


@assume_constant_result
def warn_float32_products() -> None:
    """Warn once that bfloat16 autocast has no effect on the recurrence."""
    _warn_once()


@cache  # here and not above: torch.compile traces into a cached function, despite the decorator
def _warn_once() -> None:
    logger.warning(
        "bfloat16 autocast: the recurrence stays float32, as the compiled code has no bfloat16 products for "
        "this processor"
    )
