"""What the terminal and TensorBoard say of a run."""

import errno
import os
import signal
import threading

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tasks.classifiers.classification import ClassificationObjective
from tasks.classifiers.config import CurriculumConfig
from tasks.listops.__main__ import main
from tasks.runs.config import TrainingConfig
from tasks.runs.progress import (
    Progress,
    epoch_seconds,
    epoch_text,
    epochs_trained,
    remaining_text,
    stop_reason_text,
)
from tasks.runs.run_directory import RunDirectory, best_row
from tasks.runs.threads import _load_average, use_threads
from tasks.runs.trainer import Trainer
from tests import commands
from tests.interrupts import interrupt_before

TINY = [
    *commands.TINY["listops"].split(),
    *("--batch-size", "32", "--epochs", "2", "--save-every", "2", "--log-every", "2"),
]


@pytest.mark.parametrize(
    ("options", "progress", "expected"),
    [
        ({"epochs": 50}, {"epoch": 1}, "50 of 50 epochs left"),
        ({"epochs": 1}, {"epoch": 1}, "1 of 1 epoch left"),
        ({"epochs": 50}, {"epoch": 11, "ends": [540.0, 600.0]}, "40 of 50 epochs left, about 40 min"),
        ({"epochs": 50}, {"epoch": 41, "ends": [78.0, 80.0]}, "10 of 50 epochs left, about 20 s"),
        # The epochs before the last were shorter, those of a curriculum for example.
        ({"epochs": 12}, {"epoch": 3, "ends": [60.0, 180.0]}, "10 of 12 epochs left, about 20 min"),
        ({"epochs": 1000, "max_minutes": 5}, {"epoch": 3, "ends": [75.0, 150.0]}, "2.5 of 5 min left"),
        # During a curriculum, whose epochs are shorter than those to come.
        ({"epochs": 12, "curriculum_epochs": 2}, {"epoch": 3, "ends": [60.0, 120.0]}, "10 of 12 epochs left"),
        (
            {"epochs": 12, "curriculum_epochs": 2, "max_minutes": 500},
            {"epoch": 3, "ends": [60.0, 120.0]},
            "498.0 of 500 min left",
        ),
        (
            {"epochs": 4, "curriculum_epochs": 4},
            {"epoch": 3, "ends": [60.0, 120.0]},
            "2 of 4 epochs left, about 2 min",
        ),
        (
            {"epochs": 3, "max_minutes": 500},
            {"epoch": 3, "ends": [75.0, 150.0]},
            "1 of 3 epochs left, about 1 min",
        ),
        # Within an epoch, of which half is over, and which takes longer than those before.
        (
            {"epochs": 50},
            {"epoch": 2, "ends": [80.0], "seconds": 120.0},
            "49 of 50 epochs left, about 65 min",
        ),
        (
            {"epochs": 2, "max_minutes": 5},
            {"epoch": 2, "ends": [60.0], "seconds": 120.0},
            "1 of 2 epochs left, about 0 s",
        ),
    ],
)
def test_what_is_over_first_is_what_is_shown(options, progress, expected):
    ends = progress.pop("ends", [])  # of epochs, in seconds
    progress = Progress(**{"seconds": max(ends, default=0.0), **progress})
    progress.history = [
        {"epoch": number, "seconds": end, "fraction": 1.0} for number, end in enumerate(ends, start=1)
    ]
    assert remaining_text(progress, CurriculumConfig(**options)) == expected


def test_an_epoch_that_was_cut_short_takes_the_time_of_its_fraction():
    assert epoch_seconds([]) == 0
    first, second = ({"epoch": n, "seconds": end, "fraction": 1.0} for n, end in ((1, 40.0), (2, 100.0)))
    assert epoch_seconds([first, second]) == 60
    part = second | {"seconds": 70.0, "fraction": 0.25}
    assert epoch_seconds([first, part]) == 120
    assert epoch_seconds([first, part, second]) == 60  # resumed with a higher limit


def test_the_time_of_a_part_of_an_epoch_counts_toward_the_rest():
    history = [
        {"epoch": 1, "seconds": 100.0, "fraction": 1.0},
        {"epoch": 2, "seconds": 150.0, "fraction": 0.5},
    ]
    progress = Progress(epoch=2, step_in_epoch=6, seconds=160.0, history=history)
    assert remaining_text(progress, TrainingConfig(epochs=4)) == "3 of 4 epochs left, about 4 min"


