"""Algorithm 2 and its inverse against the published text: every pointer sequence, and every small tree."""

import itertools

import numpy as np
import pytest
import torch

from ordered_memory import OrderedMemory, trees
from ordered_memory.baseline_trees import right_branching
from ordered_memory.memory import initial_state, step
from ordered_memory.pointers import DIRECTIONS, shift_reduce, to_pointers
from ordered_memory.tree_recovery import from_attention
from tests.small_trees import all_trees

DEEP = 3000


def algorithm_2(y, num_slots):
    """The published algorithm, word for word on lists, tokens and slots counted from 1."""
    stack = [1]
    head = num_slots
    for t in range(2, len(y) + 1):
        k = y[t - 1] - head
        while k > 0:
            if len(stack) >= 2:
                top = stack[-1]
                under = stack[-2]
                stack = [*stack[:-2], [under, top]]
            k = k - 1
        stack = [*stack, t]
        head = y[t - 1] - 1
    while len(stack) > 1:
        stack = [*stack[:-2], [stack[-2], stack[-1]]]
    return from_one(stack[0])


def from_one(tree):
    return tree - 1 if isinstance(tree, int) else tuple(map(from_one, tree))


def test_shift_reduce_equals_the_published_algorithm_on_every_pointer_sequence():
    for num_slots in (1, 2, 3, 4):
        for n in range(1, 7):
            for pointers in itertools.product(range(num_slots), repeat=n - 1):
                expected = algorithm_2([1, *(pointer + 1 for pointer in pointers)], num_slots)
                assert shift_reduce([0, *pointers], num_slots) == expected


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint64])
def test_pointers_of_a_narrow_type_do_not_overflow(dtype):
    for pointers, num_slots in (([0, 0, 2, 1, 2, 0, 2], 3), ([0, 127, 126, 127], 200)):
        expected = shift_reduce(pointers, num_slots)
        assert shift_reduce(np.array(pointers, dtype=dtype), num_slots) == expected


@pytest.mark.parametrize("pointer", [1.7, None, True, "1"])
def test_pointers_are_integers(pointer):
    with pytest.raises(TypeError, match=rf"pointers to be integers, got pointers\[1\] = {pointer!r}"):
        shift_reduce([0, pointer], 3)


@pytest.mark.parametrize("num_slots", [0, -1, 2.0, "3"])
def test_there_is_a_whole_number_of_slots(num_slots):
    with pytest.raises(ValueError, match=f"num_slots must be an integer of at least 1, got {num_slots!r}"):
        shift_reduce([0], num_slots)


def test_every_small_tree_can_be_read_off_some_attention():
    for n in range(1, 7):
        found = {shift_reduce([0, *pointers], n) for pointers in itertools.product(range(n), repeat=n - 1)}
        assert found == set(all_trees(0, n - 1))


def test_the_slots_of_a_tree_give_the_tree():
    for n in range(1, 8):
        for tree in all_trees(0, n - 1):
            fewest = trees.min_slots(tree)
            for num_slots in (fewest, fewest + 2):
                pointers = to_pointers(tree, num_slots)
                assert pointers[0] == -100
                assert pointers.dtype == torch.int64
                assert shift_reduce(pointers, num_slots) == tree
                # With all attention on these slots, the slot below each is occupied by the step before.
                assert (pointers[1:2] == num_slots - 1).all()
                assert (pointers[2:] >= pointers[1:-1] - 1).all()
            if fewest > 1:
                with pytest.raises(ValueError, match=f"at least {fewest}, .* got {fewest - 1}"):
                    to_pointers(tree, fewest - 1)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_attention_to_the_slots_of_a_tree_gives_the_tree_in_both_directions(direction):
    first = 0 if direction == "forward" else -1
    for tree in all_trees(0, 5):
        pointers = to_pointers(tree, 6, direction)
        assert (pointers == -100).nonzero().flatten().tolist() == [first % 6]
        attention = torch.nn.functional.one_hot(pointers.clamp(min=0), 6).unsqueeze(0)
        attention[0, first] = 0
        assert from_attention(attention, batch_first=True, direction=direction) == [tree]
    assert to_pointers(right_branching(6), 1, "backward").tolist() == [0, 0, 0, 0, 0, -100]
    with pytest.raises(ValueError, match=r"direction must be one of .*forward.*, got 'left'"):
        to_pointers(0, 1, "left")


def test_the_slots_of_a_flat_constituent_join_its_children_in_the_order_of_reading():
    tree = (0, (1, 2, (3, 4, 5)), 6)
    pointers = to_pointers(tree, 4)
    assert shift_reduce(pointers, 4) == ((0, ((1, 2), ((3, 4), 5))), 6)
    attention = torch.nn.functional.one_hot(to_pointers(tree, 4, "backward").clamp(min=0), 4)
    attention[-1] = 0
    (backward,) = from_attention(attention.unsqueeze(0), batch_first=True, direction="backward")
    assert backward == (0, ((1, (2, (3, (4, 5)))), 6))


def test_the_slots_of_a_deep_tree_are_numbers_and_those_of_text_an_error():
    assert to_pointers(right_branching(DEEP), DEEP)[-1] == 1
    with pytest.raises(TypeError, match="got str"):
        to_pointers("(0 1)", 3)
    with pytest.raises(ValueError, match="num_slots must be an integer of at least 1, got 0"):
        to_pointers(0, 0)


def test_attention_to_the_slots_of_a_tree_is_possible_and_composes_it():
    """The layer's own masked attention lets each token attend to its slot, however the memory was filled."""
    torch.manual_seed(0)
    layer = OrderedMemory(4, 4, 4, dtype=torch.float64)
    modules = layer.directions[0].recurrent_modules()
    for tree in all_trees(0, 5):
        if trees.min_slots(tree) > 4:
            continue
        x, state = torch.randn(6, 1, 4, dtype=torch.float64), initial_state(1, 4, torch.zeros(1, 4).double())
        for token, slot in enumerate(to_pointers(tree, 4).tolist()):
            scores = torch.full((1, 4), -1e4, dtype=torch.float64)
            scores[:, slot if token else 0] = 0.0
            state, p = step(x[token], state, modules._replace(score=lambda *_, scores=scores: scores))
            assert token == 0 or p[0, slot] == 1
        composed = trees.fold(tree, x.__getitem__, lambda nodes: modules.norm(modules.cell(*nodes)))
        torch.testing.assert_close(state.candidate[:, -1], composed)


@pytest.mark.parametrize("n", range(1, 7))
def test_attention_to_a_number_of_slots_gives_the_trees_that_need_no_more(n):
    for num_slots in range(1, 7):
        choices = itertools.product(range(num_slots), repeat=n - 1)
        found = {shift_reduce([0, *pointers], num_slots) for pointers in choices}
        assert found == {tree for tree in all_trees(0, n - 1) if trees.min_slots(tree) <= num_slots}
