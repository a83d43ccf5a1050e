"""Training that is killed at random moments or runs out of disk goes on to the uninterrupted numbers."""

import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.outcome import outcome

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
OPTIONS = [
    *("--expressions", "600", "--validation-size", "40", "--max-train-length", "12"),
    *("--embedding-size", "6", "--slot-size", "6", "--num-slots", "3"),
    *("--batch-size", "16", "--epochs", "3", "--save-every", "2", "--accelerator", "cpu"),
]
PROCESSES = {1: [], 2: ["--devices", "2", "--strategy", "ddp"]}
TRIES = int(os.environ.get("CAMPAIGN_TRIES", "1"))


def start(directory, processes, *options, **how):
    command = [sys.executable, "-m", "tasks.listops", "train", "--resume", "--run-dir", str(directory)]
    return subprocess.Popen(
        [*command, *OPTIONS, *PROCESSES[processes], *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that its processes can be killed together
        **how,
    )


def finish(process, status=0):
    error = process.communicate(timeout=300)[1]
    assert process.returncode == status, error
    return error


@pytest.fixture(scope="module", params=PROCESSES)
def uninterrupted(request, tmp_path_factory):
    """How many processes, how long they take, how they end."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    began = time.monotonic()
    finish(start(directory, request.param))
    return request.param, time.monotonic() - began, outcome(directory)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("attempt", range(TRIES))
def test_killed_again_and_again(tmp_path, uninterrupted, number, attempt):
    processes, seconds, expected = uninterrupted
    rng = random.Random(f"{number} {attempt} {os.environ.get('CAMPAIGN_SEED', 0)}")
    for _ in range(3):
        process = start(tmp_path / "run", processes)
        time.sleep(rng.uniform(0.2, 1.0) * seconds)
        if process.poll() is None:
            # The second process of a run is a child: a terminal's Ctrl-C and a scheduler's kill reach both.
            os.killpg(process.pid, number)
        process.communicate(timeout=300)
    finish(start(tmp_path / "run", processes))
    assert outcome(tmp_path / "run") == expected
    assert not list((tmp_path / "run").glob(".*.part"))


def test_a_disk_that_is_full_at_every_write(tmp_path, uninterrupted):
    processes, _, expected = uninterrupted
    limits = [100, 400, 1_000, 5_000, 20_000, 60_000, 150_000]
    run, epochs = tmp_path / "run", 0
    for limit in limits:

        def fill(limit=limit):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

        process = start(run, processes, preexec_fn=fill)
        error = process.communicate(timeout=300)[1]
        if process.returncode == 0:
            break
        assert process.returncode in (1, 2), error
        assert "Traceback" not in error, error
        assert str(run) in error, error
        epochs = check_directory(run, epochs)
    finish(start(run, processes))
    assert outcome(run) == expected


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_small_file_system(tmp_path, uninterrupted):
    processes, _, expected = uninterrupted
    disk, epochs = tmp_path / "disk", 0
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k", "small", str(disk)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if re.search("permission denied|not permitted", mounted.stderr):
        pytest.skip("this root may not mount, as in many containers")
    assert mounted.returncode == 0, mounted.stderr
    try:
        for kilobytes in (16, 32, 48, 64, 96, 128, 192, 256):
            process = start(disk / "run", processes)
            error = process.communicate(timeout=300)[1]
            if process.returncode == 0:
                break
            assert "Traceback" not in error, error
            assert re.search(rf"{disk}\S*: No space left on device", error), error
            epochs = check_directory(disk / "run", epochs)
            subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", str(disk)], check=True)
        else:
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            finish(start(disk / "run", processes))
        assert outcome(disk / "run") == expected
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def check_directory(run, epochs):
    """No half-written file, and no epoch less than before; how many epochs there are."""
    assert not list(run.glob(".*.part"))
    for path in run.glob("*.json"):
        json.loads(path.read_text())
    metrics = run / "metrics.jsonl"
    rows = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    assert len(rows) >= epochs
    return len(rows)
