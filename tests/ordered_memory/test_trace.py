"""Traces: their steps build the tree of Algorithm 2, and their numbers are those of the equations."""

from __future__ import annotations

import itertools
import json

import pytest
import torch

from onlstm import ONLSTM
from ordered_memory import OrderedMemory
from ordered_memory.trace import (
    Trace,
    add_true_tree,
    add_values,
    nodes_of,
    read_attention,
    read_distances,
    read_output,
    to_json,
)
from ordered_memory.tree_recovery import from_attention, from_distances, shift_reduce
from ordered_memory.trees import Tree, spans
from tests.traces import tree_of


def hard(pointers: tuple[int, ...], num_slots: int) -> torch.Tensor:
    """Attention that is 1 at one slot of each token."""
    attention = torch.eye(num_slots)[list(pointers)]
    attention[0] = 0
    return attention


def test_every_short_sequence_of_pointers_gives_the_tree_of_algorithm_2() -> None:
    num_slots = 3
    for size in range(1, 6):
        names = [f"w{i}" for i in range(size)]
        for later in itertools.product(range(num_slots), repeat=size - 1):
            pointers = (0, *later)
            trace = read_attention(hard(pointers, num_slots), names)
            assert tree_of(trace["nodes"], size) == shift_reduce(pointers, num_slots)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_stack_holds_every_token_read_once_and_from_top_to_bottom(direction: str) -> None:
    torch.manual_seed(0)
    layer = OrderedMemory(4, 8, num_slots=6, bidirectional=True)
    out = layer(torch.randn(9, 2, 4))
    names = [[f"w{i}" for i in range(9)]] * 2
    traces = read_output(out, names, direction=direction)
    trees = from_attention(out.attention, direction=direction)
    for trace, tree in zip(traces, trees, strict=True):
        assert tree_of(trace["nodes"], 9) == tree
        covered = {i: (i, i) for i in range(9)}
        covered |= {9 + k: (node["first"], node["last"]) for k, node in enumerate(trace["nodes"])}
        read: list[int] = []
        for number, step in enumerate(trace["memory"]["steps"]):
            if step["token"] is not None:
                read.append(step["token"])
                assert step["stack"][0][0] == step["token"]
            slots = [slot for _, slot in step["stack"]]
            assert slots == sorted(set(slots))
            tokens = [t for one, _ in step["stack"] for t in range(covered[one][0], covered[one][1] + 1)]
            assert sorted(tokens) == sorted(read)
            assert all(trace["nodes"][one - 9]["step"] == number for one in step["joined"])
            made = [(one, trace["nodes"][one - 9]["slot"]) for one in step["joined"][-1:]]
            assert set(made) <= set(step["stack"])
        assert read == (list(range(9)) if direction == "forward" else list(range(8, -1, -1)))
        lowest = trace["memory"]["steps"][-2]["stack"][-1][1]
        assert step["stack"] == [(9 + len(trace["nodes"]) - 1, lowest)]


def test_masks_and_occupancy_are_those_of_the_equations() -> None:
    attention = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.25, 0.75]])
    memory = read_attention(attention, ["a", "b", "c"])["memory"]
    assert memory["attention"] == [[0, 0, 0], [0, 0, 1], [0, 0.25, 0.75]]
    assert memory["forward_mask"] == [[0, 0, 0], [0, 0, 1], [0, 0.25, 1]]
    assert memory["backward_mask"] == [[0, 0, 0], [1, 1, 1], [1, 1, 0.75]]
    assert memory["occupancy"] == [[0, 0, 0], [0, 0, 1], [0, 1, 1]]
    assert [step["slot"] for step in memory["steps"]] == [None, 3, 3, None]
    # The second token goes above the first; the third attends below it, so that the two are joined.
    assert [step["stack"] for step in memory["steps"]] == [
        [(0, 3)],
        [(1, 2), (0, 3)],
        [(2, 2), (3, 3)],
        [(4, 3)],
    ]


