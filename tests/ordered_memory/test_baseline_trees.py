"""Trees that depend on length alone."""

from collections import Counter

import numpy as np
import pytest
import torch
import torch_struct

from ordered_memory import baseline_trees, charts, cky, trees
from tests.small_trees import all_trees

DEEP = 3000


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: baseline_trees.left_branching(0), "^n must be an integer of at least 1, got 0"),
        (lambda: baseline_trees.right_branching("a"), "^n must be an integer of at least 1, got 'a'"),
        (lambda: baseline_trees.balanced(-1), "^n must .* got -1"),
        (lambda: baseline_trees.random_trees([3, 0], 1), r"^lengths\[1\] must be an integer of at least 1"),
        (lambda: baseline_trees.random_trees([3, 2.5], 1), r"^lengths\[1\] must be an integer .* got 2\.5"),
        (lambda: baseline_trees.random_trees([3], -1), "^seed must be an integer of at least 0, got -1"),
        (lambda: baseline_trees.random_trees([3], None), "^seed must be an integer of at least 0, got None"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_depth_is_no_limit():
    assert trees.depth(baseline_trees.balanced(DEEP)) == 12
    assert len(trees.leaves(baseline_trees.random_trees([DEEP], seed=0)[0])) == DEEP


def test_baselines_have_their_shapes():
    assert baseline_trees.left_branching(4) == (((0, 1), 2), 3)
    assert baseline_trees.right_branching(4) == (0, (1, (2, 3)))
    assert baseline_trees.balanced(5) == (((0, 1), 2), (3, 4))
    assert (
        baseline_trees.left_branching(1)
        == baseline_trees.right_branching(1)
        == baseline_trees.balanced(1)
        == 0
    )


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_random_trees_are_uniform(n):
    every = all_trees(0, n - 1)
    draws = 2000 * len(every)
    counts = Counter(baseline_trees.random_trees([n] * draws, seed=5))
    assert counts.keys() == set(every)
    chi_square = sum((count - 2000) ** 2 / 2000 for count in counts.values())
    # Mean len - 1, variance twice that: five standard deviations.
    assert chi_square < len(every) - 1 + 5 * np.sqrt(2 * len(every))


def test_random_trees_have_the_marginals_of_tree_crf():
    n, draws = 7, 10_000
    mean = torch.stack([charts.to_chart(tree) for tree in baseline_trees.random_trees([n] * draws, seed=3)])
    marginals = cky._TreeCRF(torch.zeros(1, n, n, 1)).marginals.squeeze().detach()
    assert isinstance(cky._TreeCRF(torch.zeros(1, 2, 2, 1)), torch_struct.TreeCRF)
    torch.testing.assert_close(mean.float().mean(0), marginals, atol=0.02, rtol=0)


def test_random_trees_depend_on_their_seed_alone():
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - the global generator is what must not matter
    first = baseline_trees.random_trees([9, 4, 9], seed=1)
    state = torch.get_rng_state()
    assert baseline_trees.random_trees([9, 4, 9], seed=1) == first
    assert baseline_trees.random_trees([9, 4, 9], seed=2) != first
    assert torch.equal(torch.get_rng_state(), state)
    six, nine = baseline_trees.random_trees([6, 9], seed=0)
    assert six == ((0, (1, 2)), (3, (4, 5)))
    assert nine == (((((0, ((1, (2, 3)), 4)), 5), 6), 7), 8)
