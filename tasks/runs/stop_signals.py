"""Handle Ctrl-C and SIGTERM: finish the current training step, then stop."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType

NOTICE = b"\nstopping after this step and saving a checkpoint; interrupt again to stop at once\n"


class StopSignals:
    """A context manager in which the first SIGINT or SIGTERM sets `received`, and a second one interrupts.

    Args:
        announce: whether to print a notice to standard error at the first signal.
    """

    def __init__(self, *, announce: bool = True) -> None:
        self.received = False
        self.announce = announce
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = True
        if self.announce:
            with suppress(OSError):
                os.write(2, NOTICE)  # print is not reentrant
