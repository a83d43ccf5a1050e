"""The layers and models run on a device that is not the CPU."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils import backend_registration

from tests.check_devices import GROUPS

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason=f"PyTorch {torch.__version__} registers no devices from Python",
)
@pytest.mark.parametrize("group", GROUPS)
def test_every_tensor_is_on_the_device(group):
    command = [sys.executable, "-m", "tests.check_devices", group]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 failed" in done.stdout
