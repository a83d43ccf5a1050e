"""Tasks for Ordered Memory and ON-LSTM, run as `python -m tasks.NAME`."""

import signal
import sys
from importlib.util import find_spec

if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C while `python -m` imports the task ends it without a traceback, until `command_line.run`.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

NEEDED = (
    "filelock",
    "huggingface_hub",
    "jinja2",
    "lightning_fabric",
    "matplotlib",
    "nltk",
    "pooch",
    "safetensors",
    "tensorboard",
    "tqdm",
    "tyro",
)
"""What the extra `tasks` installs."""


def check_that_all_is_installed() -> None:
    """Check that the tasks can run, so that whoever has the library alone learns it before a long import.

    Raises:
        ModuleNotFoundError: something that they need is missing; names all of it.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"the tasks need {', '.join(missing)}: pip install 'ordered-memory[tasks]'", name=missing[0]
        )


check_that_all_is_installed()
