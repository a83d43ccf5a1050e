"""Compiled code: building and loading it, the structs it takes, its threads."""

import ctypes
import multiprocessing
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from ordered_memory.backends.runtime import buffers, build, compiler, processor
from ordered_memory.backends.runtime.build import Library, load
from ordered_memory.backends.runtime.c_struct import parse
from ordered_memory.backends.runtime.threads import run_team

CODE = """
#include "common.h"
#include "bf16.h"
#include "team.h"

typedef struct {
    int64_t parts, size; /* of the work; of an array */
    const scalar_t *values; int32_t *who,
        *of;
    scalar_t factor, *const_free;
    const bf16_t *bf16;
    set_blas_threads_t query;
} Pass;
EXPORT_SIZE(Pass)

void scale(const void *arguments, int64_t thread, int64_t threads) {
    const Pass *p = arguments;
    for (int64_t i = thread; i < p->parts; i += threads) {
        p->who[i] = thread;
        p->of[i] = threads;
        for (int64_t j = i * p->size; p->const_free && j < (i + 1) * p->size; j++)
            p->const_free[j] = p->factor * p->values[j];
    }
}
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache directory, and nothing loaded."""
    directory = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(directory))
    load.cache_clear()
    yield directory / "ordered_memory"
    load.cache_clear()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A source, and the file it was compiled into: once, as most tests begin with a cache that has it."""
    source = tmp_path_factory.mktemp("source") / "a" / "b" / "c" / "scale.c"
    source.parent.mkdir(parents=True)
    source.write_text(CODE)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        try:
            return source, build._compiled(source, torch.float32)
        except RuntimeError as error:
            pytest.skip(str(error))


@pytest.fixture
def source(compiled, cache):
    """The source, with a cache of its own that holds a copy: not loaded, so that it may be damaged."""
    source, file = compiled
    shutil.copy(file, build._cache_directory())
    return source


@pytest.fixture(scope="module")
def library(compiled):
    """Loaded once, for what does not concern the cache."""
    source, file = compiled
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("XDG_CACHE_HOME", str(file.parents[1]))
        return load(source, torch.float32)


def again(source) -> Library | str:
    """As a new process would load it."""
    load.cache_clear()
    return load(source, torch.float32)


def test_sources_are_read_as_utf_8_in_every_locale(source, monkeypatch):
    def named(encoding, stacklevel=2):
        assert encoding == "utf-8"
        return encoding

    monkeypatch.setattr("io.text_encoding", named)
    assert isinstance(again(source), Library)


def scale(library, parts=3, threads=1, size=4):
    values = torch.arange(parts * size, dtype=library.dtype)
    result, who, of = torch.zeros_like(values), *torch.zeros(2, parts, dtype=torch.int32)
    struct = library.struct("Pass")(parts=parts, size=size, factor=2)
    struct.point(values=values, who=who, of=of, const_free=result)
    run_team(library, "scale", struct, threads)
    assert torch.equal(result, 2 * values)
    return who.tolist(), of.tolist()


def the_file(cache):
    (file,) = cache.iterdir()
    return file


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_compiled_once_for_a_dtype(source, cache, dtype):
    for file in cache.iterdir():
        file.unlink()
    scale(load(source, dtype))
    assert the_file(cache).stat().st_mode & 0o777 == 0o600
    assert cache.stat().st_mode & 0o777 == cache.parent.stat().st_mode & 0o777 == 0o700
    before = the_file(cache).stat()
    load.cache_clear()
    scale(load(source, dtype))
    assert the_file(cache).stat().st_mtime_ns == before.st_mtime_ns
    assert the_file(cache).stat().st_ino == before.st_ino


def test_another_source_is_another_file(source, cache):
    more = source.with_name("more.h")
    more.write_text("/* included or not */")
    try:
        again(source)
    finally:
        more.unlink()
    assert len(list(cache.iterdir())) == 2


def test_a_warm_cache_needs_no_compiler(source, monkeypatch):
    monkeypatch.setenv("PATH", "")
    scale(again(source))


@pytest.mark.parametrize("compiler", ["gcc -O2", "env gcc", "  gcc -DMORE='1 2' ", "", " "])
def test_the_compiler_may_have_arguments(source, monkeypatch, compiler):
    monkeypatch.setenv("CC", compiler)
    scale(again(source))


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        ("no-such-compiler", "there is no C compiler"),
        ("/", "there is no C compiler"),
        ("false", "false failed with status 1"),
        ("true", "No such file"),
        ("gcc 'unbalanced", "CC is not a command: No closing quotation"),
        ("sh -c 'for last; do :; done; echo text > $last' sh", "XDG_CACHE_HOME"),
    ],
)
def test_no_compiler_is_a_reason(source, monkeypatch, compiler, reason):
    monkeypatch.setenv("CC", compiler)
    assert reason in again(source)


def truncated(file):
    os.truncate(file, file.stat().st_size // 2)


def emptied(file):
    os.truncate(file, 0)


def changed(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def without_symbols(file):
    other = file.with_name("other")
    subprocess.run(["cc", "-shared", "-x", "c", "-", "-o", other], input=b"int other;", check=True)
    other.replace(file)


def writable(file):
    file.chmod(0o666)


def writable_by_the_group(file):
    file.chmod(0o660)


def of_another_user(file):
    try:
        os.chown(file, 65534, -1)
    except OSError:
        pytest.skip("needs the right to give files away")


def symbolic_link(file):
    file.rename(file.parent.parent / "elsewhere.so")
    file.symlink_to(file.parent.parent / "elsewhere.so")


def dangling_link(file):
    file.unlink()
    file.symlink_to("nowhere")


def pipe(file):
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    "damage",
    [
        truncated,
        emptied,
        changed,
        without_symbols,
        writable,
        writable_by_the_group,
        of_another_user,
        symbolic_link,
        dangling_link,
        pipe,
    ],
    ids=lambda damage: damage.__name__,
)
def test_what_may_not_be_loaded_is_compiled_anew(source, cache, damage):
    file = the_file(cache)
    damage(file)
    scale(again(source))
    assert the_file(cache).is_file()
    assert not file.is_symlink()
    status = file.stat()
    assert (status.st_uid, status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)) == (os.geteuid(), 0)


def test_what_another_process_has_compiled_meanwhile_stays(source, cache, monkeypatch):
    file = the_file(cache)
    content, run = file.read_bytes(), compiler.run
    file.write_bytes(b"damaged")

    def slower(flags, built):
        run(flags, built)
        file.write_bytes(content)

    monkeypatch.setattr(compiler, "run", slower)
    before = file.stat().st_ino
    scale(again(source))
    assert the_file(cache).stat().st_ino == before


def test_a_directory_of_its_name_is_a_reason(source, cache):
    file = the_file(cache)
    file.unlink()
    file.mkdir()
    (file / "something").touch()
    descriptors = len(os.listdir("/proc/self/fd"))
    reason = again(source)
    assert f"-> '{file}'; XDG_CACHE_HOME may name another directory" in reason
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_cache_that_cannot_be_written_to_is_a_reason(source, cache, monkeypatch):
    the_file(cache).unlink()

    def refuse(**_):
        raise OSError(30, "Read-only file system", str(cache))

    monkeypatch.setattr(build.tempfile, "TemporaryDirectory", refuse)
    assert again(source) == (
        f"cannot write [Errno 30] Read-only file system: '{cache}'; XDG_CACHE_HOME may name another directory"
    )


def test_a_cache_that_others_may_write_to_is_a_reason(source, cache):
    cache.chmod(0o777)
    assert f"{cache} belongs to another user, or others may write to it" in again(source)


def test_the_cache_of_another_user_is_a_reason(source, cache):
    of_another_user(cache)
    assert f"{cache} belongs to another user" in again(source)


def test_a_cache_below_a_file_is_a_reason(source, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert str(tmp_path / "file") in again(source)


@pytest.mark.parametrize("where", ["home", "cache", "none"])
def test_what_may_not_be_searched_or_written_is_a_reason(source, monkeypatch, where):
    """For root every directory can be searched, so what the system would say is put in its place."""

    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    advice = "no directory to compile into, name one with XDG_CACHE_HOME: "
    if where == "none":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home directory")))
        assert again(source) == f"{advice}no home directory"
        return
    monkeypatch.setattr(Path, "mkdir" if where == "home" else "stat", refuse)
    assert f"{advice if where == 'home' else ''}[Errno 13] Permission denied" in again(source)


@pytest.mark.parametrize("relative", ["here", "./here", ""])
def test_a_relative_cache_directory_is_ignored(source, monkeypatch, tmp_path, relative):
    monkeypatch.setenv("XDG_CACHE_HOME", relative)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    scale(again(source))
    assert not (tmp_path / "here").exists()
    assert (tmp_path / "home" / ".cache" / "ordered_memory").is_dir()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_many_first_builds_at_once(source, cache):
    the_file(cache).unlink()
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=lambda: scale(again(source))) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    the_file(cache)


def test_a_struct_is_read_from_its_typedef(library):
    struct = library.struct("Pass")
    names = [name for name, _ in struct._fields_]
    assert names == ["parts", "size", "values", "who", "of", "factor", "const_free", "bf16", "query"]
    assert struct.factor.size == 4
    assert parse("typedef struct { scalar_t a; } Pass;", "Pass", torch.float64).a.size == 8
    assert struct.pointees == {
        "values": torch.float32,
        "who": torch.int32,
        "of": torch.int32,
        "const_free": torch.float32,
        "bf16": torch.bfloat16,
    }


@pytest.mark.parametrize(
    "text",
    [
        "typedef struct { int64_t a; } Other;",
        "typedef struct { long a; } Pass;",
        "typedef struct { int64_t **a; } Pass;",
        "typedef struct { int64_t a[2]; } Pass;",
        "typedef struct { struct { int64_t a; } b; } Pass;",
        "typedef struct { int64_t a : 3; } Pass;",
        "typedef struct { *a; int64_t b; } Pass;",
    ],
)
def test_a_struct_that_cannot_be_read(text):
    with pytest.raises(ValueError, match="struct Pass"):
        parse(text, "Pass", torch.float32)


def test_a_struct_that_the_compiler_sees_otherwise(library, monkeypatch):
    monkeypatch.setattr(library, "_text", library._text.replace("int64_t parts, size;", "int64_t size;"))
    monkeypatch.setattr(library, "_structs", {})
    with pytest.raises(ValueError, match=r"struct Pass: expected \d+ bytes, read \d+"):
        library.struct("Pass")


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.zeros(3, device="meta"), "values: expected a dense tensor on the CPU, got .*meta"),
        (torch.zeros(3).to_sparse(), "values: expected a dense tensor on the CPU, got torch.sparse_coo"),
        (torch.zeros(3).double(), "values: expected a contiguous torch.float32 .* got torch.float64"),
        (torch.zeros(3, 2).t(), r"values: expected a contiguous .* strides \[1, 2\]"),
        (torch.zeros(3, dtype=torch.complex64), "values: expected a contiguous torch.float32"),
        (torch._neg_view(torch.zeros(3)), "values: expected a contiguous"),
    ],
)
def test_tensors_are_checked_before_c_sees_them(library, tensor, message):
    struct = library.struct("Pass")()
    with pytest.raises(ValueError, match=message):
        struct.point(values=tensor)


def test_a_tensor_whose_memory_was_freed_is_refused(library):
    freed = torch.zeros(3)
    freed.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="values: expected a tensor of 3 numbers in memory, got one whose"):
        library.struct("Pass")().point(values=freed)


def test_the_struct_keeps_its_tensors():
    struct = parse("typedef struct { scalar_t *a; } Pass;", "Pass", torch.float32)()
    struct.point(a=torch.zeros(3))
    assert struct.held["a"].data_ptr() == struct.a
    struct.point(a=None)
    assert struct.a is None


def test_a_team_divides_the_work(library):
    assert scale(library, parts=7, threads=3) == ([0, 1, 2, 0, 1, 2, 0], [3] * 7)
    assert scale(library, parts=7, threads=1) == ([0] * 7, [1] * 7)


def test_a_smaller_team_does_all_the_work(source, monkeypatch):
    program = (
        "import sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path; import torch\n"
        "from tests.ordered_memory.test_runtime import load, scale\n"
        "print(scale(load(Path(sys.argv[1]), torch.float32), parts=5, threads=4)[1])"
    )
    root = Path(__file__).parents[2]
    monkeypatch.setenv("OMP_THREAD_LIMIT", "2")
    command = [sys.executable, "-c", program, str(source), str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.split("\n")[0] == "[2, 2, 2, 2, 2]"


def test_without_openmp_it_is_one_thread(library, monkeypatch):
    from ordered_memory.backends.runtime import threads

    monkeypatch.setattr(threads, "_openmp", lambda: None)
    assert scale(library, threads=4)[1] == [1, 1, 1]


def test_calls_from_many_python_threads(library):
    found = []
    callers = [
        threading.Thread(target=lambda: [found.append(scale(library, threads=2)) for _ in range(50)])
        for _ in range(4)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == 200


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_while_another_thread_is_inside(library):
    stop = threading.Event()

    def work():
        while not stop.is_set():
            scale(library, threads=3, size=1000)

    caller = threading.Thread(target=work)
    caller.start()
    try:
        scale(library, threads=3)
        for _ in range(5):
            child = multiprocessing.get_context("fork").Process(target=in_a_child, args=(library,))
            child.start()
            child.join(30)
            if child.is_alive():
                child.kill()
            assert child.exitcode == 0
    finally:
        stop.set()
        caller.join()


def in_a_child(library):
    signal.alarm(20)
    assert scale(library, threads=3)[1] == [1, 1, 1]


def test_the_blas_has_as_many_threads_after_as_before(library):
    before = library.set_blas_threads(2)
    scale(library, threads=2)
    assert library.set_blas_threads(before) == 2


def test_denormals_are_flushed_inside_only(library):
    tiny = torch.tensor([1e-40])
    result, who, of = torch.ones(1), *torch.zeros(2, 1, dtype=torch.int32)
    struct = library.struct("Pass")(parts=1, size=1, factor=0.5)
    struct.point(values=tiny, who=who, of=of, const_free=result)
    run_team(library, "scale", struct, 1)
    assert result.item() == 0
    assert (tiny / 2).item() > 0
    assert ctypes.sizeof(struct) == library.struct("Pass").query.offset + 8


@pytest.fixture
def no_buffers(monkeypatch):
    monkeypatch.setattr(buffers, "MIN_SIZE", 0)
    buffers.clear()
    yield
    buffers.clear()


@pytest.mark.parametrize("size", [1 << 60, 1 << 63])
def test_too_little_address_space_says_how_much_and_the_way_out(no_buffers, size):
    with pytest.raises(RuntimeError, match=f"^out of memory: you tried to allocate {size} bytes") as error:
        buffers.empty(size)
    for way_out in ("backend='sequence'", "recompute_every", "fewer slots"):
        assert way_out in str(error.value)


def test_memory_is_used_again_but_not_while_a_view_lives(no_buffers):
    first = buffers.empty(20000)
    view, where = first[10:20], first.data_ptr()
    del first
    assert buffers.empty(20000).data_ptr() != where
    del view
    both = [buffers.empty(16000) for _ in range(2)]
    assert where in [tensor.data_ptr() for tensor in both]


def use_and_leave(size):
    buffers.empty(size)[0] = 1


def test_larger_buffers_take_the_place_of_smaller_ones(no_buffers):
    for size in (1000, 10_000, 100_000, 1 << 22):
        use_and_leave(size)
    assert [len(buffer) for buffer in buffers._free] == [1 << 22]


def test_what_waits_has_a_bound_and_can_be_given_back(no_buffers, monkeypatch):
    monkeypatch.setattr(buffers, "LIMIT", 10_000)
    use_and_leave(20_000)
    assert buffers._free == []
    both = [buffers.empty(8192) for _ in range(2)]
    del both
    assert [len(buffer) for buffer in buffers._free] == [8192]
    buffers.clear()
    assert buffers._free == []


X86 = """processor\t: 0
vendor_id\t: GenuineIntel
flags\t\t: fpu avx2
vmx flags\t: vnmi

processor\t: 1
flags\t\t: fpu avx2 other
"""
ARM = """processor\t: 0
BogoMIPS\t: 50.00
Features\t: fp asimd
CPU implementer\t: 0x41
CPU architecture: 8
CPU part\t: 0xd0c

processor\t: 1
BogoMIPS\t: 51.00
Features\t: fp asimd
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        (X86, "flags\t\t: fpu avx2"),
        (ARM, "Features\t: fp asimd CPU implementer\t: 0x41 CPU part\t: 0xd0c CPU part\t: 0xd40"),
        ("isa\t: rv64\n", "a name"),
        ("", "a name"),
    ],
)
def test_features_name_the_processor_that_code_is_compiled_for(monkeypatch, cpuinfo, expected):
    monkeypatch.setattr(processor, "_lines", cpuinfo.splitlines)
    monkeypatch.setattr(processor.platform, "processor", lambda: "a name")
    assert processor.features.__wrapped__() == expected
