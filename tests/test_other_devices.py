"""The layers and models run on a device that is not the CPU."""

import re
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
def test_every_tensor_is_on_the_device():
    command = [sys.executable, "-m", "tests.check_devices"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for group in GROUPS:
        assert re.search(f"^{group}: [1-9][0-9]+ checks, 0 failed$", done.stdout, re.MULTILINE), done.stdout
