"""The backends of ON-LSTM, and one against the definition, on whatever device."""

import pytest
import torch

from onlstm.backends import BACKENDS, native
from onlstm.functional import Weights, run_recurrence
from ordered_memory.backends.runtime.build import load
from tests.tolerances import assert_close

NAMES = [name for name in BACKENDS if name != "triton"]  # that one is in tests/onlstm/test_triton.py
FAST = [name for name in NAMES if name != "reference"]

_library = load(native.SOURCE, torch.float64)
NEEDS_NATIVE = pytest.mark.skipif(isinstance(_library, str), reason=str(_library))


def assert_equals_the_definition(run, dtype, batch_sizes, masters, chunk, left, seed, device="cpu"):
    """Results and every gradient, upstream gradients together and each alone; no argument is modified.

    Args:
        run: the backend's `run_recurrence`.
        dtype, device: of everything.
        batch_sizes: sequences that reach each step.
        masters, chunk: M and C.
        left: sequences without any token, which keep their state.
        seed: of all values; a bias where it is odd.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        return values.to(device, dtype).requires_grad_()

    size, tokens = masters * chunk, sum(batch_sizes)
    rows = 4 * size + 2 * masters
    state = (batch_sizes[0] + left, size)
    inputs = [draw(tokens, 3), draw(rows, 3), draw(rows, size), draw(*state), draw(*state)]
    bias = draw(rows) if seed % 2 else None
    weights = Weights(inputs[1], inputs[2], bias)
    arguments = (inputs[0], batch_sizes, weights, *inputs[3:], chunk)
    inputs += [] if bias is None else [bias]
    before = [one.detach().clone() for one in inputs]
    actual, expected = run(*arguments), run_recurrence(*arguments)
    upstream = [torch.randn(one.shape, generator=generator).to(device, dtype) for one in expected]
    for field, one, other in zip(expected._fields, actual, expected, strict=True):
        assert_close(one, other, field)
    alone = (slice(k, k + 1) for k in range(len(expected)))  # the others then have no gradient upstream
    for chosen in (slice(None), *alone):
        found, wanted = (
            torch.autograd.grad(
                result[chosen], inputs, upstream[chosen], retain_graph=True, allow_unused=True
            )
            for result in (actual, expected)
        )
        names = ("tokens", "input weight", "recurrent weight", "hidden", "cell", "bias")
        for what, one, other in zip(names, found, wanted, strict=False):
            if other is not None:
                assert_close(one, other, what)
    assert all(map(torch.equal, inputs, before))
