"""Compiling a C file of a backend and loading it, once for each machine and version of the source.

Compiled files are kept in `$XDG_CACHE_HOME/ordered_memory` (`~/.cache/ordered_memory`), which may be deleted
at any time. A file there is loaded only if it is complete, belongs to the user, and nobody else may write to
it. It ends with a digest of its content and of everything it was compiled from.
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

from ordered_memory.backends.runtime import processor
from ordered_memory.backends.runtime.c_struct import Arguments, parse

HEADERS = Path(__file__).parent
FLAGS = ["-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared"]
if platform.machine() in ("x86_64", "AMD64"):
    FLAGS.append("-mprefer-vector-width=512")  # compilers avoid such vectors by default


class Library:
    """The functions of a C file compiled for one dtype, and the BLAS for their bfloat16 numbers.

    Args:
        source: the file; it may include other files of its directory, and the headers of this one.
        dtype: what REAL stands for, torch.float32 or torch.float64.
    Raises:
        OSError, RuntimeError, ValueError: it cannot be built or loaded here; says why.

    `code` holds the functions; `multiplies_pairs` says whether they multiply pairs of bfloat16 numbers.
    `multiplies_bfloat16` says whether the processor does so anyhow, and `bf16_gemm` is MKL's product of such
    matrices, None unless it is a fast one, which AMX makes it.
    """

    def __init__(self, source: Path, dtype: torch.dtype) -> None:
        blas = pytorch_library()
        self.set_blas_threads = getattr(blas, "MKL_Set_Num_Threads_Local", None)
        flags = set(processor.features().split())
        self.multiplies_bfloat16 = dtype == torch.float32 and bool({"amx_bf16", "avx512_bf16"} & flags)
        bf16 = getattr(blas, "gemm_bf16bf16f32_", None) if dtype == torch.float32 else None
        self.bf16_gemm = ctypes.cast(bf16, ctypes.c_void_p) if bf16 and "amx_bf16" in flags else None
        self.dtype = dtype
        self._text = "\n".join(file.read_text() for file in _files(source))
        self._structs: dict[str, type[Arguments]] = {}
        self.code = ctypes.CDLL(str(_compiled(source, dtype)))
        self.multiplies_pairs = bool(ctypes.c_int64.in_dll(self.code, "multiplies_pairs").value)

    def struct(self, name: str) -> type[Arguments]:
        """A struct that the C file declares with EXPORT_SIZE.

        Args:
            name: of its typedef.
        Raises:
            ValueError: the struct as parsed differs in size from the compiler's.
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
    """PyTorch's CPU library; the BLAS and the OpenMP that it is linked with can be called through it."""
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))


def _files(source: Path) -> list[Path]:
    return [*sorted(HEADERS.glob("*.h")), *sorted(source.parent.glob("*.[ch]"))]


def _compiled(source: Path, dtype: torch.dtype) -> Path:
    """The compiled file; compiled if the cache has none that can be trusted."""
    compiler = os.environ.get("CC", "").strip() or "cc"
    flags = [*FLAGS, f"-DDOUBLE={int(dtype == torch.float64)}", f"-I{HEADERS}", str(source), "-lm"]
    sources = [file.read_text() for file in _files(source)]
    made_of = [compiler, *flags, *sources, *platform.libc_ver(), processor.features()]
    key = hashlib.sha256("\0".join(made_of).encode()).hexdigest()
    target = _cache_directory() / f"{source.parents[2].name}-{key[:24]}.so"
    if not _may_be_loaded(target, key):
        _compile([*shlex.split(compiler), *flags], target, key)
        if not _may_be_loaded(target, key):
            raise RuntimeError(f"what was just compiled into {target} is damaged")
    return target


def _compile(command: list[str], target: Path, key: str) -> None:
    """Compile into the target, atomically, so that several processes may do so at the same time."""
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
    """Whether the file exists, is complete, and belongs to the user alone."""
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
    """The directory of compiled files; created if missing."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    directory = (base if base.is_absolute() else Path.home() / ".cache") / "ordered_memory"
    for missing in (*reversed(directory.parents), directory):
        missing.mkdir(mode=0o700, exist_ok=True)
    if not _is_private(directory.stat()):
        raise RuntimeError(f"{directory} belongs to another user, or others may write to it")
    return directory
