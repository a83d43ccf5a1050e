"""Handle Ctrl-C, SIGTERM and the closing of the terminal: finish the current training step, then stop."""

from __future__ import annotations

import errno
import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import NoReturn

NOTICE = b"\nstopping after this step and saving a checkpoint; interrupt again to stop at once\n"


def stop_signals() -> list[signal.Signals]:
    """List the signals that ask a program to stop: SIGINT, SIGTERM and, unless it is ignored, SIGHUP.

    SIGHUP says that the terminal was closed; `nohup` ignores it.
    """
    hang_up = [] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, *hang_up]


class TerminalClosed(KeyboardInterrupt):
    """The terminal was closed (SIGHUP)."""


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Raise a KeyboardInterrupt: the handler of SIGTERM and SIGHUP outside of training.

    Args:
        number: the signal.
        frame: the current stack frame.
    """
    _discard_lost_output()
    raise TerminalClosed if number == signal.SIGHUP else KeyboardInterrupt


class StopSignals:
    """A context manager in which the first of `stop_signals` sets `received`, and a second one interrupts.

    Args:
        announce: whether to print a notice to standard error at the first signal.
    """

    def __init__(self, *, announce: bool = True) -> None:
        self.received = False
        self.announce = announce
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in stop_signals():
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        _discard_lost_output()
        if self.received:
            raise KeyboardInterrupt
        self.received = True
        if self.announce:
            with suppress(OSError):
                os.write(2, NOTICE)  # print is not reentrant


def _discard_lost_output() -> None:
    """Discard further output to a terminal that was closed; otherwise writing to it raises an OSError."""
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError as error:
            if error.errno == errno.EIO:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
