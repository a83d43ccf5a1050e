"""The C compiler: called when a backend is first needed, and when a wheel is built.

A wheel holds each C file compiled for several processors, beside the file itself. The name of such a library
has a digest of what it was compiled from: one of other sources is never loaded.
This file imports the standard library alone: `setup.py` runs it where PyTorch is not installed.
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
    FLAGS.append("-mprefer-vector-width=512")  # compilers avoid such vectors by default


class Processor(NamedTuple):
    """A kind of processor that libraries of a wheel are compiled for.

    Args:
        name: stands in the name of the library.
        flags: of the compiler.
        features: those that it must have, by their names in /proc/cpuinfo.
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
"""By machine, on Linux, the fastest first. Tile products of AMX are MKL's, whatever the library."""


def command() -> list[str]:
    """The compiler, `cc` or what the environment variable CC names, with its arguments."""
    return shlex.split(os.environ.get("CC", "")) or ["cc"]


def flags_for(source: Path, double: bool, processor: Iterable[str]) -> list[str]:
    """Flags that make a shared library of a C file.

    Args:
        source: the file.
        double: whether REAL is double; else it is float.
        processor: flags that say which processor it is for.
    """
    return [*FLAGS, *processor, f"-DDOUBLE={int(double)}", f"-I{HEADERS}", str(source), "-lm"]


def files(source: Path) -> list[Path]:
    """What a C file is compiled from: the headers of this directory and the C of its own.

    Args:
        source: the file.
    """
    return [*sorted(HEADERS.glob("*.h")), *sorted(source.parent.glob("*.[ch]"))]


def digest(source: Path, *more: str) -> str:
    """A digest of what a library is made of, in hexadecimal digits.

    Args:
        source: the C file; everything that it is compiled from counts.
        *more: counts, too.
    """
    made_of = [*more, *(file.read_text() for file in files(source))]
    return hashlib.sha256("\0".join(made_of).encode()).hexdigest()


def run(flags: Iterable[str], target: Path) -> None:
    """Compile.

    Args:
        flags: from `flags_for`.
        target: the library; written in place.
    Raises:
        RuntimeError, ValueError: it cannot be compiled; says why.
    """
    compiler = command()
    try:
        done = subprocess.run(
            [*compiler, *flags, "-o", str(target)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            errors="replace",
        )
    except OSError as error:
        raise RuntimeError(f"there is no C compiler (cc, or what CC names): {error}") from None
    if done.returncode != 0:
        raise RuntimeError(f"{compiler[0]} failed: {done.stderr.strip()[:500]}")


def compile_ahead(source: Path) -> list[str]:
    """Compile a C file for every kind of processor that this machine may belong to, as a wheel holds it.

    Args:
        source: the file; the libraries come to lie beside it, in place of earlier ones.
    Returns:
        Why there is no library, for each that there is not.
    """
    for earlier in source.parent.glob("*.so"):
        earlier.unlink()

    def attempt(processor: Processor, double: bool) -> str | None:
        target = _ahead(source, double, processor)
        try:
            run(flags_for(source, double, processor.flags), target)
        except (RuntimeError, ValueError) as error:
            return f"{target.name}: {error}"
        return None

    kinds = [(processor, double) for processor in _processors() for double in (False, True)]
    with ThreadPoolExecutor() as pool:
        return [failure for failure in pool.map(lambda kind: attempt(*kind), kinds) if failure is not None]


def compiled_ahead(source: Path, double: bool, features: Collection[str]) -> list[Path]:
    """The libraries that came with the wheel and run on this processor, the fastest first.

    Args:
        source: the C file.
        double: whether REAL is double; else it is float.
        features: of the processor, by their names in /proc/cpuinfo.
    """
    able = (one for one in _processors() if one.features.issubset(features))
    return [file for one in able if (file := _ahead(source, double, one)).is_file()]


def _processors() -> list[Processor]:
    return PROCESSORS.get(platform.machine(), []) if platform.system() == "Linux" else []


def _ahead(source: Path, double: bool, processor: Processor) -> Path:
    """Where a library lies in a wheel."""
    made_of = digest(source, *FLAGS, *processor.flags, str(double))
    real = "float64" if double else "float32"
    return source.with_name(f"{source.stem}-{processor.name}-{real}-{made_of[:16]}.so")
