"""Tasks for Ordered Memory and ON-LSTM, run as `python -m tasks.NAME`."""

import os
import signal
import sys
from importlib.util import find_spec

if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # While `python -m` imports the task, Ctrl-C ends it without a traceback; `command_line.run` resets this.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# In bfloat16 on a CPU oneDNN generates code for each new shape of a product. Two caches keep that of the last
# 1,024 shapes, gigabytes where most batches have shapes of their own. It reads their sizes at its first use.
for _capacity in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_capacity, "256")

DEPENDENCIES = (
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
"""Modules that `pip install '.[tasks]'` installs."""


def check_dependencies() -> None:
    """Check, before anything slow is imported, that the tasks can run here.

    Raises:
        ModuleNotFoundError: dependencies are missing, and the message names all of them; or this is Windows.
    """
    if find_spec("fcntl") is None:
        raise ModuleNotFoundError("the tasks run on Linux and macOS; on Windows, use WSL", name="fcntl")
    missing = [name for name in DEPENDENCIES if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"the tasks need {', '.join(missing)}: pip install '.[tasks]'", name=missing[0]
        )


check_dependencies()
