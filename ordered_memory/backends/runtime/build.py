"""Loads the C code of a backend: from the wheel, or compiled once per processor and version of the source.

Compiled files are cached in `$XDG_CACHE_HOME/ordered_memory` (`~/.cache/ordered_memory`), which may be
deleted at any time. A cached file is loaded only if it is complete, belongs to the user, and nobody else may
write to it. It ends with a digest of its content and of everything it was compiled from.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import stat
import tempfile
from functools import cache
from pathlib import Path

import torch

from ordered_memory.backends.runtime import compiler, processor
from ordered_memory.backends.runtime.c_struct import CStruct, parse

logger = logging.getLogger(__name__)


class Library:
    """A C file compiled for one dtype.

    Args:
        source: the C file. It may include other files of its directory and the headers of this directory.
        dtype: the type scalar_t in the C code, torch.float32 or torch.float64.
    Raises:
        OSError, RuntimeError, ValueError: it cannot be compiled or loaded here; the message says why.

    `code` holds the functions. `has_bf16_vnni` says whether they multiply bfloat16 numbers in the VNNI layout
    of bf16.h (AVX512_BF16; CC="cc -DEMULATE_BF16_VNNI" emulates it slowly on any processor).
    `bf16_gemm` is MKL's bfloat16 matrix product, or None on a processor without AMX, where it is not fast.
    """

    def __init__(self, source: Path, dtype: torch.dtype) -> None:
        blas = pytorch_library()
        self.set_blas_threads = getattr(blas, "MKL_Set_Num_Threads_Local", None)
        flags = set(processor.features().split())
        gemm = getattr(blas, "gemm_bf16bf16f32_", None) if dtype == torch.float32 else None
        self.bf16_gemm = ctypes.cast(gemm, ctypes.c_void_p) if gemm and "amx_bf16" in flags else None
        self.dtype = dtype
        self._text = "\n".join(compiler.read_sources(source))
        self._structs: dict[str, type[CStruct]] = {}
        self.code = _load_code(source, dtype)
        self.has_bf16_vnni = bool(self.constant("has_bf16_vnni"))

    def constant(self, name: str) -> int:
        """The value of a constant of type int64_t that the C file defines.

        Args:
            name: its name.
        """
        return ctypes.c_int64.in_dll(self.code, name).value

    def struct(self, name: str) -> type[CStruct]:
        """The ctypes type of a struct that the C file declares with EXPORT_SIZE.

        Args:
            name: name of its typedef.
        Raises:
            ValueError: the parsed struct and the compiled one differ in size.
        """
        if name not in self._structs:
            struct = parse(self._text, name, self.dtype)
            size = self.constant(f"size_of_{name}")
            if ctypes.sizeof(struct) != size:
                raise ValueError(f"struct {name}: expected {size} bytes, read {ctypes.sizeof(struct)}")
            self._structs[name] = struct
        return self._structs[name]

    def workspace_size(self, arguments: CStruct, is_backward_pass: bool) -> int:
        """The result of the C function of this name, for the workspace of a call.

        Args:
            arguments: the arguments of the call.
            is_backward_pass: whether the call is that of the backward pass.
        """
        function = self.code.workspace_size
        function.restype = ctypes.c_int64
        size: int = function(ctypes.byref(arguments), ctypes.c_int64(is_backward_pass))
        return size


@cache
def load(source: Path, dtype: torch.dtype) -> Library | str:
    """Load the library of a C file, which is compiled when first needed unless the wheel contains it.

    On Linux a failure is logged as a warning.

    Args:
        source: the C file.
        dtype: torch.float32 or torch.float64.
    Returns:
        The library, or the reason why there is none.
    """
    if platform.system() != "Linux":
        return f"its C runs on Linux, this is {platform.system()}"
    try:
        return Library(source, dtype)
    except (OSError, RuntimeError, ValueError) as error:
        package = source.parents[2].name
        logger.warning("%s: the fastest backend, 'native', cannot run: %s", package, error)
        return str(error)


def load_or_raise(source: Path, dtype: torch.dtype) -> Library:
    """Load a library that a call needs, such as that of an exported program from another machine; see `load`.

    Args:
        source: the C file.
        dtype: torch.float32 or torch.float64.
    Raises:
        RuntimeError: there is none; the message says why.
    """
    library = load(source, dtype)
    if isinstance(library, str):
        raise RuntimeError(f"backend 'native' cannot run here: {library}")
    return library


def why_not_loaded(source: Path, dtype: torch.dtype) -> str | None:
    """Why there is no library of a C file, or None if there is one; see `load`.

    Args:
        source: the C file.
        dtype: torch.float32 or torch.float64.
    """
    library = load(source, dtype)
    return library if isinstance(library, str) else None


@cache
def pytorch_library() -> ctypes.CDLL:
    """PyTorch's CPU library, which gives access to the BLAS and the OpenMP that it is linked with."""
    return ctypes.CDLL("libtorch_cpu.so")  # already loaded, so this needs no path


