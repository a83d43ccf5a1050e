"""Traces as JSON: what they hold, and which arguments and entries are refused."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from onlstm import ONLSTM
from ordered_memory import OrderedMemory
from ordered_memory.trace import (
    Trace,
    add_true_tree,
    empty_trace,
    read_attention,
    read_distances,
    read_output,
    read_tree,
    to_json,
)
from ordered_memory.trees import Tree
from ordered_memory.viewer import embed, viewer_page
from tests.traces import hard


def test_a_trace_may_have_numbers_of_torch_and_numpy() -> None:
    trace = read_distances(torch.tensor([[3.0, 1.0]]), list("ab"))
    probabilities = [np.float32(0.25), torch.tensor(0.75)]
    trace["answer"] = {"classes": ["x", "y"], "probabilities": probabilities, "true": np.int64(1)}  # type: ignore[typeddict-item]
    (read,) = json.loads(to_json([trace]))["traces"]
    assert read["answer"] == {"classes": ["x", "y"], "probabilities": [0.25, 0.75], "true": 1}
    with pytest.raises(TypeError, match=r"a trace must contain JSON values, got \{1\}"):
        to_json([trace | {"answer": {1}}])  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    "wrong",
    [
        "yes",
        {"classes": ["no", "yes"], "probabilities": [0.2, 0.8]},  # shown as wrong
        {"classes": ["no", "yes"], "probabilities": {"no": 0.2, "yes": 0.8}, "true": 0},
        {"classes": ["no", "yes"], "probabilities": [1.0], "true": None},
        {"classes": [], "probabilities": [], "true": None},  # shown as "undefined", as the next three
        {"classes": ["no", "yes"], "probabilities": [0.2, 0.8], "true": 2},
        {"classes": ["no", "yes"], "probabilities": [0.2, 0.8], "true": "yes"},
        {"classes": ["no", "yes"], "probabilities": [0.2, 0.8], "true": True},
        {"classes": "ny", "probabilities": [0.2, 0.8], "true": None},
        {"classes": {0: "no", 1: "yes"}, "probabilities": [0.2, 0.8], "true": None},
        {"classes": 2, "probabilities": [0.2, 0.8], "true": None},
    ],
)
def test_an_answer_that_no_page_can_show_is_named(wrong: Any) -> None:
    traces = [read_tree((0, 1), ["a", "b"]), read_tree((0, 1), ["a", "b"]) | {"answer": wrong}]
    for write in (to_json, viewer_page, embed):
        with pytest.raises(
            TypeError, match=r"^the answer of traces\[1\] must be a dictionary with classes, "
        ):
            write(traces)  # type: ignore[arg-type]


def test_the_text_of_a_file_is_json_and_keeps_any_token() -> None:
    tokens = ["</script>", "☃\u2028", "", "\n", "שלום", "\ud800", "\udc00\ud83d", "🙂", "\0"]
    trace = read_distances(torch.arange(9.0)[None], tokens)
    text = to_json([trace])
    assert "☃" in text
    assert "שלום" in text
    read = json.loads(text.encode())
    assert (read["format"], read["version"], read["traces"]) == ("ordered-memory-trace", 1, [trace])


@pytest.mark.parametrize("number", [math.nan, math.inf, torch.tensor(-math.inf), np.float32(math.nan)])
def test_a_number_that_json_does_not_have_is_refused(number: Any) -> None:
    with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
        to_json([empty_trace(["a"]) | {"token_values": [number]}])  # type: ignore[typeddict-item]


def test_an_output_that_does_not_fit_is_refused() -> None:
    layer, lstm = OrderedMemory(4, 8, num_slots=5), ONLSTM(4, 8)
    x, tokens = torch.randn(3, 2, 4), [["a", "b", "c"]] * 2
    out = layer(x)
    with pytest.raises(ValueError, match=r"tokens of 2 sequences of lengths \[3, 3\], got \[3, 2\]"):
        read_output(out, [["a", "b", "c"], ["d", "e"]])
    with pytest.raises(TypeError, match="distances=True, got tuple"):
        read_output(lstm(x), tokens)
    with pytest.raises(ValueError, match=r"expected distances of a batch of sequences, got shape \(1, 3\)"):
        read_output(lstm(x[:, 0], distances=True), tokens)
    packed = pack_padded_sequence(x, [3, 2])
    for result in (layer(packed), lstm(packed, distances=True)):
        with pytest.raises(ValueError, match=r"tokens of 2 sequences of lengths \[3, 2\], got \[3, 3\]"):
            read_output(result, tokens)
        with pytest.raises(ValueError, match=r"lengths of the packed batch, \[3, 2\], or None, got \[3, 3\]"):
            read_output(result, tokens, [3, 3])
    with pytest.raises(ValueError, match=r"got shape \(3, 5\); a sequence without a batch axis needs one"):
        read_output(layer(x[:, 0]), tokens)
    with pytest.raises(ValueError, match="direction must be 'forward' if the layer is not bidirectional"):
        read_output(lstm(x, distances=True), tokens, direction="backward")
    with pytest.raises(ValueError, match=r"zeros at step 2: check lengths and batch_first"):
        read_output(layer(x, lengths=[3, 2]), tokens)
    with pytest.raises(ValueError, match=r"zeros at step 1: check lengths and batch_first"):
        read_output(layer(x[:2], lengths=[2, 1]), [["a", "b"], ["c", "d"]])
    with pytest.raises(ValueError, match=r"check direction \(here backward\)"):
        read_output(out, tokens, direction="backward")
    with pytest.raises(ValueError, match="the layer was given no state"):
        read_output(layer(x, state=out.state), tokens)


def test_an_unknown_direction_is_refused() -> None:
    layer, lstm = OrderedMemory(4, 8, num_slots=5), ONLSTM(4, 8)
    x = torch.randn(3, 1, 4)
    calls: list[Callable[..., object]] = [
        functools.partial(read_output, layer(x), [["a", "b", "c"]]),
        functools.partial(read_output, lstm(x, distances=True), [["a", "b", "c"]]),
        functools.partial(read_attention, layer(x[:, 0]).attention, ["a", "b", "c"]),
        functools.partial(read_distances, torch.rand(1, 3), ["a", "b", "c"]),
        functools.partial(empty_trace, ["a", "b", "c"]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="direction must be one of forward, backward, got 'bacward'"):
            call(direction="bacward")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -0.5])
def test_numbers_that_are_none_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="NaN, infinity or a negative number"):
        read_attention(torch.tensor([[0.0, 0.0], [1.0, bad]]), ["a", "b"])
    if bad != -0.5:
        with pytest.raises(ValueError, match="distances to be finite"):
            read_distances(torch.tensor([[1.0, bad]]), ["a", "b"])


def test_decodings_that_give_no_tree_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordered_memory.trace.LONGEST_CKY", 3)
    for decodings, size in (((), 3), (("cky",), 4)):
        with pytest.raises(ValueError, match=rf"give trees of {size} tokens, got \[('cky')?\]"):
            read_distances(torch.ones(1, size), list("abcd"[:size]), decodings=decodings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="decoding must be one of prpn, unbiased, cky, got 'right'"):
        read_distances(torch.ones(1, 3), list("abc"), decodings=["right"])  # type: ignore[list-item]
    trace = read_distances(torch.ones(1, 4), list("abcd"), decodings=["cky", "unbiased"])
    assert list(trace["layers"][0]["trees"]) == ["unbiased"]


def test_shapes_and_names_that_do_not_fit_are_refused() -> None:
    for shape, tokens in (((2, 0), "ab"), ((1, 0), "a"), ((0, 3), ""), ((2, 3), "a"), ((2, 3, 1), "ab")):
        with pytest.raises(ValueError, match=rf"\(T, N\) with T = {len(tokens)} tokens, got"):
            read_attention(torch.zeros(shape), list(tokens))
    for shape, tokens in (((2, 3), "ab"), ((2, 0), ""), ((2,), "ab"), ((1, 2, 1), "ab")):
        with pytest.raises(ValueError, match=rf"\(L, T\) with T = {len(tokens)} tokens, got"):
            read_distances(torch.zeros(shape), list(tokens))
    with pytest.raises(ValueError, match=r"names of 2 layers, got \['top'\]"):
        read_distances(torch.ones(2, 3), list("abc"), names=["top"])
    with pytest.raises(TypeError, match=r"^names\[1\] must be a string, got 2$"):
        read_distances(torch.ones(2, 3), list("abc"), names=["top", 2])  # type: ignore[list-item]
    for name, read in (("attention", read_attention), ("distances", read_distances)):
        with pytest.raises(TypeError, match=f"^expected {name} to be a tensor, got list$"):
            read([[0.0]], ["a"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tree", "words", "message"),
    [
        ((0, 1), None, r"the leaves 0\.\.2 of 3 words, got the leaves 0\.\.1"),
        ((0, (1, (2, 3))), None, r"the leaves 0\.\.2 of 3 words, got the leaves 0\.\.3"),
        ((1, 2), [0, 1], r"the leaves 0\.\.1 of 2 words, got the leaves 1\.\.2"),
        (0, [], r"the leaves 0\.\.-1 of 0 words, got the leaves 0\.\.0"),
        ((0, 1), [2, 0], r"increasing positions in 0\.\.2, got \[2, 0\]"),
        ((0, 1), [1, 1], r"increasing positions in 0\.\.2, got \[1, 1\]"),
        ((0, 1), [1, 3], r"increasing positions in 0\.\.2, got \[1, 3\]"),
        ((0, 1), [-1, 0], r"increasing positions in 0\.\.2, got \[-1, 0\]"),
    ],
)
def test_a_tree_over_other_words_is_refused_and_changes_nothing(
    tree: Tree, words: list[int] | None, message: str
) -> None:
    trace = read_tree(((0, 1), 2), list("abc"))
    before = to_json([trace])
    with pytest.raises(ValueError, match=message):
        add_true_tree(trace, tree, words)
    assert to_json([trace]) == before
    if words is None:
        with pytest.raises(ValueError, match=message.replace("words", "tokens")):
            read_tree(tree, list("abc"))


@pytest.mark.parametrize("words", [np.array([1, 2, 4]), torch.tensor([1, 2, 4])])
def test_words_may_be_an_array(words: Any) -> None:
    trace, expected = empty_trace(list("(ab)c")), empty_trace(list("(ab)c"))
    add_true_tree(trace, ((0, 1), 2), words)
    add_true_tree(expected, ((0, 1), 2), [1, 2, 4])
    assert to_json([trace]) == to_json([expected])


def test_tokens_and_names_may_be_arrays() -> None:
    attention, d, tokens, names = hard((0, 2, 1), 3), torch.ones(2, 3), ["the", "cat", "sat"], ["low", "high"]
    expected = [read_attention(attention, tokens), read_distances(d, tokens, names=names)]
    array = np.array(tokens)
    assert [read_attention(attention, array), read_distances(d, array, names=np.array(names))] == expected


def test_traces_have_no_keys_for_what_a_model_does_not_have() -> None:
    trace: Trace = read_distances(torch.tensor([[1.0, 0.25]]), ["a", "b"])
    assert trace.keys() == {"tokens", "caption", "direction", "words", "layers"}


@pytest.mark.parametrize("wrong", [{}, "a", {"tokens": ["a"]}])
def test_an_entry_that_is_no_trace_is_named(wrong):
    for write in (to_json, viewer_page, embed):
        with pytest.raises(TypeError, match=r"^traces\[1\] must be a dictionary with tokens, .* got"):
            write([read_tree((0, 1), ["a", "b"]), wrong])


@pytest.mark.parametrize(
    "read",
    [
        lambda tokens: read_tree((0, 1), tokens),
        lambda tokens: read_attention(torch.tensor([[0.0, 0.0], [0.1, 0.9]]), tokens),
        lambda tokens: read_distances(torch.ones(1, 2), tokens),
    ],
)
def test_tokens_of_a_trace_are_strings(read):
    with pytest.raises(TypeError, match=r"^tokens\[1\] must be a string, got 3$"):
        read(["a", 3])


def test_one_trace_in_place_of_a_list_is_named():
    trace = read_distances(torch.tensor([[1.0, 2.0, 3.0]]), ["the", "cat", "sat"])
    for write in (to_json, viewer_page, embed):
        with pytest.raises(
            TypeError, match=r"^traces must be a list of traces, got one trace: pass \[trace\]$"
        ):
            write(trace)
