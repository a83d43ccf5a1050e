"""Traces: their steps build the tree of Algorithm 2, and their numbers are those of the equations."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from onlstm import ONLSTM
from ordered_memory import OrderedMemory
from ordered_memory.memory import initial_state, step
from ordered_memory.trace import (
    Trace,
    add_true_tree,
    add_values,
    nodes_of,
    read_attention,
    read_distances,
    read_output,
    read_tree,
)
from ordered_memory.tree_recovery import ReadingDirection, from_attention, from_distances, shift_reduce
from ordered_memory.trees import Tree, spans
from tests.traces import hard, tree_of


def test_every_short_sequence_of_pointers_gives_the_tree_of_algorithm_2() -> None:
    num_slots = 3
    for size in range(1, 6):
        names = [f"w{i}" for i in range(size)]
        for later in itertools.product(range(num_slots), repeat=size - 1):
            pointers = (0, *later)
            trace = read_attention(hard(pointers, num_slots), names)
            assert tree_of(trace["nodes"], size) == shift_reduce(pointers, num_slots)


def test_the_slots_of_the_stack_hold_what_the_memory_holds() -> None:
    """Every sequence of slots that one-hot attention can go through, against the definition's own state."""
    torch.manual_seed(0)
    size, num_slots = 7, 4
    layer = OrderedMemory(5, 5, num_slots, dtype=torch.float64)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    maps = layer.directions[0].recurrent_modules()
    paths = [[num_slots, num_slots]]  # y_1 has no meaning; y_t is at least y_{t-1} - 1
    for _ in range(size - 2):
        paths = [[*path, y] for path in paths for y in range(max(1, path[-1] - 1), num_slots + 1)]
    x = torch.randn(size, len(paths), 5, dtype=torch.float64)
    state, states, attention = initial_state(len(paths), num_slots, x[0]), [], []
    with torch.no_grad():
        for t in range(size):
            slots = torch.tensor([path[t] - 1 for path in paths])
            scores = 1e4 * torch.eye(num_slots, dtype=torch.float64)[slots]
            state, p = step(x[t], state, maps._replace(score=lambda *_, scores=scores: scores))
            states.append(state)
            attention.append(p)
        for b, p in enumerate(torch.stack(attention, dim=1)):
            trace = read_attention(p, [f"w{i}" for i in range(size)])
            vectors = [x[t, b] for t in range(size)]
            for node in trace["nodes"]:
                lower, upper = (vectors[child].unsqueeze(0) for child in node["children"])
                vectors.append(maps.norm(maps.cell(lower, upper)).squeeze(0))
                # It rises from slot to slot in the step before its token is read.
                made = states[node["step"] - 1].candidate[b, node["slot"] - 1]
                torch.testing.assert_close(made, vectors[-1])
            *reading, last = trace["memory"]["steps"]
            for now, entry in zip(states, reading, strict=True):
                (token, above), *held = entry["stack"]
                assert above == 0 or torch.equal(now.candidate[b, above - 1], vectors[token])
                assert [slot for _, slot in held] == list(range(above + 1, num_slots + 1))
                for number, slot in held:
                    torch.testing.assert_close(now.memory[b, slot - 1], vectors[number])
            assert last["stack"] == [(2 * size - 2, num_slots)]
            torch.testing.assert_close(state.candidate[b, -1], vectors[-1])


@pytest.mark.parametrize(
    ("pointers", "slots", "stack"),
    [
        ((0, 2, 0), [1, 3], [(2, 0), (1, 1), (0, 3)]),  # empty slots between two subtrees
        ((0, 0, 2), [3, 3], [(2, 2), (3, 3)]),
        ((0, 1, 0, 3), [1, 4, 4], [(3, 3), (5, 4)]),  # four reductions, but only three subtrees
        ((0, 3, 2, 0, 3), [1, 2, 4, 4], [(4, 3), (7, 4)]),
        ((0, 1, 3, 0), [4, 1, 4], [(3, 0), (2, 1), (4, 4)]),
    ],
)
def test_joining_ends_in_the_slot_attended_to_and_at_last_in_that_of_the_lower_subtree(
    pointers: tuple[int, ...], slots: list[int], stack: list[tuple[int, int]]
) -> None:
    trace = read_attention(hard(pointers, 4), list("abcde")[: len(pointers)])
    assert [node["slot"] for node in trace["nodes"]] == slots
    *_, before, last = trace["memory"]["steps"]
    assert before["stack"] == stack
    assert last["stack"] == [(2 * len(pointers) - 2, slots[-1])]


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
        for number, entry in enumerate(trace["memory"]["steps"]):
            if entry["token"] is not None:
                read.append(entry["token"])
                assert entry["stack"][0][0] == entry["token"]
            slots = [slot for _, slot in entry["stack"]]
            assert slots == sorted(set(slots))
            tokens = [t for one, _ in entry["stack"] for t in range(covered[one][0], covered[one][1] + 1)]
            assert sorted(tokens) == sorted(read)
            assert all(trace["nodes"][one - 9]["step"] == number for one in entry["joined"])
            made = [(one, trace["nodes"][one - 9]["slot"]) for one in entry["joined"][-1:]]
            assert set(made) <= set(entry["stack"])
        assert read == (list(range(9)) if direction == "forward" else list(range(8, -1, -1)))
        lowest = trace["memory"]["steps"][-2]["stack"][-1][1]
        assert entry["stack"] == [(9 + len(trace["nodes"]) - 1, lowest)]


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


