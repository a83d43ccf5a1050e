"""Times, ratios and memory."""

import multiprocessing
import signal
from concurrent.futures import Future
from time import sleep

import pytest

from tasks.benchmark.contenders import Entry, Setup, build, build_batches
from tasks.benchmark.figures import contender_figures, tables
from tasks.benchmark.measure import Times, _clock, interleave
from tasks.benchmark.memory import peak_mib
from tasks.benchmark.workloads import pad
from tests.tasks.benchmark.tiny import SIZES, some_batches


def test_a_training_step_reaches_every_parameter_and_the_inputs():
    setup = Setup(SIZES, 0, "cpu")
    for entry in (Entry("nn.LSTM"), Entry("reference", "reference")):
        contender = build(setup, entry, build_batches(setup, some_batches([4, 2])))
        contender.batches = [contender.prepare(contender.batches[0])]
        contender.prepare = lambda batch: batch  # it is prepared, and its inputs are at hand
        contender.training_step(0)()
        gradients = [parameter.grad for parameter in contender.module.parameters()]
        assert gradients
        assert all(gradient is not None for gradient in [*gradients, contender.batches[0].inputs.grad])


class Recorder:
    """Does nothing but say that it ran."""

    def __init__(self, name, ran):
        self.name, self.ran = name, ran

    def training_step(self, index):
        return lambda: self.ran.append((self.name, "train", index))

    def evaluation(self, index):
        return lambda: self.ran.append((self.name, "infer", index))


def test_contenders_take_turns_and_the_median_of_the_repeats_counts(monkeypatch):
    ran = []
    # The clock reads how many runs there were before.
    monkeypatch.setattr("tasks.benchmark.measure._clock", lambda run, device: (float(len(ran)), run())[0])
    contenders = {name: Recorder(name, ran) for name in "ab"}
    times = interleave(contenders, 1, repeats=3, device="cpu")
    assert [name for name, kind, _ in ran if kind == "train"] == list("baabbaab")
    assert times == {"a": Times([10.0], [11.0]), "b": Times([8.0], [9.0])}

    ran.clear()
    interleave(contenders, 2, repeats=1, device="cpu")
    assert len(ran) == len(set(ran)) * 2 == 2 * 2 * 2 * 2


def test_the_clock_is_read_after_all_work_of_the_device(monkeypatch):
    happened, seconds = [], iter([5.0, 5.25])
    monkeypatch.setattr("tasks.benchmark.measure.synchronize", lambda device: happened.append(device))
    monkeypatch.setattr("time.perf_counter", lambda: happened.append("clock") or next(seconds))
    assert _clock(lambda: happened.append("run"), "sync") == 250
    assert happened == ["sync", "clock", "run", "sync", "clock"]


def test_the_ratios_of_a_table_are_those_to_the_floor_and_to_the_lstm_and_of_the_released_code():
    times = {"released": 100.0, "ours": 50.0, "floor": 20.0, "floor, bfloat16": 12.5, "nn.LSTM": 40.0}
    figures = contender_figures({name: Times([ms], [ms]) for name, ms in times.items()}, "tokens", 7)
    for table in tables(figures, "tokens").split("evaluation"):
        (row,) = (line.split() for line in table.splitlines() if line.split()[:1] == ["ours"])
        assert "× floor  × bf16 floor  × LSTM  speedup\n" in table
        assert row[3:] == ["2.50", "4.00", "1.25", "2.00"]


def test_the_tables_fit_into_the_terminal(monkeypatch):
    times = {name: Times([1.0], [1.0]) for name in ("released", "ours", "floor", "nn.LSTM")}
    figures = contender_figures(times, "tokens", 7)
    assert max(map(len, tables(figures, "tokens").splitlines())) > 40
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    cut = tables(figures, "tokens")
    assert max(map(len, cut.splitlines())) <= 40
    assert all(cut.count(column) == 2 for column in ("ms", "tokens/s", "× floor", "× LSTM", "speedup"))


def test_the_peak_of_a_training_step_holds_at_least_what_it_must():
    """nn.LSTM keeps its output for the reverse pass."""
    setup = Setup(SIZES._replace(slot_size=64), 0, "cpu")
    batch = pad([[1] * 1000] * 64)
    peak = peak_mib(setup, Entry("nn.LSTM"), batch, threads=1)
    assert peak is not None
    assert peak > 1000 * 64 * 64 * 4 / 2**20


class Called:
    """An argument that calls a function where it arrives, in another process."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def test_ctrl_c_is_not_for_the_process_whose_memory_is_measured():
    """A terminal sends it to every process. This one would print where it was."""
    with pytest.raises(AttributeError, match="NoneType"):  # what the call returns is no setup
        peak_mib(Called(signal.raise_signal, signal.SIGINT), Entry("nn.LSTM"), pad([[1, 1]]), threads=1)


def test_ctrl_c_ends_the_process_whose_memory_is_measured(monkeypatch):
    monkeypatch.setattr(Future, "result", lambda future: signal.raise_signal(signal.SIGINT))
    before = multiprocessing.active_children()
    with pytest.raises(KeyboardInterrupt):
        peak_mib(Called(sleep, 1_000), Entry("nn.LSTM"), pad([[1, 1]]), threads=1)
    assert multiprocessing.active_children() == before