def test_the_number_of_epochs_has_the_part_of_the_last_one():
    rows = [{"epoch": n, "fraction": part} for n, part in ((1, 1.0), (2, 0.25), (2, 1.0))]
    assert [epochs_trained(rows[:end]) for end in range(4)] == [0, 1, 1.25, 2]


def test_the_line_of_an_epoch_has_its_own_seconds():
    others = {"train_loss": 1.0, "validation_loss": 2.0, "best": True, "fraction": 1.0}
    rows = [{"epoch": n, "seconds": 10.0 * n, **others} for n in (1, 2)]
    progress = Progress(epoch=3, seconds=20.0, best_epoch=2, history=rows)
    text = epoch_text(progress, TrainingConfig(epochs=4))
    assert text == (
        "epoch 2  10.0 s  train loss 1.0000  validation loss 2.0000  best  (2 of 4 epochs left, about 20 s)"
    )


def test_the_line_of_an_epoch_has_an_accuracy_of_1_only_if_all_is_right():
    row = {"epoch": 1, "seconds": 1.0, "best": False, "train_accuracy": 0.99996, "validation_accuracy": 1.0}
    text = epoch_text(Progress(epoch=2, finished=True, history=[row]), TrainingConfig())
    assert text == "epoch 1  1.0 s  train accuracy 0.99996  validation accuracy 1.0000"


@pytest.mark.parametrize(
    ("options", "progress", "reason"),
    [
        ({"epochs": 2}, {"epoch": 3}, "2 epochs (--epochs)"),
        ({"epochs": 1}, {"epoch": 2}, "1 epoch (--epochs)"),
        ({"max_minutes": 1}, {"seconds": 61.0}, "1 minute of training (--max-minutes)"),
        ({"max_minutes": 1.5}, {"seconds": 91.0}, "1.5 minutes of training (--max-minutes)"),
    ],
)
def test_why_a_run_is_over(options, progress, reason):
    assert stop_reason_text(Progress(**progress), TrainingConfig(**options)) == reason


def test_an_interrupt_during_the_last_validation_stops_before_the_test(tmp_path, monkeypatch, capfd):
    end_epoch = Trainer._end_epoch

    def interrupting(self, *arguments):
        if self.progress.epoch == 2:
            os.kill(os.getpid(), signal.SIGINT)
        end_epoch(self, *arguments)

    monkeypatch.setattr(Trainer, "_end_epoch", interrupting)
    directory = tmp_path / "run"
    assert main(["train", "--run-dir", str(directory), *TINY]) == 130
    assert not (directory / "results.json").exists()
    assert "interrupted; " in capfd.readouterr().err
    assert main(["train", "--run-dir", str(directory), *TINY, "--resume"]) == 0
    assert (directory / "results.json").exists()


def test_an_interrupted_run_says_what_is_saved_and_how_to_resume(tmp_path, monkeypatch, capfd):
    words = ["train", "--run-dir", str(tmp_path / "a run"), *TINY]
    with monkeypatch.context() as patch:
        interrupt_before(patch, ClassificationObjective, {3}, signal.SIGINT)
        assert main(words) == 130
    notice, saved, command = capfd.readouterr().err.strip().splitlines()
    assert notice == "stopping after this step and saving a checkpoint; interrupt again to stop at once"
    assert saved == f"interrupted; {tmp_path}/a run/last.safetensors has step 3"
    assert command.startswith(f"to resume: python -m tasks.listops train --run-dir '{tmp_path}/a run'")
    assert command.endswith(" --resume")
    assert main([*words, "--resume"]) == 0
    assert "resuming from step 3 in epoch 1" in capfd.readouterr().out
    assert main([*words, "--resume"]) == 0
    best = best_row(RunDirectory(tmp_path / "a run").read_metrics())["epoch"]
    assert f"finished: 2 epochs (--epochs); best epoch {best}\n" in capfd.readouterr().out


@pytest.mark.parametrize("steps_before", [0, 3])
def test_a_second_interrupt_stops_at_once_and_names_the_checkpoint_that_there_is(
    tmp_path, monkeypatch, capfd, steps_before
):
    steps = range(steps_before + 1, 100)
    interrupt_before(monkeypatch, ClassificationObjective, steps, signal.SIGINT, signal.SIGINT)
    assert main(["train", "--run-dir", str(tmp_path / "run"), *TINY]) == 130
    error = capfd.readouterr().err
    if steps_before:
        assert "last.safetensors has step 2\n" in error
    else:
        assert "nothing was saved" in error
        assert "to resume" not in error


