"""How the Triton kernels divide their work, and what they compile to."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ordered_memory.backends.triton import plan
from tests.kernels import ALL_KERNELS
from tests.small_memory import BOTH_SCORES

pytestmark = ALL_KERNELS
SHARED_MEMORY = 99 * 1024
"""What a program can use on any GPU with compute capability 8.0 or more."""


@pytest.mark.parametrize(
    ("batch", "width", "multiprocessors", "expected"),
    [
        (1, 128, 132, (16, 1, 1, 8)),
        (128, 128, 132, (16, 1, 8, 8)),
        (129, 128, 132, (16, 2, 5, 8)),
        (300, 128, 132, (16, 4, 5, 8)),
        (5000, 128, 132, (16, 8, 40, 8)),
        (5000, 512, 132, (16, 4, 79, 8)),
        (128, 128, 46, (16, 4, 2, 2)),
        (20, 128, 14, (8, 4, 1, 1)),
        (3, 128, 1, (1, 4, 1, 1)),
    ],
)
def test_all_programs_run_at_the_same_time_and_have_few_sequences(
    batch, width, multiprocessors, expected, monkeypatch
):
    monkeypatch.setattr(plan, "multiprocessors", lambda device: multiprocessors)
    teams = plan.choose_teams(batch, width, torch.device("cpu"))
    assert teams == expected
    assert teams.size * teams.at_a_time <= multiprocessors
    assert teams.size * teams.rows * teams.number >= batch


@pytest.mark.parametrize("operand", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [16, 128, 208, 304, 512])
@pytest.mark.parametrize("rows", [16, 32, 128])
def test_blocks_fit_and_few_columns_are_computed_in_vain(size, rows, operand):
    teams = plan.Teams(size=16, rows=rows // 16, number=1, at_a_time=1)
    resources = plan.choose_resources(teams, operand)
    block = plan.choose_block(rows, 2 * size, 4 * size, 16, resources)
    used = (rows + block.columns) * block.terms
    assert used <= max(resources.entries, 16 * (rows + block.columns))
    assert (resources.stages - 1) * used * operand.itemsize <= SHARED_MEMORY
    assert block.terms >= 16
    each = -(-4 * size // (16 * block.columns)) * block.columns
    assert each <= max(16, 1.34 * 4 * size / 16)


def compiled(**arguments):
    """What the kernels become for an H100 or H200, compiled where no GPU is needed."""
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    command = [sys.executable, "-m", "tests.compile_triton", json.dumps(arguments)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("size", [64, 128, 200, 300, 512])
@pytest.mark.parametrize("batch", [32, 1000])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_kernels_compile_for_sm_90(size, precision, batch):
    for kernel in compiled(size=size, precision=precision, batch=batch):
        assert kernel["shared"] <= SHARED_MEMORY, kernel
        assert kernel["spill_share"] < 0.15, kernel
        assert (kernel["matrix_instructions"] > 0) == (precision == "bfloat16"), kernel


@pytest.mark.slow
@pytest.mark.parametrize("capability", [90, 100])
@pytest.mark.parametrize("batch", [32, 1000])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_at_the_size_of_listops_no_register_is_spilled(precision, batch, capability):
    for kernel in compiled(size=128, slots=21, batch=batch, precision=precision, capability=capability):
        assert kernel["spill_bytes"] == 0, kernel


@pytest.mark.slow
@BOTH_SCORES
def test_every_variant_compiles_at_the_smallest_sizes(score):
    for dropout in (0.0, 0.5):
        for gradients in (False, True):
            arguments = {"size": 16, "slots": 1, "batch": 1, "dropout": dropout, "gradients": gradients}
            assert len(compiled(score=score, **arguments)) == (2 if gradients else 1)