def test_padding_and_batch_mates_change_nothing() -> None:
    torch.manual_seed(1)
    layer = OrderedMemory(4, 8, num_slots=5, batch_first=True).double()
    x = torch.randn(2, 7, 4, dtype=torch.float64)
    both = read_output(layer(x, lengths=[7, 4]), [list("abcdefg"), list("hijk")], [7, 4], batch_first=True)
    alone = read_output(layer(x[1:, :4]), [list("hijk")], batch_first=True)
    assert both[1] == alone[0]


def test_distances_give_the_trees_of_every_layer_and_decoding() -> None:
    torch.manual_seed(2)
    lstm = ONLSTM(4, 8, num_layers=2, chunk_size=2)
    out = lstm(torch.randn(6, 2, 4), distances=True)
    [first, second] = read_output(out, [list("abcdef"), list("ghij")], [6, 4])
    assert [layer["name"] for layer in first["layers"]] == ["layer 1", "layer 2"]
    for i, layer in enumerate(second["layers"]):
        for decoding, nodes in layer["trees"].items():
            [tree] = from_distances(out[2].forget[i][:4, 1:], decoding=decoding)  # type: ignore[arg-type]
            assert tree_of(nodes, 4) == tree


def test_constituents_are_marked_by_the_words_in_them() -> None:
    tokens = ["(", "a", "b", ")", "c"]
    trace = read_attention(hard((0, 2, 1, 2, 2), 3), tokens)
    add_true_tree(trace, ((0, 1), 2), words=[1, 2, 4])
    for node in trace["nodes"]:
        inside = [i for i, place in enumerate([1, 2, 4]) if node["first"] <= place <= node["last"]]
        wanted = (inside[0], inside[-1]) in {(0, 1), (0, 2)} if len(inside) > 1 else None
        assert node["in_true_tree"] is wanted
    assert [(node["first"], node["last"]) for node in trace["true_nodes"]] == [(1, 2), (1, 4)]
    add_values(trace["true_nodes"], {(0, 1): 0.5, (0, 2): -1.0}, trace["words"])
    assert [node["value"] for node in trace["true_nodes"]] == [0.5, -1.0]


def test_a_deep_tree_and_a_single_token() -> None:
    tree: Tree = 0
    for leaf in range(1, 3000):
        tree = (tree, leaf)
    nodes = nodes_of(tree)
    assert [(node["first"], node["last"]) for node in nodes] == spans(tree)
    [step, last] = read_attention(torch.zeros(1, 4), ["a"])["memory"]["steps"]
    assert step["stack"] == last["stack"] == [(0, 4)]


def test_the_text_of_a_file_is_json_and_keeps_any_token() -> None:
    trace = read_distances(torch.tensor([[1.0, 0.25]]), ["</script>", "☃\u2028"])
    read = json.loads(to_json([trace]))
    assert (read["format"], read["version"], read["traces"]) == ("ordered-memory-trace", 1, [trace])


def test_bad_input_is_refused() -> None:
    layer = OrderedMemory(4, 8, num_slots=5)
    out = layer(torch.randn(3, 2, 4))
    with pytest.raises(ValueError, match=r"of lengths \[3, 3\] in 1..3, got \[3, 2\]"):
        read_output(out, [["a", "b", "c"], ["d", "e"]])
    with pytest.raises(TypeError, match="distances=True and padded sequences, got tuple"):
        read_output(ONLSTM(4, 8)(torch.randn(3, 2, 4)), [["a", "b", "c"]] * 2)
    with pytest.raises(ValueError, match="direction to be one of forward, backward, got 'left'"):
        read_output(out, [["a", "b", "c"]] * 2, direction="left")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="zeros at step 2"):
        read_attention(torch.tensor([[0.0], [1.0], [0.0]]), ["a", "b", "c"])


def test_traces_have_no_keys_for_what_a_model_does_not_have() -> None:
    trace: Trace = read_distances(torch.tensor([[1.0, 0.25]]), ["a", "b"])
    assert trace.keys() == {"tokens", "caption", "direction", "words", "layers"}
