"""The ON-LSTM step against explicit loops over units, in float64."""

import numpy as np
import pytest
import torch

from onlstm.functional import Weights, master_gates, run_recurrence, step
from tests.onlstm_oracle import run_step

B, H, C = 3, 6, 2
M = H // C


def test_a_step_agrees_with_loops_over_units():
    preactivations = torch.randn(B, 4 * H + 2 * M, dtype=torch.float64)
    cell = torch.randn(B, H, dtype=torch.float64)
    hidden, new_cell, master = step(preactivations, cell, C)
    found = [*zip(hidden.numpy(), new_cell.numpy(), *(d.numpy() for d in master.distances()), strict=True)]
    for b, results in enumerate(found):
        for actual, expected in zip(
            results, run_step(preactivations[b].numpy(), cell[b].numpy(), C), strict=True
        ):
            np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("leading", [(), (2, 3)])
def test_a_step_takes_any_leading_axes(leading):
    preactivations = torch.randn(*leading, 4 * H + 2 * M, dtype=torch.float64)
    cell = torch.randn(*leading, H, dtype=torch.float64)
    hidden, new_cell, master = step(preactivations, cell, C)
    rows = preactivations.reshape(-1, 4 * H + 2 * M)
    expected_hidden, expected_cell, expected_master = step(rows, cell.reshape(-1, H), C)
    assert torch.equal(hidden, expected_hidden.view(*leading, H))
    assert torch.equal(new_cell, expected_cell.view(*leading, H))
    for distance, expected in zip(master.distances(), expected_master.distances(), strict=True):
        assert torch.equal(distance, expected.view(leading))


def test_gradients_agree_with_finite_differences():
    preactivations = torch.randn(B, 4 * H + 2 * M, dtype=torch.float64, requires_grad=True)
    cell = torch.randn(B, H, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda g, c: step(g, c, C)[:2], (preactivations, cell))


def test_the_last_chunk_is_never_written():
    preactivations = torch.randn(B, 4 * H + 2 * M, dtype=torch.float64)
    _, cell, master = step(preactivations, torch.zeros(B, H, dtype=torch.float64), C)
    assert master.input[:, -1].abs().max() < 1e-12
    assert cell[:, -C:].abs().max() < 1e-12


def test_distances_count_entries():
    sharp = 1e3 * torch.eye(4)
    master = master_gates(sharp, sharp)
    forget, write = master.distances()
    # A step at entry k: forgotten are the k entries before it, unwritten all but those.
    assert forget.tolist() == [0, 1, 2, 3]
    assert write.tolist() == [4, 3, 2, 1]


@pytest.mark.parametrize(
    ("preactivations", "cell", "chunk", "message"),
    [
        ((2, 30), (2, 6), 4, "hidden_size=6 must be divisible by chunk_size=4"),
        ((2, 29), (2, 6), 2, "4H \\+ 2M = 30 entries for hidden_size=6 and chunk_size=2, got 29"),
        ((3, 30), (1, 6), 2, r"cell must have shape \(3, 6\) for these preactivations, got \(1, 6\)"),
    ],
)
def test_sizes_that_do_not_fit_are_named(preactivations, cell, chunk, message):
    with pytest.raises(ValueError, match=message):
        step(torch.zeros(preactivations), torch.zeros(cell), chunk)


@pytest.mark.parametrize("batch_sizes", [[], torch.zeros(0, dtype=torch.int64)], ids=["list", "tensor"])
def test_the_loop_needs_a_step(batch_sizes):
    weights = Weights(torch.zeros(20, 3), torch.zeros(20, 4), None)
    with pytest.raises(ValueError, match=r"^batch_sizes must be positive and non-increasing, got \[\]$"):
        run_recurrence(torch.zeros(0, 3), batch_sizes, weights, *[torch.zeros(2, 4)] * 2, chunk_size=2)
