"""Every test starts from the same seed, and Hypothesis draws the same examples every time."""

import ctypes
import os
import shlex
import signal

import pytest
import torch
from hypothesis import settings

from ordered_memory.backends.native.call import compiled
from ordered_memory.backends.runtime import build, compiler

# Read when Triton is imported, which other packages do: without a GPU its kernels are interpreted.
os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")

# Tests are small: more threads only wait for one another, above all where something else is running. A sum
# shared among another number of threads rounds differently, so the programs a test starts have as many.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"

settings.register_profile("reproducible", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("reproducible")

# A shell without a terminal starts what it puts into the background with Ctrl-C ignored, and tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _same_seed():
    torch.manual_seed(20191026)


@pytest.fixture(scope="session", autouse=True)
def _reports_have_few_examples():
    """Tracing as many as a report has takes longer than the tiny run that it is about."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.reporting.examples.NUM_EXAMPLES", 4)
        yield


@pytest.fixture(params=["pairs", "blas"])
def bfloat16_products(request, monkeypatch):
    """Products of bfloat16 operands under autocast, emulated where the processor has none: by the C of the
    native engines, and by MKL."""
    compile_pairs = [*compiler.command(), "-DEMULATE_PAIRS"]
    monkeypatch.setenv("CC", shlex.join(compile_pairs))
    build.load.cache_clear()
    library = compiled(torch.float32)
    if isinstance(library, str):
        pytest.skip(library)
    product = getattr(build.pytorch_library(), "gemm_bf16bf16f32_", None) if request.param == "blas" else None
    if request.param == "blas" and product is None:
        pytest.skip("PyTorch's BLAS has no product of bfloat16 matrices")
    monkeypatch.setattr(library, "bf16_gemm", product and ctypes.cast(product, ctypes.c_void_p))
    yield request.param
    build.load.cache_clear()


@pytest.fixture(scope="session")
def small_runs(tmp_path_factory):
    """A tiny finished run of each task, to be read only: see `tests.hostile_files.make_runs`."""
    from tests.hostile_files import make_runs

    return make_runs(tmp_path_factory.mktemp("small_runs"))
