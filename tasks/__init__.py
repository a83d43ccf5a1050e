"""Tasks for Ordered Memory and ON-LSTM, run from a checkout as `python -m tasks.NAME`."""

import signal
import sys

if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C while `python -m` imports the task ends it without a traceback, until `command_line.run`.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