def _load_code(source: Path, dtype: torch.dtype) -> ctypes.CDLL:
    """Load the compiled functions, from the wheel if it supports this processor."""
    features = processor.features().split()
    for file in compiler.compiled_ahead(source, dtype == torch.float64, features):
        try:
            return _open(file)
        except OSError as error:  # for instance, the wheel was built with another C library
            logger.debug("%s", error)
    compiled = _compiled(source, dtype)
    try:
        return _open(compiled)
    except OSError as error:  # for instance, the file system is mounted with noexec
        raise RuntimeError(f"cannot load {error}; XDG_CACHE_HOME may name another directory") from error


def _open(file: Path) -> ctypes.CDLL:
    code = ctypes.CDLL(str(file))
    logger.debug("loaded %s", file)
    return code


def _compiled(source: Path, dtype: torch.dtype) -> Path:
    """The path of the compiled file, which is compiled unless the cache has one that may be loaded."""
    flags = compiler.flags_for(source, dtype == torch.float64, ["-march=native"])
    key_parts = [*compiler.command(), *flags, *platform.libc_ver(), processor.features()]
    key = compiler.digest(source, *key_parts)
    target = _cache_directory() / f"{source.parents[2].name}-{key[:24]}.so"
    if not _may_be_loaded(target, key):
        try:
            _compile(flags, target, key)
        except OSError as error:  # for instance, the file system is read-only
            raise RuntimeError(f"cannot write {error}; XDG_CACHE_HOME may name another directory") from error
        if not _may_be_loaded(target, key):
            raise RuntimeError(f"the file just compiled, {target}, is damaged")
    return target


def _compile(flags: list[str], target: Path, key: str) -> None:
    """Compile and replace the target atomically, because several processes may do so at the same time."""
    with tempfile.TemporaryDirectory(dir=target.parent) as directory:
        built, signed = Path(directory, "built.so"), Path(directory, "signed.so")
        compiler.run(flags, built)
        content = built.read_bytes()
        with signed.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(content + _digest(key, content))
            file.flush()
            os.fsync(file.fileno())
        if not _may_be_loaded(target, key):  # else another process was faster, and may have loaded its file
            signed.replace(target)


def _digest(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + content).digest()


def _may_be_loaded(target: Path, key: str) -> bool:
    """Whether the file exists, is complete, belongs to the user, and nobody else may write to it."""

    def opener(path: str, flags: int) -> int:
        """Do not follow a symbolic link, and do not wait for a pipe."""
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)

    try:
        with open(target, "rb", opener=opener) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or not _is_private(status):
                return False
            content = file.read()
    except OSError:  # also for a directory
        return False
    size = hashlib.sha256().digest_size
    return content[-size:] == _digest(key, content[:-size])


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _cache_directory() -> Path:
    """The directory of compiled files; created if missing."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        directory = (base if base.is_absolute() else Path.home() / ".cache") / "ordered_memory"
        for missing in (*reversed(directory.parents), directory):
            missing.mkdir(mode=0o700, exist_ok=True)
        private = _is_private(directory.stat())
    except (OSError, RuntimeError) as error:
        raise RuntimeError(f"no directory to compile into, name one with XDG_CACHE_HOME: {error}") from error
    if not private:
        raise RuntimeError(f"{directory} belongs to another user, or others may write to it")
    return directory
