"""What the tests of both models' Triton kernels share.

Without a GPU the kernels run in Triton's interpreter, which must be asked for before Triton is first imported
(tests/conftest.py does it for a whole run of the tests).
"""

import contextlib
import os

import pytest
import torch

os.environ["TRITON_INTERPRET"] = "0" if torch.cuda.is_available() else "1"

tl = pytest.importorskip("triton", minversion="3.6").language

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRETED = type(tl.sum).__name__ == "InterpretedFunction"

RUNS = pytest.mark.skipif(
    DEVICE == "cpu" and not INTERPRETED,
    reason="Triton was imported before TRITON_INTERPRET=1 was set: set it, or run this file alone",
)
ALL_KERNELS = [
    # On a GPU PyTorch's own cumsum and products say that they have no deterministic form.
    pytest.mark.filterwarnings("ignore:.*deterministic"),
    pytest.mark.usefixtures("kernels"),  # of tests/conftest.py
]


@contextlib.contextmanager
def uninitialised_memory_is_nan():
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def language_replaced_once():
    """Have the interpreter replace Triton's language once for each kernel.

    By itself it does so at every call of a function, which takes a third of the time. What it replaces
    depends on the function's module alone, and stays replaced until the kernel ends.
    """
    from triton.runtime import interpreter

    if not hasattr(interpreter, "_patch_lang"):  # another version of Triton: the tests take longer
        yield
        return
    replace, launch, seen = interpreter._patch_lang, interpreter.GridExecutor.__call__, set()

    def replace_once(function):
        if id(function.__globals__) in seen:
            return None
        seen.add(id(function.__globals__))
        return replace(function)

    def launch_with_none_seen(*arguments, **options):
        seen.clear()
        return launch(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", replace_once)
        patch.setattr(interpreter.GridExecutor, "__call__", launch_with_none_seen)
        yield
