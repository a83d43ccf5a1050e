"""Steps that are computed again in the backward pass need every weight as it was."""

import pytest
import torch

from ordered_memory import OrderedMemory


@pytest.mark.parametrize(
    "name", ["score.output.weight", "cell.from_memory.weight", "norm.weight", "norm.bias"]
)
def test_a_frozen_weight_of_any_part_that_changes_in_place_is_an_error(name):
    layer = OrderedMemory(4, 6, 3, recompute_every=2).requires_grad_(False)
    output = layer(torch.randn(5, 2, 4, requires_grad=True)).output
    layer.directions[0].get_parameter(name).mul_(2)
    with pytest.raises(RuntimeError, match=rf"^the weight {name} was changed in place"):
        output.sum().backward()


def test_weights_that_were_made_in_inference_mode_have_no_versions():
    with torch.inference_mode():
        layer = OrderedMemory(4, 6, 3, recompute_every=2).requires_grad_(False)
    x = torch.randn(5, 2, 4)
    output = layer(x).output  # with gradients enabled
    layer.recompute_every = None
    torch.testing.assert_close(output, layer(x).output)
