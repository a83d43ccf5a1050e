"""Compiled code at work: the structs it takes, its threads, its buffers."""

import ctypes
import multiprocessing
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from ordered_memory.backends.runtime import buffers
from ordered_memory.backends.runtime.c_struct import parse
from ordered_memory.backends.runtime.threads import run_team
from tests.small_library import scale


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
        "from ordered_memory.backends.runtime.build import load\n"
        "from tests.small_library import scale\n"
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
    if library.set_blas_threads is None:
        pytest.skip("this PyTorch has no MKL")
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
