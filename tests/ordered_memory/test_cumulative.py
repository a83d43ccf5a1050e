"""cumax and the masks →π and ←π against sums written out."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from ordered_memory import backward_mask, cumax, forward_mask


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=9))
def test_cumax_is_a_running_sum_of_the_softmax(logits):
    z = torch.tensor(logits, dtype=torch.float64)
    exponentials = [torch.exp(value - z.max()).item() for value in z]
    expected = [sum(exponentials[: k + 1]) / sum(exponentials) for k in range(len(logits))]
    torch.testing.assert_close(cumax(z), torch.tensor(expected, dtype=torch.float64))


def test_masks_of_a_sharp_attention_are_steps_at_its_slot():
    for slot in range(5):
        p = torch.eye(5)[slot]
        assert forward_mask(p).tolist() == [float(i >= slot) for i in range(5)]
        assert backward_mask(p).tolist() == [float(i <= slot) for i in range(5)]


def test_masks_of_slot_overlap_in_exactly_its_attention():
    p = torch.softmax(torch.randn(3, 7, dtype=torch.float64), -1)
    torch.testing.assert_close(forward_mask(p) + backward_mask(p) - p, torch.ones_like(p))


def test_cumax_and_masks_run_along_any_axis():
    p = torch.softmax(torch.randn(4, 5, 6), 1)
    for function in (cumax, forward_mask, backward_mask):
        torch.testing.assert_close(function(p, 1), function(p.transpose(1, 2)).transpose(1, 2))


def test_gradients_agree_with_finite_differences():
    z = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    for function in (cumax, forward_mask, backward_mask):
        assert torch.autograd.gradcheck(function, z)
