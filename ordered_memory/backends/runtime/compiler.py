"""Calls the C compiler, when a backend is first needed and when a wheel is built.

A wheel contains libraries compiled from each C file for several kinds of processor, next to the file. The
name of a library contains a digest of its sources, so that a library of other sources is never loaded. This
file imports only the standard library, because `setup.py` runs it where PyTorch is not installed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import subprocess
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HEADERS = Path(__file__).parent
FLAGS = ["-O3", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared"]
if platform.machine() in ("x86_64", "AMD64"):
    FLAGS.append("-mprefer-vector-width=512")  # compilers prefer narrower vectors by default


class Processor(NamedTuple):
    """A kind of processor for which a wheel contains libraries.

    Args:
        name: name of the kind, part of the library's file name.
        flags: compiler flags.
        features: features that the processor must have, by their names in /proc/cpuinfo.
    """

    name: str
    flags: list[str]
    features: frozenset[str] = frozenset()


_V3 = frozenset(["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"])
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
PROCESSORS = {
    "x86_64": [
        Processor("x86-64-v4-bf16", ["-march=x86-64-v4", "-mavx512bf16"], _V4 | {"avx512_bf16"}),
        Processor("x86-64-v4", ["-march=x86-64-v4"], _V4),
        Processor("x86-64-v3", ["-march=x86-64-v3"], _V3),
    ],
    "aarch64": [Processor("armv8-a", ["-march=armv8-a"])],
}
"""Kinds of processor by `platform.machine()`, fastest first. None needs AMX, which only MKL uses."""


def command() -> list[str]:
    """The command of the compiler: the environment variable CC, which may contain arguments, or `cc`.

    Raises:
        ValueError: CC has an unbalanced quotation mark.
    """
    try:
        return shlex.split(os.environ.get("CC", "")) or ["cc"]
    except ValueError as error:
        raise ValueError(f"the environment variable CC is not a command: {error}") from None


def flags_for(source: Path, double: bool, processor: Iterable[str]) -> list[str]:
    """The flags to compile a C file to a shared library.

    Args:
        source: the C file.
        double: whether scalar_t is double; otherwise it is float.
        processor: flags that select the kind of processor.
    """
    return [*FLAGS, *processor, f"-DDOUBLE={int(double)}", f"-I{HEADERS}", str(source), "-lm", "-Wl,-z,defs"]


def read_sources(source: Path) -> list[str]:
    """Read the sources of a library: the headers of this directory, and the C files next to `source`.

    Args:
        source: the C file.
    Returns:
        The text of each file.
    """
    files = [*sorted(HEADERS.glob("*.h")), *sorted(source.parent.glob("*.[ch]"))]
    return [file.read_text(encoding="utf-8") for file in files]


def digest(source: Path, *more: str) -> str:
    """A hexadecimal digest of the sources of a library.

    Args:
        source: the C file; the digest covers all that `read_sources` reads.
        *more: further texts that the digest covers.
    """
    return hashlib.sha256("\0".join([*more, *read_sources(source)]).encode()).hexdigest()


def run(flags: Iterable[str], target: Path) -> None:
    """Run the compiler.

    Args:
        flags: result of `flags_for`.
        target: path of the library; not written atomically.
    Raises:
        RuntimeError, ValueError: the file cannot be compiled; the message says why.
    """
    compiler = command()
    try:
        completed = subprocess.run(
            [*compiler, *flags, "-o", str(target)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            errors="replace",
        )
    except OSError as error:
        raise RuntimeError(f"there is no C compiler (cc, or what CC names): {error}") from None
    if completed.returncode != 0:
        raise RuntimeError(
            f"{compiler[0]} failed with status {completed.returncode}: {completed.stderr.strip()[:500]}"
        )


def compile_ahead(source: Path) -> list[str]:
    """Compile a C file for a wheel: for every kind of processor of this machine's architecture.

    Args:
        source: the C file. The libraries are written next to it and replace earlier ones.
    Returns:
        The reason of each failure.
    """
    for earlier in source.parent.glob("*.so"):
        earlier.unlink()

    def attempt(processor: Processor, double: bool) -> str | None:
        target = _ahead_path(source, double, processor)
        try:
            run(flags_for(source, double, processor.flags), target)
        except (RuntimeError, ValueError) as error:
            return f"{target.name}: {error}"
        return None

    builds = [(processor, double) for processor in _processors() for double in (False, True)]
    with ThreadPoolExecutor() as pool:
        return [failure for failure in pool.map(lambda build: attempt(*build), builds) if failure is not None]


def compiled_ahead(source: Path, double: bool, features: Collection[str]) -> list[Path]:
    """The libraries of the wheel that run on this processor, fastest first.

    Args:
        source: the C file.
        double: whether scalar_t is double; otherwise it is float.
        features: features of the processor, by their names in /proc/cpuinfo.
    """
    supported = (processor for processor in _processors() if processor.features.issubset(features))
    return [file for processor in supported if (file := _ahead_path(source, double, processor)).is_file()]


def _processors() -> list[Processor]:
    return PROCESSORS.get(platform.machine(), []) if platform.system() == "Linux" else []


def _ahead_path(source: Path, double: bool, processor: Processor) -> Path:
    """The path of a library in a wheel."""
    source_digest = digest(source, *FLAGS, *processor.flags, str(double))
    dtype_name = "float64" if double else "float32"
    return source.with_name(f"{source.stem}-{processor.name}-{dtype_name}-{source_digest[:16]}.so")
