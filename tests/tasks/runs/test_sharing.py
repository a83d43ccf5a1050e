"""Two runs, or several processes of one, in the same directory."""

import errno
import fcntl
import os
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
from filelock import FileLock

from tasks.listops.config import PRESETS, ListOpsConfig
from tasks.listops.task import LISTOPS
from tasks.runs.command_line import parse_run
from tasks.runs.errors import UserError
from tasks.runs.experiment import run_experiment
from tasks.runs.fabric import build_fabric, others_wait
from tasks.runs.run_directory import RunDirectory
from tests.outcome import outcome
from tests.tasks.runs.tiny import TINY, train


def test_two_runs_do_not_share_a_directory(tmp_path, capsys, uninterrupted):
    with RunDirectory(tmp_path / "run").locked():
        assert train(tmp_path / "run") == 2
    assert "run: another process is training here" in capsys.readouterr().err
    assert not (tmp_path / "run" / "config.json").exists()
    assert train(tmp_path / "run") == 0
    assert outcome(tmp_path / "run") == uninterrupted


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_there_are_no_locks_a_run_is_trained_without(
    tmp_path, capsys, monkeypatch, uninterrupted, number
):
    def refuse(*arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert train(tmp_path / "run") == 0
    error = capsys.readouterr().err
    assert f"warning: {tmp_path / 'run'}: cannot be locked ([Errno {number}]" in error
    assert error.count("start no other training here") == 1
    assert outcome(tmp_path / "run") == uninterrupted


def test_where_the_lock_may_not_be_opened_nothing_is_trained(tmp_path, capsys, monkeypatch):
    def refuse(*arguments):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(FileLock, "_acquire", refuse)
    assert train(tmp_path / "run") == 2
    assert f"{tmp_path / 'run'}: cannot be locked ([Errno 13] Permission denied)" in capsys.readouterr().err
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_run_is_kept_that_was_trained_while_another_one_loaded_its_data(tmp_path, uninterrupted):
    words = ["--run-dir", str(tmp_path), *TINY, "--cell-dropout", "0.5"]
    config = parse_run(ListOpsConfig, lambda model: PRESETS, words, "train")

    def prepare():
        assert train(tmp_path) == 0
        return LISTOPS.prepare(config)

    with pytest.raises(UserError, match="already holds a run"):
        run_experiment(config, prepare)
    assert outcome(tmp_path) == uninterrupted


@pytest.mark.parametrize(
    ("model", "unused"),
    [("gold-tree-lstm", True), ("gumbel-tree-lstm", True), ("crvnn", True), ("ordered-memory", False)],
)
def test_processes_that_compose_nothing_do_not_wait_for_each_other(model, unused):
    config = replace(PRESETS["demo"], model=model, devices=2, accelerator="cpu")
    assert build_fabric(config).strategy._ddp_kwargs.get("find_unused_parameters", False) == unused


def test_processes_wait_for_a_test_that_takes_hours(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(torch.distributed, "new_group", lambda **options: calls.append(options) or "group")
    monkeypatch.setattr(torch.distributed, "barrier", calls.append)
    with others_wait(SimpleNamespace(world_size=2)):
        calls.append("test")
    options, *rest = calls
    assert options.pop("timeout") >= timedelta(days=1)
    assert (options, rest) == ({"backend": "gloo"}, ["test", "group"])
    with others_wait(SimpleNamespace(world_size=1)):
        pass
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("variables", "has_started_them"),
    [
        ({"SLURM_NTASKS": "1"}, False),
        ({"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2"}, True),  # srun
        ({"SLURM_NTASKS": "1", "TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2"}, True),  # torchrun
    ],
)
def test_two_devices_are_two_processes_in_a_job_of_slurm(monkeypatch, variables, has_started_them):
    ranks = dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "RANK"), "0")
    if "WORLD_SIZE" in variables:
        ranks |= {"LOCAL_RANK": "0", "GROUP_RANK": "0"}
    for name, value in (ranks | {"SLURM_JOB_NAME": "job"} | variables).items():
        monkeypatch.setenv(name, value)
    fabric = build_fabric(replace(PRESETS["demo"], accelerator="cpu", devices=2))
    assert fabric.world_size == 2
    assert fabric.strategy.cluster_environment.creates_processes_externally == has_started_them


def test_another_number_of_processes_than_of_devices_is_refused_before_any_data_are_loaded(monkeypatch):
    for name in ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "4")
    with pytest.raises(UserError, match=r"--devices 2: .*--ntasks-per-node=4"):
        build_fabric(replace(PRESETS["demo"], accelerator="cpu", devices=2))


def test_a_single_process_with_ddp_may_compose_nothing():
    config = replace(PRESETS["demo"], model="gumbel-tree-lstm", strategy="ddp", accelerator="cpu")
    assert build_fabric(config).strategy._ddp_kwargs["find_unused_parameters"]
