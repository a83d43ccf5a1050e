"""What older versions of PyTorch cannot do."""

import pytest
import torch

SORTED_IN_GRAPHS = pytest.mark.skipif(
    torch.__version__ < (2, 13),
    reason="this PyTorch cannot read the size of a batch packed in order within a graph",
)