def test_what_is_read_backward_stands_beside_its_tokens() -> None:
    attention = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.25, 0.75]])
    forward = read_attention(attention, list("abc"))["memory"]
    backward = read_attention(attention.flip(0), list("cba"), direction="backward")["memory"]
    for name in ("attention", "forward_mask", "backward_mask", "occupancy"):
        assert backward[name] == forward[name][::-1]


def test_padding_and_batch_mates_change_nothing() -> None:
    torch.manual_seed(1)
    layer = OrderedMemory(4, 8, num_slots=5, batch_first=True).double()
    x = torch.randn(2, 7, 4, dtype=torch.float64)
    both = read_output(layer(x, lengths=[7, 4]), [list("abcdefg"), list("hijk")], [7, 4], batch_first=True)
    alone = read_output(layer(x[1:, :4]), [list("hijk")], batch_first=True)
    assert both[1] == alone[0]


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("enforce_sorted", [False, True])
def test_a_packed_batch_has_the_traces_of_a_padded_one(
    direction: ReadingDirection, batch_first: bool, enforce_sorted: bool
) -> None:
    torch.manual_seed(4)
    lengths = [6, 4, 3] if enforce_sorted else [4, 6, 3]
    tokens = [list("abcdef"[:length]) for length in lengths]
    layer = OrderedMemory(4, 8, 5, bidirectional=True, batch_first=batch_first).double()
    lstm = ONLSTM(4, 8, num_layers=2, bidirectional=True, batch_first=batch_first).double()
    x = torch.randn(*((3, 6) if batch_first else (6, 3)), 4, dtype=torch.float64)
    packed = pack_padded_sequence(x, lengths, batch_first, enforce_sorted)

    def read(output: tuple[Any, ...], given: list[int] | None) -> list[Trace]:
        return read_output(output, tokens, given, batch_first=batch_first, direction=direction)

    assert read(layer(packed), None) == read(layer(x, lengths=lengths), lengths)
    assert read(lstm(packed, distances=True), None) == read(lstm(x, lengths=lengths, distances=True), lengths)
    assert read(lstm(packed, distances=True), lengths) == read(lstm(packed, distances=True), None)


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


@pytest.mark.parametrize("batch_first", [False, True])
def test_the_distances_of_a_direction_are_read_as_that(batch_first: bool) -> None:
    torch.manual_seed(3)
    lstm = ONLSTM(4, 8, num_layers=2, chunk_size=2, bidirectional=True, batch_first=batch_first)
    out = lstm(torch.randn(5, 5, 4), distances=True)
    for i, direction in enumerate(("forward", "backward")):
        traces = read_output(out, [list("abcde")] * 5, batch_first=batch_first, direction=direction)
        own = out[2].forget[i::2]
        for place, trace in enumerate(traces):
            assert [layer["name"] for layer in trace["layers"]] == ["layer 1", "layer 2"]
            for layer, d in zip(trace["layers"], own, strict=True):
                tree = from_distances(d, decoding="prpn", batch_first=batch_first, direction=direction)[place]
                assert tree_of(layer["trees"]["prpn"], 5) == tree


def test_the_temperature_is_that_of_cky() -> None:
    distances = torch.randn(1, 12, generator=torch.Generator().manual_seed(1)) * 3
    found = []
    for temperature in (0.1, 10.0):
        trace = read_distances(distances, list("abcdefghijkl"), temperature=temperature)
        [tree] = from_distances(distances, decoding="cky", temperature=temperature, batch_first=True)
        assert tree_of(trace["layers"][0]["trees"]["cky"], 12) == tree
        found.append(tree)
    assert found[0] != found[1]


