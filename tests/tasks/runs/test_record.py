"""The record of a run: every start, why it ended, and nothing where there is no record."""

import json
import re
import shlex
import shutil
import subprocess

import pytest
import torch

from tasks.listops.__main__ import main
from tasks.runs import machine
from tasks.runs.record import run_facts, this_process
from tasks.runs.run_directory import RunDirectory


def test_starts_and_the_end_are_recorded_and_told(small_runs, tmp_path):
    shutil.copytree(small_runs["listops_run"], tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    facts = run_facts(run)
    assert next(iter(facts)) == "Command"
    assert facts["Date"].endswith(" UTC")
    assert facts["Training ended after"] == "1 epoch (--epochs)"
    assert main(["train", "--run-dir", str(run.path), "--resume", "--epochs", "2"]) == 0
    record = json.loads(run.record.read_text())
    assert len(record["starts"]) == 2
    assert record["end"] == "2 epochs (--epochs)"
    assert run_facts(run).keys() > {"Command", "Command, resumption 1", "Date, resumption 1"}
    assert main(["train", "--run-dir", str(run.path), "--resume", "--epochs", "2"]) == 0
    assert json.loads(run.record.read_text()) == record  # nothing was left to train


def test_a_run_without_a_record_has_a_report_without_it(small_runs, tmp_path):
    shutil.copytree(small_runs["listops_run"], tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    run.record.unlink()
    assert run_facts(run) == {}
    before = run.results.read_text()
    run.report.unlink()
    assert main(["train", "--run-dir", str(run.path), "--resume"]) == 0
    assert run.results.read_text() == before
    assert run_facts(run) == {"Training ended after": "1 epoch (--epochs)"}
    assert "Command" not in run.report.read_text()


def test_a_damaged_record_is_as_none_and_stops_no_run(small_runs, tmp_path):
    shutil.copytree(small_runs["listops_run"], tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    contents = (
        b"[]",
        b"{}",
        b'{"starts": 3}',
        b'{"starts": [3]}',
        b"",
        b'{"starts": [{"Com',
        b"\xff",
        b"[" * 100_000,
    )
    for content in contents:
        run.record.write_bytes(content)
        assert run_facts(run) == {}
    assert main(["train", "--run-dir", str(run.path), "--resume", "--epochs", "2"]) == 0
    facts = run_facts(run)
    assert "Command" not in facts  # it resumes a run that began with another
    assert facts.keys() > {"Command, resumption 1", "Training ended after"}


def test_the_command_of_a_call_from_python_is_the_one_that_does_the_same(small_runs, tmp_path):
    shutil.copytree(small_runs["listops_run"], tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    words = ["train", "--run-dir", str(run.path), "--resume", "--epochs", "2"]
    assert main(words) == 0
    *_, command = (value for name, value in run_facts(run).items() if name.startswith("Command"))
    assert shlex.split(command) == ["python", "-m", "tasks.listops", *words]


def test_the_command_is_one_that_a_shell_reads_back(monkeypatch):
    words = ["-m", "tasks.listops", "a  b", "it's", '"', "ü", "a\nb", "$HOME", ""]
    monkeypatch.setattr("sys.orig_argv", ["/somewhere/bin/python3", *words])
    assert shlex.split(this_process(torch.device("cpu"))["Command"]) == ["python3", *words]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_is_that_of_the_package_and_of_no_other_checkout(tmp_path, monkeypatch):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    source = tmp_path / "machine.py"
    monkeypatch.setattr(machine, "__file__", str(source))
    assert machine.commit.__wrapped__() is None
    source.touch()
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "another project")
    assert machine.commit.__wrapped__() is None
    git("add", "machine.py")
    git("commit", "-q", "-m", "the package")
    commit = machine.commit.__wrapped__()
    assert re.fullmatch("[0-9a-f]{12}", commit)
    source.write_text("changed")
    assert machine.commit.__wrapped__() == f"{commit}-dirty"
