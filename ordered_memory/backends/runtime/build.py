"""Compiling a C file of a backend and loading it, once for each machine and version of the source.

What is compiled lies in `$XDG_CACHE_HOME/ordered_memory` (`~/.cache/ordered_memory`), which may be deleted at
any time. A file there is loaded only if it is whole, the user's own, and no other may write to it. It ends
with the digest of its content and of what it was made of.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import stat
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch

from ordered_memory.backends.runtime.c_struct import Arguments, parse

HEADERS = Path(__file__).parent
FLAGS = ["-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared"]
if platform.machine() in ("x86_64", "AMD64"):
    FLAGS.append("-mprefer-vector-width=512")  # where there are such; compilers shy away from them by default


class Library:
    """The functions of a C file compiled for one dtype, and the BLAS they multiply with.

    Args:
        source: the file; it may include other files of its directory, and the headers of this one.
        dtype: what REAL stands for, torch.float32 or torch.float64.
    Raises:
        OSError, RuntimeError, ValueError: it cannot be built or loaded here; says why.

    `code` has the functions, `gemm` is BLAS's product, `bf16_gemm` that of bfloat16 operands; None where the
    processor has none that is fast.
    """

    def __init__(self, source: Path, dtype: torch.dtype) -> None:
        blas = pytorch_library()
        try:
            gemm, self.set_blas_threads = blas.sgemm_, blas.MKL_Set_Num_Threads_Local
        except AttributeError:
            raise RuntimeError("this build of PyTorch brings no MKL to multiply with") from None
        self.gemm = ctypes.cast(gemm if dtype == torch.float32 else blas.dgemm_, ctypes.c_void_p)
        bf16 = getattr(blas, "gemm_bf16bf16f32_", None) if dtype == torch.float32 else None
        self.bf16_gemm = ctypes.cast(bf16, ctypes.c_void_p) if bf16 and _has_bfloat16() else None
        self.dtype = dtype
        self._text = "\n".join(file.read_text() for file in _files(source))
        self._structs: dict[str, type[Arguments]] = {}
        self.code = ctypes.CDLL(str(_compiled(source, dtype)))

    def struct(self, name: str) -> type[Arguments]:
        """A struct of the C file, for which it says EXPORT_SIZE.

        Args:
            name: of its typedef.
        Raises:
            ValueError: it was read as another than the compiler did.
        """
        if name not in self._structs:
            struct = parse(self._text, name, self.dtype)
            size = ctypes.c_int64.in_dll(self.code, f"size_of_{name}").value
            if ctypes.sizeof(struct) != size:
                raise ValueError(f"struct {name}: expected {size} bytes, read {ctypes.sizeof(struct)}")
            self._structs[name] = struct
        return self._structs[name]


@cache
def load(source: Path, dtype: torch.dtype) -> Library | str:
    """The library of a C file, compiled when first needed.

    Args:
        source: the file.
        dtype: float32 or float64.
    Returns:
        The library, or why there is none.
    """
    try:
        return Library(source, dtype)
    except (OSError, RuntimeError, ValueError) as error:
        return str(error)


@cache
def pytorch_library() -> ctypes.CDLL:
    """PyTorch's library for the CPU, and through it the BLAS and the OpenMP that it was linked with."""
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))


def _files(source: Path) -> list[Path]:
    return [*sorted(HEADERS.glob("*.h")), *sorted(source.parent.glob("*.[ch]"))]


def _compiled(source: Path, dtype: torch.dtype) -> Path:
    """The compiled file; compiled where there is none in the cache that may be trusted."""
    compiler = os.environ.get("CC", "").strip() or "cc"
    flags = [*FLAGS, f"-DDOUBLE={int(dtype == torch.float64)}", f"-I{HEADERS}", str(source), "-lm"]
    made_of = [compiler, *flags, *(file.read_text() for file in _files(source))]
    key = hashlib.sha256("\0".join([*made_of, *platform.libc_ver(), _processor()]).encode()).hexdigest()
    target = _cache_directory() / f"{source.parents[2].name}-{key[:24]}.so"
    if not _may_be_loaded(target, key):
        _compile([*shlex.split(compiler), *flags], target, key)
        if not _may_be_loaded(target, key):
            raise RuntimeError(f"what was just compiled into {target} is damaged")
    return target


def _compile(command: list[str], target: Path, key: str) -> None:
    """Compile into the target: whole or not at all, whoever else does so at the same time."""
    with tempfile.TemporaryDirectory(dir=target.parent) as directory:
        built, signed = Path(directory, "built.so"), Path(directory, "signed.so")
        try:
            done = subprocess.run(
                [*command, "-o", str(built)], stdin=subprocess.DEVNULL, capture_output=True, errors="replace"
            )
        except OSError as error:
            raise RuntimeError(f"there is no C compiler (cc, or what CC names): {error}") from None
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[:500]}")
        content = built.read_bytes()
        with signed.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(content + _digest(key, content))
            file.flush()
            os.fsync(file.fileno())
        signed.replace(target)


def _digest(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + content).digest()


def _may_be_loaded(target: Path, key: str) -> bool:
    """Whether the file is there, whole and nobody else's."""
    try:
        # A symbolic link is not followed, a pipe not waited for.
        descriptor = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not _is_private(status):
            return False
        content = file.read()
    size = hashlib.sha256().digest_size
    return content[-size:] == _digest(key, content[:-size])


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _cache_directory() -> Path:
    """Where compiled files are kept; made where it is missing."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    directory = (base if base.is_absolute() else Path.home() / ".cache") / "ordered_memory"
    for missing in (*reversed(directory.parents), directory):
        missing.mkdir(mode=0o700, exist_ok=True)
    if not _is_private(directory.stat()):
        raise RuntimeError(f"{directory} belongs to another user, or others may write to it")
    return directory


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
