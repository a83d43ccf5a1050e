"""Small sizes and a stand-in for the authors' code."""

from functools import partial

import numpy as np

from tasks.benchmark.__main__ import main
from tasks.benchmark.workloads import Sizes, pad
from tests.commands import refusal

fails = partial(refusal, main)
SIZES = Sizes(slot_size=6, num_slots=4, cell_dropout=0.2, attention_dropout=0.2, input_size=5, vocabulary=9)
STAND_IN = '''
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


class OrderedMemory(nn.Module):
    """Takes and gives what the module of the authors does, and computes something else."""

    def __init__(self, input_size, slot_size, nslot, dropout=0.2, dropoutm=0.1, bidirection=False):
        super().__init__()
        self.scale = SCALE
        self.projection = nn.Linear(input_size, slot_size)
        self.seen = []

    def load_state_dict(self, state):
        self.names = sorted(state)

    def forward(self, X, mask, output_last=False):
        self.seen.append((mask, output_last))
        assert mask.dtype == torch.bool and mask.shape == X.shape[:2]
        outputs = self.projection(X) * self.scale
        return outputs[-1] if output_last else outputs[mask.sum(0) - 1, torch.arange(X.size(1))]
'''


def some_batches(*lengths):
    rng = np.random.default_rng(1)
    return [pad([rng.integers(1, 10, size=length).tolist() for length in batch]) for batch in lengths]
