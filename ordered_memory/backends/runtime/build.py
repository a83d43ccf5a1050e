"""Compiling a C file of a backend and loading it, once for each machine and version of the source."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch

HEADER = Path(__file__).with_name("common.h")
FLAGS = ["-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared"]
if platform.machine() in ("x86_64", "AMD64"):
    FLAGS.append("-mprefer-vector-width=512")  # where there are such; compilers shy away from them by default


class Library:
    """The functions of a C file compiled for one dtype, and the BLAS they multiply with.

    Args:
        source: the file.
        dtype: torch.float32 or torch.float64.
    Raises:
        RuntimeError: it cannot be built or loaded here; says why.

    `half_gemm` is the product of bfloat16 operands; None where the processor has none that is fast.
    """

    def __init__(self, source: Path, dtype: torch.dtype) -> None:
        blas = _blas()
        self.gemm = ctypes.cast(blas.sgemm_ if dtype == torch.float32 else blas.dgemm_, ctypes.c_void_p)
        half = getattr(blas, "gemm_bf16bf16f32_", None) if dtype == torch.float32 else None
        self.half_gemm = ctypes.cast(half, ctypes.c_void_p) if half and _has_bfloat16() else None
        self.set_blas_threads = blas.MKL_Set_Num_Threads_Local
        self.code = _load(source, dtype)


@cache
def load(source: Path, dtype: torch.dtype) -> Library | str:
    """The library of a C file for a dtype, or why there is none."""
    try:
        return Library(source, dtype)
    except RuntimeError as error:
        return str(error)


def asked_for_bfloat16(library: Library | str) -> bool:
    """Whether autocast asks for bfloat16 on the CPU and this library multiplies it."""
    asked = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    return asked and isinstance(library, Library) and library.half_gemm is not None


def _load(source: Path, dtype: torch.dtype) -> ctypes.CDLL:
    """The compiled file; compiled anew where what lies in the cache is no library."""
    built = _build(source, dtype)
    try:
        return ctypes.CDLL(str(built))
    except OSError:
        built.unlink(missing_ok=True)
    try:
        return ctypes.CDLL(str(_build(source, dtype)))
    except OSError as error:
        raise RuntimeError(f"what was compiled cannot be loaded: {error}") from None


def _blas() -> ctypes.CDLL:
    """PyTorch's own MKL."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        library = ctypes.CDLL(str(path))
        library.sgemm_, library.dgemm_, library.MKL_Set_Num_Threads_Local  # noqa: B018
    except (OSError, AttributeError):
        raise RuntimeError("this build of PyTorch brings no MKL to multiply with") from None
    return library


def _build(source: Path, dtype: torch.dtype) -> Path:
    """The shared library, compiled if it is not in the cache."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise RuntimeError("there is no C compiler (cc, or what CC names)")
    command = [compiler, *FLAGS, f"-DDOUBLE={int(dtype == torch.float64)}", f"-I{HEADER.parent}"]
    command += [str(source), "-lm"]
    files = [*sorted(HEADER.parent.glob("*.h")), *sorted(source.parent.glob("*.h")), source]
    made_of = [*command, *(file.read_text() for file in files), platform.node(), _processor()]
    name = hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:24]
    target = _cache_directory() / f"{source.parent.parent.parent.name}-{name}.so"
    if target.exists():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as directory:
            built = Path(directory, target.name)
            done = subprocess.run([*command, "-o", str(built)], capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"{compiler} failed: {done.stderr.strip()[:500]}")
            built.replace(target)  # whole or not at all, whoever else builds it
    except OSError as error:
        raise RuntimeError(f"it could not be compiled into {target.parent}: {error}") from None
    return target


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "ordered_memory")


def _has_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16 numbers itself."""
    return bool({"amx_bf16", "avx512_bf16"} & set(_processor().split()))


def _processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("flags")), platform.processor())
