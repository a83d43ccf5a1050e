"""Every test starts from the same seed, and Hypothesis draws the same examples every time."""

import contextlib
import gc
import os
import signal

import pytest
from hypothesis import settings

# Threads that have nothing to do sleep. By default they spin, on cores that other tests could use. Read when
# PyTorch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

# Read when Triton is imported, which other packages do: without a GPU its kernels are interpreted.
os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")

# Tests are small: more threads only wait for one another, above all where something else is running. Sums
# round differently with another number of threads, so programs that a test starts use the same number.
threads = os.environ.get("TEST_THREADS", "1")  # the campaign under the address sanitizer has two
torch.set_num_threads(int(threads))
os.environ["OMP_NUM_THREADS"] = threads

# Tests have servers on this machine, which a proxy does not reach.
os.environ["no_proxy"] = os.environ["NO_PROXY"] = "127.0.0.1,localhost"

# Help is as wide as the terminal.
os.environ["COLUMNS"] = "80"

# The garbage collector would look through all that is imported again and again.
gc.set_threshold(100_000)


def pytest_collection_finish():
    gc.collect()
    gc.freeze()


settings.register_profile("reproducible", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("reproducible")

# Background jobs of a shell without a terminal ignore Ctrl-C (SIGINT), and commands under `nohup` ignore the
# closing of the terminal (SIGHUP). The tests send both signals.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # Windows has no SIGHUP
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _devices_that_are_not_there_get_no_seed():
    """`torch.manual_seed` formats the stack for each of them, which takes milliseconds."""
    with pytest.MonkeyPatch.context() as patch:
        for device in (torch.cuda, torch.xpu, torch.mtia):
            if not device.is_available():
                patch.setattr(device, "manual_seed_all", lambda seed: None, raising=False)
        yield


@pytest.fixture(autouse=True)
def _same_seed():
    torch.manual_seed(20191026)


@pytest.fixture
def uninitialised_memory_is_nan(monkeypatch):
    """On a CPU; the tests of the kernels do this themselves."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture
def kernels():
    """Triton's kernels find NaN in memory that nobody wrote; its interpreter wastes less time."""
    from tests.kernels import INTERPRETED, language_replaced_once, uninitialised_memory_is_nan

    with uninitialised_memory_is_nan(), language_replaced_once() if INTERPRETED else contextlib.nullcontext():
        yield


@pytest.fixture(scope="session", autouse=True)
def _tasks_take_less_time():
    """What many tests of the tasks do would otherwise be a small part of the time they take.

    Reports of tiny runs have few examples, each of which is traced, and a parser of options is made once.
    """
    try:
        from tests.commands import parsers_made_once
    except ModuleNotFoundError:  # layers are tested without the packages of the tasks, and on Windows, too
        yield
        return
    with pytest.MonkeyPatch.context() as patch, parsers_made_once():
        patch.setattr("tasks.reporting.examples.NUM_EXAMPLES", 4)
        yield


@pytest.fixture(scope="session")
def small_runs(tmp_path_factory):
    """A tiny finished run of each task, to be read only: see `tests.commands.make_runs`."""
    from tests.commands import make_runs

    return make_runs(tmp_path_factory.mktemp("small_runs"))
