"""The record of a run: every start, why it ended, and nothing where there is no record."""

import json
import shutil
from pathlib import Path

from tasks.listops.__main__ import main
from tasks.runs.record import facts_of
from tasks.runs.run_directory import RunDirectory


def test_starts_and_the_end_are_recorded_and_told(small_runs, tmp_path):
    shutil.copytree(small_runs["listops_run"], tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    facts = facts_of(run)
    assert next(iter(facts)) == "Command"
    assert facts["Date"].endswith(" UTC")
    assert facts["Training ended after"] == "1 epoch (--epochs)"
    assert main(["train", "--run-dir", str(run.path), "--resume", "--epochs", "2"]) == 0
    record = json.loads(run.record.read_text())
    assert len(record["starts"]) == 2
    assert record["end"] == "2 epochs (--epochs)"
    assert facts_of(run).keys() > {"Command", "Command, resumed 1", "Date, resumed 1"}
    assert main(["train", "--run-dir", str(run.path), "--resume", "--epochs", "2"]) == 0
    assert json.loads(run.record.read_text()) == record  # nothing was left to train


def test_a_run_of_an_older_version_has_a_report_without_them(small_runs, tmp_path):
    shutil.copytree(small_runs["listops_run"], tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    run.record.unlink()
    assert facts_of(run) == {}
    before = run.results.read_text()
    run.report.unlink()
    assert main(["train", "--run-dir", str(run.path), "--resume"]) == 0
    assert run.results.read_text() == before
    assert facts_of(run) == {"Training ended after": "1 epoch (--epochs)"}
    assert "Command" not in run.report.read_text()


def test_a_damaged_record_is_as_none(small_runs, tmp_path):
    for content in ("[]", "{}", '{"starts": 3}', '{"starts": [3]}'):
        (tmp_path / "record.json").write_text(content)
        assert facts_of(RunDirectory(tmp_path)) == {}
    assert Path(small_runs["listops_run"], "record.json").exists()
