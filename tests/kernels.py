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
    """Have the interpreter replace Triton's language once for each kernel, and leave out work of no use.

    By itself it replaces the language at every call of a function, which takes a third of the time. What it
    replaces depends on the function's module alone, and stays replaced until the kernel ends. It also
    computes whether integers overflow, and then asserts it only in debugging, which is off; it makes a table
    of all types whenever it looks one up, and the shape of a tensor anew for each tensor.
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
        leave_out_useless_work(patch, interpreter)
        yield


def leave_out_useless_work(patch, interpreter):
    options, look_up, make = interpreter.InterpreterOptions, interpreter._get_np_dtype, tl.tensor.__init__
    if options.debug:  # the checks have a use
        return
    patch.setattr(interpreter.interpreter_builder, "options", options(sanitize_overflow=False))
    types, shapes = {}, {}

    def look_up_once(of):
        if of.scalar.name not in types:
            types[of.scalar.name] = look_up(of)
        return types[of.scalar.name]

    def make_with_shape(self, handle, type):
        if not type.is_block():
            make(self, handle, type)
        elif type.shape not in shapes:
            make(self, handle, type)
            shapes[type.shape] = self.shape, self.numel
        else:
            self.handle, self.type, self.dtype = handle, type, type.scalar
            self.shape, self.numel = shapes[type.shape]

    patch.setattr(interpreter, "_get_np_dtype", look_up_once)
    patch.setattr(tl.tensor, "__init__", make_with_shape)
