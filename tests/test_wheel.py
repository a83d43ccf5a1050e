"""The wheel: what is in it, and that it needs no compiler to run."""

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from ordered_memory.backends.runtime import compiler

ROOT = Path(__file__).parents[1]
PACKAGES = ("ordered_memory", "onlstm", "tasks")


def can_list_files():
    """Whether git can list the files here: not outside a checkout, and not in another user's checkout."""
    try:
        return subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


needs_git = pytest.mark.skipif(not can_list_files(), reason="git must list the files")


def run(*command, cwd, **environment):
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


def build(directory, **environment):
    """Build a source distribution, and of that a wheel; without a network. Returns the wheel and the log."""
    checkout = directory / "checkout"
    for name in tracked():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    run("-c", "import setuptools.build_meta as it; it.build_sdist('..')", cwd=checkout)
    (source,) = directory.glob("*.tar.gz")
    pip = ("-m", "pip", "--no-input", "--disable-pip-version-check", "--no-cache-dir")
    here = ("--no-build-isolation", "--no-deps", "--no-index")
    log = run(*pip, "wheel", "--verbose", *here, source, cwd=directory, **environment)
    (wheel,) = directory.glob("*.whl")
    return wheel, log


def tracked(*folders):
    """The files in these folders, or in all, that git tracks or would."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return {name for name in names if (ROOT / name).is_file()}


@needs_git
def test_no_file_beside_the_modules_is_left_out_of_the_wheel():
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    folders = [(ROOT.joinpath(*package.split(".")), patterns) for package, patterns in data.items()]
    packed = {path for folder, patterns in folders for one in patterns for path in folder.glob(one)}
    expected = {name for name in tracked(*PACKAGES) if not name.endswith(".py")}
    assert expected == {str(path.relative_to(ROOT)) for path in packed}


@needs_git
@pytest.mark.slow
def test_a_wheel_built_without_a_compiler_is_for_every_platform_and_forgets_no_file(tmp_path):
    wheel, log = build(tmp_path, CC="no-such-compiler")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert ("left out of the wheel: recurrence-" in log) == (platform.system() == "Linux")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert tracked(*PACKAGES) == {name for name in names if ".dist-info/" not in name}
    (source,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    assert {name for name in tracked() if not name.startswith(".")} <= names


RUN_NATIVE = """
import sys, torch
import ordered_memory, onlstm
slow_to_import = {"torch._dynamo", "matplotlib", "nltk", "torch_struct", "triton"} & set(sys.modules)
assert not slow_to_import, slow_to_import
assert all(module.__file__.startswith(sys.argv[1]) for module in (ordered_memory, onlstm))
from ordered_memory.backends.runtime import build, compiler, processor
from pathlib import Path

def results(make, backend, dtype):
    torch.manual_seed(1)
    layer = make(backend=backend, dtype=dtype)
    x = torch.randn(9, 4, 5, dtype=dtype, requires_grad=True)
    output, state = layer(x)[:2]
    found = [output, *state]
    sum(one.sin().sum() for one in found).backward()
    return found + [one.grad for one in (x, *layer.parameters()) if one.grad is not None]

def memory(**options):
    return ordered_memory.OrderedMemory(5, 24, 4, **options)

def lstm(**options):
    return onlstm.ONLSTM(5, 24, chunk_size=4, num_layers=2, **options)

here = set(processor.features().split())
kinds = [kind for kind in compiler.PROCESSORS[sys.argv[2]] if kind.features <= here]
assert kinds or not here, "this processor is older than the oldest that the wheel is for"
for kind in kinds:
    processor.features = lambda: " ".join(kind.features)
    build.load.cache_clear()
    for make in (memory, lstm):
        for dtype in (torch.float32, torch.float64):
            expected = results(make, "reference", dtype)
            for one, two in zip(expected, results(make, "native", dtype), strict=True):
                torch.testing.assert_close(two, one)
    for package in (ordered_memory, onlstm):
        source = Path(package.__file__).parent / "backends" / "native" / "recurrence.c"
        for dtype in (torch.float32, torch.float64):
            assert kind.name in build.load(source, dtype).code._name
print("ran", *(kind.name for kind in kinds))
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc)")
@pytest.mark.skipif(
    not compiler.PROCESSORS.get(platform.machine()), reason="wheels have no C for this machine"
)
@pytest.mark.skipif(platform.system() != "Linux", reason="wheels have C for Linux")
@needs_git
def test_native_runs_from_the_wheel_without_a_compiler(tmp_path):
    wheel, log = build(tmp_path)
    assert "left out of the wheel" not in log
    assert wheel.name.endswith(f"-py3-none-linux_{platform.machine()}.whl")
    installed, empty = tmp_path / "installed", tmp_path / "empty"
    empty.mkdir()
    install = ("-m", "pip", "install", "--no-deps", "--no-index", "--quiet", "--disable-pip-version-check")
    run(*install, "--target", installed, wheel, cwd=tmp_path)
    nothing = {"PATH": "", "CC": "", "PYTHONPATH": str(installed), "XDG_CACHE_HOME": str(empty / "cache")}
    ran = run("-c", RUN_NATIVE, installed, platform.machine(), cwd=empty, **nothing)
    assert ran.startswith("ran ")
    parsed = run("-m", "tasks.listops", "predict", "[MAX 2 9 [MIN 4 7 ] 0 ]", cwd=empty, **nothing)
    assert "9" in parsed
    assert list(empty.rglob("*.so")) == []


def test_a_library_of_a_wheel_is_for_its_sources_and_for_able_processors(tmp_path, monkeypatch):
    kinds = [compiler.Processor("new", ["-DNEW"], frozenset({"a", "b"})), compiler.Processor("old", [])]
    monkeypatch.setattr(compiler, "PROCESSORS", {platform.machine(): kinds})
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(compiler, "run", lambda flags, target: target.write_text(" ".join(flags)))
    source = tmp_path / "it.c"
    source.write_text("int it;")
    assert compiler.compile_ahead(source) == []
    assert len(list(tmp_path.glob("*.so"))) == 4

    def found(features):
        files = compiler.compiled_ahead(source, True, features)
        assert all("-DDOUBLE=1" in file.read_text() for file in files)
        return [file.name.split("-")[1] for file in files]

    assert found(["a", "b", "c"]) == ["new", "old"]
    assert found(["a"]) == found([]) == ["old"]
    source.write_text("int other;")
    assert found(["a", "b"]) == []
    assert compiler.compile_ahead(source) == []
    assert len(list(tmp_path.glob("*.so"))) == 4
    assert found(["a", "b"]) == ["new", "old"]


def test_what_cannot_be_compiled_ahead_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(compiler, "PROCESSORS", {platform.machine(): [compiler.Processor("one", [])]})
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setenv("CC", "no-such-compiler")
    source = tmp_path / "it.c"
    source.write_text("int it;")
    failures = compiler.compile_ahead(source)
    assert ["there is no C compiler" in failure for failure in failures] == [True, True]
    assert compiler.compiled_ahead(source, False, []) == []
