"""The C of both models: under the address sanitizer, and on tensors that end at a guard page."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUARD = Path(__file__).with_name("guard_pages.c")
EQUALITY_TESTS = ["tests/ordered_memory", "tests/onlstm", "-k", "native and not cache and not compiler"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("gcc") is None or sys.platform != "linux", reason="needs gcc on Linux"),
]


def run_tests(cache, **environment):
    """The tests that compare native with the definition, in a process of their own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *EQUALITY_TESTS]
    settings = {"TEST_THREADS": "2", "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | settings | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout[-6_000:] + done.stderr[-6_000:]
    assert done.returncode == 0, said
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 20, said
    print(done.stdout.strip().splitlines()[-1])


def of_gcc(name):
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def test_address_sanitizer(tmp_path):
    run_tests(
        tmp_path,
        CC="gcc -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined",
        # With libstdc++, whose exceptions it looks up when it starts.
        LD_PRELOAD=f"{of_gcc('libasan.so')} {of_gcc('libstdc++.so')}",
        ASAN_OPTIONS=f"detect_leaks=0:verify_asan_link_order=0:log_path={tmp_path}/found",
    )
    compiled = list(tmp_path.rglob("*.so"))
    assert {path.name.split("-")[0] for path in compiled} == {"ordered_memory", "onlstm"}
    assert all(b"__asan_report" in path.read_bytes() for path in compiled)


def test_guard_pages(tmp_path):
    library = tmp_path / "guard.so"
    subprocess.run(["gcc", "-O1", "-fPIC", "-shared", "-o", str(library), str(GUARD), "-ldl"], check=True)
    overrun = "import ctypes, torch; x = torch.zeros(1024); ctypes.memset(x.data_ptr() + 4096, 0, 1)"
    dies = subprocess.run(
        [sys.executable, "-c", overrun], env=os.environ | {"LD_PRELOAD": str(library)}, check=False
    )
    assert dies.returncode < 0, "the guard does not guard"
    run_tests(tmp_path, LD_PRELOAD=str(library))