def test_a_disk_that_is_full_for_curves_is_reported_once(tmp_path, monkeypatch, capfd):
    def write(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tensorboard.summary.writer.record_writer.RecordWriter.write", write)
    before = threading.excepthook
    assert main(["train", "--run-dir", str(tmp_path / "run"), *TINY]) == 2
    assert threading.excepthook is before
    error = capfd.readouterr().err
    assert error.endswith("tensorboard: No space left on device\n")
    assert error.count("\n") == 1


def test_curves_have_points_within_epochs(tmp_path):
    assert main(["train", "--run-dir", str(tmp_path / "run"), *TINY]) == 0
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("step/loss")] == [2, 4, 6, 8]
    assert [event.step for event in events.Scalars("validation/accuracy")] == [4, 8]
    assert [event.value for event in events.Scalars("step/learning_rate")] == pytest.approx([1e-3] * 4)
    # 126 examples in batches of 32: the mean of the epoch is that of its two halves.
    first, second = [event.value for event in events.Scalars("step/loss")][:2]
    whole = events.Scalars("train/loss")[0].value
    assert min(first, second) < whole < max(first, second)


@pytest.fixture
def _load_is_not_known():
    _load_average.cache_clear()
    yield
    _load_average.cache_clear()


@pytest.mark.usefixtures("_load_is_not_known")
@pytest.mark.parametrize(
    ("load", "threads", "warned"),
    [(0.2, 2, None), (1.6, 2, "--threads 1 may"), (9.0, 2, "--threads 1 may"), (9.0, 1, None), (1.0, 4, "3")],
)
def test_a_busy_machine_is_warned_of(monkeypatch, capsys, load, threads, warned):
    monkeypatch.setattr("tasks.runs.threads.count_cores", lambda: max(2, threads))
    monkeypatch.setattr("tasks.runs.threads.os.getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr("tasks.runs.threads.torch.get_num_threads", lambda: threads)
    monkeypatch.setattr("tasks.runs.threads.torch.set_num_threads", lambda number: None)
    use_threads(threads)
    error = capsys.readouterr().err
    assert (error == "") if warned is None else (warned in error and error.count("\n") == 1)


@pytest.mark.usefixtures("_load_is_not_known")
def test_a_run_is_not_warned_of_the_run_before_it(monkeypatch, capsys):
    loads = iter((0.0, 2.0))
    monkeypatch.setattr("tasks.runs.threads.count_cores", lambda: 2)
    monkeypatch.setattr("tasks.runs.threads.os.getloadavg", lambda: (next(loads), 0.0, 0.0))
    monkeypatch.setattr("tasks.runs.threads.torch.set_num_threads", lambda number: None)
    monkeypatch.setattr("tasks.runs.threads.torch.get_num_threads", lambda: 2)
    for _ in range(2):
        use_threads(2)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("_load_is_not_known")
@pytest.mark.parametrize(
    ("processes", "variable", "said"),
    [(1, None, None), (2, None, None), (4, None, None), (2, "4", "8 threads"), (8, None, None)],
)
def test_several_processes_share_the_cores_unless_they_are_told_how_many_to_use(
    monkeypatch, capsys, processes, variable, said
):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    monkeypatch.setattr("tasks.runs.threads.count_cores", lambda: 4)
    monkeypatch.setattr("tasks.runs.threads.os.getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr("tasks.runs.threads.torch.get_num_threads", lambda: 4)
    use_threads(None, processes)
    error = capsys.readouterr().err
    assert (error == "") if said is None else error.startswith(f"warning: {said}, but only about 4 of 4")


def test_threads_are_set_for_training_and_evaluation(tmp_path, monkeypatch):
    numbers = []
    monkeypatch.setattr(torch, "set_num_threads", numbers.append)
    assert main(["train", "--run-dir", str(tmp_path / "run"), *TINY, "--threads", "1"]) == 0
    assert set(numbers) == {1}
    numbers.clear()
    assert main(["evaluate", "--size", "5", "--test", "10-args", "--threads", "1"]) == 0
    assert set(numbers) == {1}