def test_traces_of_long_sequences_have_no_cky_trees(monkeypatch) -> None:
    monkeypatch.setattr("ordered_memory.trace.LONGEST_CKY", 3)
    for tokens, decodings in (("abc", ["prpn", "unbiased", "cky"]), ("abcd", ["prpn", "unbiased"])):
        trace = read_distances(torch.arange(float(len(tokens))).unsqueeze(0), list(tokens))
        assert list(trace["layers"][0]["trees"]) == decodings


def test_distances_that_differ_a_little_stay_distinct() -> None:
    trace = read_distances(torch.tensor([[0.5, 0.50001, 0.50002]]), list("abc"))
    assert trace["layers"][0]["distances"] == [0.5, 0.50001, 0.50002]
    trace = read_distances(torch.tensor([[3, 1e-7, 2e-7, 3e-7]]), list("abcd"))
    assert trace["layers"][0]["distances"] == [3, 1e-7, 2e-7, 3e-7]
    numbers = [16777222, 16777216, 16777217]
    assert read_distances(torch.tensor([numbers]), list("abc"))["layers"][0]["distances"] == numbers
    negative = torch.complex(torch.zeros(1, 2), torch.tensor([[1.0, 2.0]])).conj().imag
    assert read_distances(negative, list("ab"))["layers"][0]["distances"] == [-1, -2]


@pytest.mark.filterwarnings("error")
def test_distances_that_rounding_has_made_equal_are_pointed_out() -> None:
    with pytest.warns(UserWarning, match="equal"):
        read_distances(torch.tensor([[3, 1.001, 1.002]], dtype=torch.bfloat16), list("abc"))


def test_a_last_distance_of_zero_in_one_layer_is_no_padding() -> None:
    trace = read_distances(torch.tensor([[1.0, 2.0, 0.0], [1.0, 2.0, 3.0]]), list("abc"))
    assert [layer["distances"] for layer in trace["layers"]] == [[1, 2, 0], [1, 2, 3]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_every_dtype_is_read_with_gradients_or_without(dtype: torch.dtype) -> None:
    attention = hard((0, 2, 1, 2), 3)
    expected = read_attention(attention, list("abcd"))
    assert read_attention(attention.to(dtype).requires_grad_(), list("abcd")) == expected
    d = torch.tensor([[1.0, 0.5, 2.0, 0.25]])
    assert read_distances(d.to(dtype).requires_grad_(), list("abcd")) == read_distances(d, list("abcd"))


def test_a_trace_does_not_depend_on_the_default_device() -> None:
    attention = hard((0, 2, 1, 2), 3)
    expected = read_attention(attention, list("abcd"))
    with torch.device("meta"):
        assert read_attention(attention, list("abcd")) == expected


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


def test_a_constituent_of_one_word_is_neither_in_the_true_tree_nor_not() -> None:
    trace = read_tree(((0, 1), 2), ["(", "a", "b"])
    add_true_tree(trace, (0, 1), words=[1, 2])
    assert [node["in_true_tree"] for node in trace["nodes"]] == [None, True]


def test_the_trees_of_distances_are_marked_against_the_true_one() -> None:
    trace = read_distances(torch.tensor([[0.0, 1.0, 2.0]]), list("abc"))
    add_true_tree(trace, ((0, 1), 2))
    nodes = trace["layers"][0]["trees"]["unbiased"]
    assert [node["in_true_tree"] for node in nodes] == [True, True]


def test_a_deep_tree_and_a_single_token() -> None:
    tree: Tree = 0
    for leaf in range(1, 3000):
        tree = (tree, leaf)
    nodes = nodes_of(tree)
    assert [(node["first"], node["last"]) for node in nodes] == spans(tree)
    [step, last] = read_attention(torch.zeros(1, 4), ["a"])["memory"]["steps"]
    assert step["stack"] == last["stack"] == [(0, 4)]


def test_a_batch_of_no_sequences_has_no_traces() -> None:
    assert read_output(OrderedMemory(4, 8, num_slots=5)(torch.randn(3, 0, 4)), []) == []
    assert read_output(ONLSTM(4, 8)(torch.randn(3, 0, 4), distances=True), []) == []


def test_true_trees_of_any_shape() -> None:
    trees: list[Tree] = [(0, 1, 2), (((0,), (1, 2)),), ((0, (1,)), 2)]
    for tree in trees:
        trace = read_attention(hard((0, 2, 2), 3), list("abc"))
        add_true_tree(trace, tree)
        assert [(node["first"], node["last"]) for node in trace["true_nodes"]] == spans(tree)
    one = read_attention(torch.zeros(1, 3), ["a"])
    add_true_tree(one, 0)
    assert one["true_nodes"] == one["nodes"] == []
