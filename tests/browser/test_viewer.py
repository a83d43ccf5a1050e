"""The viewer in a browser: it shows what the model did, step by step, and answers to pointer and keys."""

from __future__ import annotations

import itertools
import random
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ordered_memory.trace import (
    Answer,
    Trace,
    add_true_tree,
    add_values,
    empty_trace,
    read_attention,
    read_distances,
    read_tree,
)
from ordered_memory.tree_recovery import DECODINGS, from_distances, shift_reduce
from ordered_memory.trees import Span, spans
from tests.browser.conftest import OpenPage

DOCS = Path(__file__).parents[2] / "docs"
CODE = "<script>alert(1)</script>"


def attention_of(size: int, num_slots: int = 4, seed: int = 0) -> torch.Tensor:
    """Attention of a model that does not hesitate much."""
    generator = torch.Generator().manual_seed(seed)
    p = (4 * torch.randn(size, num_slots, generator=generator)).softmax(-1)
    p[0] = 0
    return p


def example(size: int, seed: int = 0, true: int | None = None, **more: Any) -> Trace:
    trace = read_attention(attention_of(size, seed=seed), [f"w{i}" for i in range(size)])
    add_true_tree(trace, left_branching(size))
    trace["answer"] = Answer(classes=["no", "yes"], probabilities=[0.25, 0.75], true=true)
    return trace | more  # type: ignore[return-value]


def left_branching(size: int) -> Any:
    tree: Any = 0
    for leaf in range(1, size):
        tree = (tree, leaf)
    return tree


def drawn(page: Any, states: str = "built new") -> set[tuple[int, int]]:
    """First and last token of the constituents of the induced tree that are drawn."""
    found = page.evaluate(
        """states => [...document.querySelectorAll('.om-tree[aria-label="Induced tree"] .om-node')]
        .filter(node => states.split(" ").includes(node.dataset.state) && node.getBoundingClientRect().width)
        .map(node => [+node.dataset.first, +node.dataset.last])""",
        states,
    )
    return {(first, last) for first, last in found}


def held(page: Any) -> list[tuple[int, str]]:
    """Slot and words of what the stack holds, from the top."""
    found = page.evaluate(
        """() => [...document.querySelectorAll(".om-bar:not([data-state=erased])")]
        .map(bar => [+bar.dataset.slot, bar.textContent]).sort((a, b) => a[0] - b[0])"""
    )
    return [(slot, words) for slot, words in found]


def choose(page: Any, name: str, option: str) -> None:
    page.get_by_role("combobox", name=name, exact=True).select_option(option)


def step(page: Any) -> str:
    return str(page.locator(".om-count").first.inner_text())


def algorithm_2(pointers: list[int], num_slots: int) -> list[tuple[set[Span], list[Span]]]:
    """What has been joined, and the subtrees on the stack from the top, after each step."""
    after: list[tuple[set[Span], list[Span]]] = []
    stack, joined, head = [(0, 0)], set(), num_slots

    def reduce() -> None:
        right, left = stack.pop(), stack.pop()
        stack.append((left[0], right[1]))
        joined.add(stack[-1])

    after.append((set(), stack[::-1]))
    for token, pointer in enumerate(pointers[1:], start=1):
        for _ in range(pointer + 1 - head):
            if len(stack) > 1:
                reduce()
        stack.append((token, token))
        head = pointer
        after.append((set(joined), stack[::-1]))
    while len(stack) > 1:
        reduce()
    after.append((set(joined), stack))
    return after


def test_stepping_through_a_trace_builds_the_tree_of_algorithm_2(show: Any) -> None:
    attention = attention_of(9)
    pointers = attention.argmax(-1).tolist()
    page = show([read_attention(attention, [f"w{i}" for i in range(9)])])
    assert step(page) == "10 / 10"
    assert drawn(page) == set(spans(shift_reduce(pointers, 4)))
    page.keyboard.press("Home")
    for frame, (joined, stack) in enumerate(algorithm_2(pointers, 4)):
        assert step(page) == f"{frame + 1} / 10"
        assert drawn(page) == joined
        words = [" ".join(f"w{i}" for i in range(first, last + 1)) for first, last in stack]
        assert [text for _, text in held(page)] == words
        if 0 < frame < 9:
            told = page.locator(".om-sentence").inner_text()
            p = attention[frame, pointers[frame]]
            assert f"Token {frame + 1} w{frame} attends to slot {pointers[frame] + 1} (p = {p:.2f})" in told
        page.keyboard.press("ArrowRight")
    assert step(page) == "10 / 10"


def test_a_sentence_tells_what_happened(show: Any) -> None:
    attention = torch.eye(2)[[0, 1, 0, 1]]
    attention[0] = 0
    page = show([read_attention(attention, ["[MAX", "2", "9", "]"])])
    page.keyboard.press("Home")
    told, stacks = [], []
    for _ in range(5):
        told.append(page.locator(".om-sentence").inner_text())
        stacks.append(held(page))
        page.keyboard.press("ArrowRight")
    assert told == [
        "Token 1 [MAX is read into the empty memory: it takes the last slot, 2.",
        "Token 2 2 attends to slot 2 (p = 1.00). Nothing is joined; slot 2 keeps [MAX. "
        "The token is pushed to slot 1.",
        "Token 3 9 attends to slot 1 (p = 1.00). Nothing is joined; slot 1 keeps 2. "
        "No slot is left above it for the token.",
        "Token 4 ] attends to slot 2 (p = 1.00). The 3 topmost subtrees are joined there: [MAX 2 9. "
        "The token is pushed to slot 1.",
        "The end: the 2 subtrees that are left are joined. The tree is complete.",
    ]
    assert stacks == [
        [(2, "[MAX")],
        [(1, "2"), (2, "[MAX")],
        [(0, "9"), (1, "2"), (2, "[MAX")],
        [(1, "]"), (2, "[MAX 2 9")],
        [(2, "[MAX 2 9 ]")],
    ]


def test_a_sequence_that_was_read_from_its_end_grows_from_there(show: Any) -> None:
    attention = attention_of(6)
    mirrored = algorithm_2(attention.argmax(-1).tolist(), 4)
    page = show([read_attention(attention.flip(0), list("abcdef"), direction="backward")])
    page.keyboard.press("Home")
    for joined, _ in mirrored:
        assert drawn(page) == {(5 - last, 5 - first) for first, last in joined}
        page.keyboard.press("ArrowRight")


def test_distances_split_the_sequence_from_the_top(show: Any) -> None:
    d = torch.rand(2, 7, generator=torch.Generator().manual_seed(1)) * 30
    words = ["the", "cat", "that", "sat", "here", "is", "old"]
    for direction, trace in (
        ("forward", read_distances(d, words)),
        ("backward", read_distances(d, words, direction="backward")),
    ):
        page = show([trace])
        for layer, decoding in itertools.product(range(2), DECODINGS):
            choose(page, "Layer", f"layer {layer + 1}")
            choose(page, "Tree", decoding)
            row = d[layer : layer + 1]
            [tree] = from_distances(row, decoding=decoding, batch_first=True, direction=direction)
            assert drawn(page) == set(spans(tree))
            page.locator(".om-scroller").focus()
            page.keyboard.press("Home")
            assert drawn(page) == set()
            assert drawn(page, "open") == {(0, 6)}
            for frame in range(1, 7):
                page.keyboard.press("ArrowRight")
                assert len(drawn(page)) == frame
                # What is split, and what is to be, are all constituents that a split has made.
                assert drawn(page) | drawn(page, "open") <= set(spans(tree))


def test_a_long_sentence_after_a_short_one_has_no_cky_tree(show: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("ordered_memory.trace.LONGEST_CKY", 3)
    short, long = (read_distances(torch.arange(float(n))[None], list("abcdef"[:n])) for n in (3, 6))
    page = show([{**short, "example": 0}, {**long, "example": 1}])
    choose(page, "Tree", "cky")
    page.locator(".om-examples label").nth(1).click()
    assert page.get_by_role("combobox", name="Tree").input_value() == "unbiased"
    assert drawn(page) == set(spans((((((0, 1), 2), 3), 4), 5)))
    page.locator(".om-examples label").nth(0).click()
    assert page.get_by_role("combobox", name="Tree").input_value() == "cky"


def test_bars_are_as_high_as_distances_of_any_size(show: Any) -> None:
    d = torch.tensor([[1e308, -1e308, 0.0], [5e-324, 0.0, 0.0], [2.0, 0.0, 1.0]], dtype=torch.float64)
    page = show([read_distances(d, list("abc"))])
    heights = page.locator(".om-distance").evaluate_all(
        "bars => bars.map((bar) => Number(bar.getAttribute('height')))"
    )
    assert heights == [54, 1, 27, 1, 1, 1, 54, 1, 27]  # of 54 pixels, and at least one


def test_the_sentence_names_the_largest_distance(show: Any) -> None:
    d = torch.tensor([[9.0, 1.0, 5.0, 2.0]])
    page = show([read_distances(d, ["the", "cat", "sat", "here"])])

    def sentences(decoding: str) -> list[str]:
        choose(page, "Tree", decoding)
        page.locator(".om-scroller").focus()
        page.keyboard.press("Home")
        found = []
        for _ in range(4):
            found.append(page.locator(".om-sentence").inner_text())
            page.keyboard.press("ArrowRight")
        return found

    except_first = "except for its first token, is at"
    assert sentences("unbiased") == [
        "Nothing is split yet: the cat sat here.",
        f"The largest distance in the cat sat here, {except_first} sat (5.00): split before it.",
        f"The largest distance in sat here, {except_first} here (2.00): split before it.",
        f"The largest distance in the cat, {except_first} cat (1.00): split before it.",
    ]
    assert sentences("prpn") == [
        "Nothing is split yet: the cat sat here.",
        "The largest distance in the cat sat here is at the (9.00): it is separated from the rest.",
        "The largest distance in cat sat here is at sat (5.00): split before it.",
        "sat is separated from what follows it in sat here.",
    ]
    assert sentences("cky")[1] == "The most probable tree splits the cat sat here before sat (5.00)."


def test_the_sentence_and_the_tree_agree_where_distances_are_nearly_equal(show: Any) -> None:
    d = torch.tensor([[0.50002, 0.50003, 0.1], [0.50003, 0.50002, 0.1]])
    page = show([read_distances(d, ["a", "b", "c"])])
    choose(page, "Tree", "prpn")
    for layer, told in (
        ("layer 1", "is at b (0.50): split before it."),
        ("layer 2", "is at a (0.50): it is separated"),
    ):
        choose(page, "Layer", layer)
        page.locator(".om-scroller").focus()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        assert told in page.locator(".om-sentence").inner_text()


def test_parts_are_listed(show: Any) -> None:
    page = show([read_tree((0, 1, 2, 3), list("abcd"))])
    assert page.locator(".om-sentence").inner_text() == "a, b, c and d are joined: a b c d."


def test_nothing_is_cut_off_on_paper(show: Any) -> None:
    width = 700  # of A4, upright, between its margins
    page = show([example(60), read_distances(torch.rand(2, 60), ["word"] * 60)], width=width)
    page.emulate_media(media="print")
    for entry in page.locator(".om-examples input").all():
        page.evaluate("entry => entry.click()", entry.element_handle())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for part in page.locator(".om-columns, .om-columns > svg").all():
            assert part.bounding_box()["width"] <= width


@pytest.mark.parametrize("kind", ["stack", "distances"])
def test_a_long_sequence_is_cut_into_readable_strips_on_paper(kind: str, show: Any, tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(150)]
    trace = example(150) if kind == "stack" else read_distances(torch.rand(2, 150), words)
    tokens, width = trace["tokens"], 700  # of A4, upright, between its margins
    page = show([trace], width=width)
    if kind == "stack":
        choose(page, "Show", "→π: joined with the token")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not page.locator(".om-scroller").is_visible()
    strips = page.locator(".om-strip")
    assert strips.count() > 4
    shown = strips.evaluate_all(
        """strips => strips.map(strip => {
            const { left, right } = strip.getBoundingClientRect();
            return [...strip.querySelector(".om-tokens").children].filter(token => {
                const box = token.getBoundingClientRect();
                const seen = getComputedStyle(token).visibility === "visible";
                return seen && box.left >= left - 1 && box.right <= right + 1;
            }).map(token => token.textContent);
        })"""
    )
    assert [token for strip in shown for token in strip] == tokens
    zooms = strips.evaluate_all("strips => strips.map(strip => Number(strip.style.zoom))")
    assert min(zooms) == max(zooms) == 0.65
    if kind == "stack":
        values = strips.locator("select").evaluate_all("all => all.map(one => one.value)")
        assert set(values) == {"forward_mask"}
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert strips.count() == 0
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert strips.count() == 0


def test_what_fits_on_paper_is_not_cut(show: Any) -> None:
    page = show([example(12)])
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".om-strip").count() == 0


def test_each_bar_has_its_number(show: Any) -> None:
    d = torch.tensor([[0.0, -3.2, 9.996, 99.96, 12345.6, 1e9]])
    page = show([read_distances(d, list("abcdef"))])
    numbers = page.locator(".om-number")
    assert numbers.all_text_contents() == ["0.00", "-3.20", "10.0", "100", "1e+4", "1e+9"]
    widths = [number.bounding_box()["width"] for number in numbers.all()]
    assert max(widths) < 34  # the narrowest column


def test_paper_tells_what_was_chosen(show: Any) -> None:
    page = show([example(5, example=0), read_distances(torch.rand(2, 5), list("abcde")) | {"example": 0}])
    choose(page, "Show", "→π: joined with the token")
    choose(page, "Tree", "prpn")
    page.emulate_media(media="print")
    for name in ("Show", "Layer", "Tree"):
        assert page.get_by_role("combobox", name=name, exact=True).is_visible()
    assert page.get_by_role("combobox", name="Speed").count() == 0


def test_keys_move_through_time(show: Any) -> None:
    page = show([example(6)])
    for key, place in (("Home", 1), ("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("End", 7)):
        page.keyboard.press(key)
        assert step(page) == f"{place} / 7"
    page.keyboard.press("Space")  # plays from the start
    page.get_by_role("button", name="Pause").wait_for()
    assert step(page) == "1 / 7"
    page.keyboard.press("Space")
    page.get_by_role("button", name="Play").wait_for()
    choose(page, "Speed", "20 ×")
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Pause").wait_for()
    page.get_by_role("button", name="Play").wait_for()
    assert step(page) == "7 / 7"
    page.locator("h1").click()
    # Every control is reached by Tab, in order; in the tree up and down lead from node to node.
    reached = []
    for _ in range(10):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.tagName"))
    names = ["To the start", "Back", "Play", "Forward", "To the end", "Step", "SELECT", "Columns of tokens"]
    assert reached[: len(names)] == names


def test_nodes_are_reached_by_keys_and_lead_to_their_step(show: Any) -> None:
    trace = example(6)
    page = show([trace])
    page.locator(".om-node[tabindex]").focus()
    page.keyboard.press("ArrowDown")
    name = page.evaluate("document.activeElement.getAttribute('aria-label')")
    node = trace["nodes"][-2]
    words = " ".join(trace["tokens"][node["first"] : node["last"] + 1])
    assert name.startswith(f"{words}, built at step {node['step'] + 1}, in slot {node['slot']}")
    assert page.locator(".om-tip").inner_text().startswith(words)
    page.keyboard.press("Enter")
    assert step(page) == f"{node['step'] + 1} / 7"
    # Time goes on, and the node has the focus; when it is not there any more, another one has it.
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == name
    assert page.locator(".om-tip").inner_text().startswith(words)
    for _ in range(2):
        page.keyboard.press("ArrowLeft")
        assert page.evaluate("document.activeElement.matches('.om-node:not([data-state=hidden])')")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") != name


def test_hovering_a_node_lights_up_its_tokens_its_slot_and_its_bar(show: Any) -> None:
    trace = example(7)
    page = show([trace])
    node = trace["nodes"][0]
    page.locator(".om-node[data-id='7'] circle").first.hover()
    lit = page.evaluate("[...document.querySelectorAll('.om-token.om-lit')].map(one => +one.dataset.token)")
    assert lit == list(range(node["first"], node["last"] + 1))
    assert page.locator(".om-gutter .om-lit").all_inner_texts() == [str(node["slot"])] * 2
    tip = page.locator(".om-tip").inner_text()
    assert f"built at step {node['step'] + 1}, in slot {node['slot']}" in tip
    page.locator(".om-node[data-id='7'] circle").first.click()
    assert step(page) == f"{node['step'] + 1} / 8"
    assert page.locator(".om-bar.om-lit").count() == 1
    # A token lights up its path: all constituents that it is in.
    page.keyboard.press("End")
    page.locator(".om-token").nth(2).hover()
    lit = page.evaluate(
        """() => [...document.querySelectorAll(".om-node.om-lit")]
        .map(node => [+node.dataset.first, +node.dataset.last])"""
    )
    assert sorted(map(tuple, lit)) == sorted(
        (node["first"], node["last"]) for node in trace["nodes"] if node["first"] <= 2 <= node["last"]
    )


def test_hovering_a_cell_tells_its_numbers(show: Any) -> None:
    trace = example(5)
    page = show([trace])
    box = page.locator(".om-attention > svg").bounding_box()
    column = page.locator(".om-token").nth(3).bounding_box()
    page.mouse.move(column["x"] + 10, box["y"] + box["height"] - 5)
    told = page.locator(".om-tip").inner_text().split("\n")
    rows = [trace["memory"][key][3][3] for key in ("attention", "forward_mask", "backward_mask", "occupancy")]  # type: ignore[literal-required]
    names = ["p", "→π", "←π", "occupancy"]
    assert told == ["“w3”", "slot 4", *(f"{name} {row:.2f}" for name, row in zip(names, rows, strict=True))]


def test_a_note_is_as_wide_as_its_words_wherever_the_last_one_stood(show: Any) -> None:
    d = torch.tensor([[1.0, 1.0, 1.0, 9.0, 1.0]])
    page = show([read_distances(d, [*"abc", "a long word", "another long word"])], width=400)
    page.locator(".om-scroller").evaluate("scroller => (scroller.scrollLeft = 1000)")
    node, note = page.locator(".om-node[data-first='3'] circle"), page.locator(".om-tip")
    node.hover()
    width = note.bounding_box()["width"]
    bars = page.locator(".om-distances").bounding_box()
    page.mouse.move(bars["x"] + bars["width"] - 5, bars["y"] + 50)
    assert note.inner_text().endswith("distance 1.00")
    node.hover()
    assert note.bounding_box()["width"] == width
    page = show([read_tree((0, 1), ["x" * 300, "y"])], width=320)
    page.locator(".om-token").first.hover()
    page.locator(".om-node circle").hover()
    box = page.locator(".om-tip").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 320


def test_a_finger_is_told_what_it_taps(show: Any) -> None:
    page = show([example(5)], has_touch=True)
    note = page.locator(".om-tip")
    page.locator(".om-node[data-id='5'] circle").first.tap()
    assert "built at step" in note.inner_text()
    page.locator(".om-attention > svg").tap()
    assert "occupancy" in note.inner_text()
    page.get_by_role("button", name="Back").tap()
    assert not note.is_visible()


def test_escape_hides_the_note(show: Any) -> None:
    page = show([example(5, example=0), example(5, example=0)])
    page.locator(".om-node[data-id='5'] circle").last.hover()
    note = page.locator(".om-tip:visible")
    assert note.count() == 1
    page.keyboard.press("Escape")
    assert note.count() == 0
    assert page.locator(".om-lit").count() == 0


def test_what_is_chosen_and_pointed_at_is_seen_where_colors_are_forced(show: Any) -> None:
    page = show([example(5), example(6)], forced_colors="active")

    def corner(selector: str) -> bytes:
        box = page.locator(selector).first.bounding_box()
        return bytes(page.screenshot(clip={"x": box["x"] + 8, "y": box["y"] + 2, "width": 2, "height": 2}))

    assert corner(".om-examples label:has(:checked)") != corner(".om-examples label:not(:has(:checked))")
    page.locator(".om-node[data-id='5'] circle").first.hover()
    assert corner(".om-token.om-lit") != corner(".om-token:not(.om-lit)")


def test_the_legend_tells_the_colors_of_lines(show: Any) -> None:
    page = show([example(5, example=0), read_distances(torch.rand(1, 4), list("abcd")) | {"example": 0}])
    legends = page.locator(".om-legend").all_inner_texts()
    assert [legend.split("\n")[0].strip() for legend in legends] == [
        "built in this step",
        "split in this step",
    ]
    page = show([empty_trace(["a"])])
    assert page.locator(".om-legend").inner_text() == ""


def test_another_layer_is_shown_at_the_same_place(show: Any) -> None:
    d = torch.rand(3, 60, generator=torch.Generator().manual_seed(0))
    page = show([read_distances(d, ["word"] * 60)])
    scroller = page.locator(".om-scroller")
    scroller.evaluate("scroller => (scroller.scrollLeft = 600)")
    choose(page, "Layer", "layer 1")
    assert scroller.evaluate("scroller => scroller.scrollLeft") == 600
    assert step(page) == "60 / 60"
    page.get_by_role("button", name="To the start").click()
    page.get_by_role("button", name="Forward").click()
    choose(page, "Layer", "layer 3")
    assert step(page) == "2 / 60"
    assert len(drawn(page)) == 1


def test_the_layer_of_a_trace_is_chosen_for_this_trace_alone(show: Any) -> None:
    traces = [read_distances(torch.rand(3, 5), list("abcde")) for _ in range(2)]
    page = show([trace | {"example": 0} for trace in traces])
    layer, tree = (page.get_by_role("combobox", name=name, exact=True) for name in ("Layer", "Tree"))
    layer.first.select_option("layer 1")
    tree.nth(1).select_option("prpn")
    chosen = page.locator(".om-chosen").evaluate_all("all => all.map(one => one.ariaLabel)")
    assert chosen == ["Distances of layer 1", "Distances of layer 2"]
    layer.first.select_option("layer 3")
    assert [tree.nth(i).input_value() for i in range(2)] == ["unbiased", "prpn"]
    assert page.locator(".om-sentence").first.inner_text().count("except for its first token") == 1


def test_dragging_over_the_columns_moves_through_time(show: Any) -> None:
    page = show([example(8)])
    boxes = [page.locator(".om-token").nth(i).bounding_box() for i in range(8)]
    page.mouse.move(boxes[1]["x"] + 5, boxes[1]["y"] + 5)
    page.mouse.down()
    assert step(page) == "2 / 9"
    page.mouse.move(boxes[6]["x"] + 5, boxes[6]["y"] + 50, steps=4)
    assert step(page) == "7 / 9"
    page.mouse.up()
    page.mouse.move(boxes[3]["x"] + 5, boxes[3]["y"] + 5)
    assert step(page) == "7 / 9"
    slider = page.get_by_role("slider", name="Step")
    slider.fill("2")
    assert step(page) == "3 / 9"


def test_the_scroll_bar_and_the_numbers_of_slots_do_not_move_through_time(show: Any) -> None:
    page = show([example(30)], width=420, height=1500)
    scroller = page.locator(".om-scroller")
    page.get_by_role("button", name="To the start").click()
    scroller.evaluate("scroller => (scroller.scrollLeft = 300)")
    scroller.dispatch_event("pointerdown", {"button": 0, "clientX": 200, "bubbles": True})  # where its bar is
    page.locator(".om-gutter").first.locator("span").first.click()
    assert step(page) == "1 / 31"
    page.locator(".om-stack").click(position={"x": 450, "y": 10})
    assert step(page) != "1 / 31"


def test_only_the_sentence_is_read_aloud_and_not_while_it_plays(show: Any) -> None:
    page = show([example(8)])
    live = page.locator(":is(.om-board, .om-board *):is([aria-live], [role=status], [role=alert], output)")
    assert live.evaluate_all("all => all.map(one => [one.className, one.ariaLive])") == [
        ["om-sentence", "polite"]
    ]
    page.get_by_role("button", name="Play").click()
    assert live.evaluate_all("all => all.map(one => [one.className, one.ariaLive])") == [
        ["om-sentence", "off"]
    ]


def odd_traces() -> list[Trace]:
    long, hebrew = ["x" * 40, "y" * 400, "a"], ["שלום", "עולם", "ok"]
    texts = [
        ["alone"],
        long,
        ["🙂", "漢字", "é", "", "\n", "\ud800"],
        hebrew,
        [CODE, "</script>", "<!--", "\u2028"],
    ]
    found = [read_attention(attention_of(len(text)), text) for text in texts]
    found += [read_tree(((0, 1), 2), list("abc")), read_distances(torch.ones(1, 1), ["one"])]
    true_only = read_tree(((0, 1), 2), list("abc"))
    del true_only["nodes"]
    add_true_tree(true_only, (0, (1, 2)))
    true_only["answer"] = Answer(classes=["long" * 99, "x"], probabilities=[0.5, 0.5], true=1)
    for number, trace in enumerate([*found, true_only]):
        trace["caption"] = f"{CODE} {number}"
    return [*found, true_only]


@pytest.mark.parametrize("width", [400, 1280])
def test_odd_sequences_are_shown_whole_and_as_text(show: Any, width: int) -> None:
    traces = odd_traces()
    page = show(traces, width=width)
    for trace, entry in zip(traces, page.locator(".om-examples label").all(), strict=True):
        entry.click()
        assert page.locator(".om-caption").inner_text() == trace["caption"]
        texts = page.locator(".om-tokens").first.locator(".om-token").all_text_contents()
        assert texts == trace["tokens"]
        if page.get_by_role("button", name="To the start").count():
            page.get_by_role("button", name="To the start").click()
            page.get_by_role("button", name="Forward").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator(".om-viewer script").count() == 0


def test_the_true_tree_is_shown_where_it_differs(show: Any) -> None:
    tree = ((0, 1), (2, 3))
    trace = read_tree(tree, list("abcd"))
    add_true_tree(trace, tree)
    page = show([trace])
    assert page.get_by_text("The induced tree is the true one").count() == 1
    assert page.locator("[aria-label='True tree']").count() == 0
    add_true_tree(trace, ((0, 1), 2, 3))
    add_values(trace["nodes"], {(0, 1): -0.5, (0, 3): 1.0}, trace["words"])
    page = show([trace])
    assert page.locator("[aria-label='True tree'] .om-node").count() == 2
    assert page.locator(".om-tree .om-marked").count() == 1
    assert page.locator(".om-tree .om-negative").count() == 1


def test_without_an_induced_tree_the_true_one_has_two_kinds_of_values(show: Any) -> None:
    trace = empty_trace(list("abc"))
    add_true_tree(trace, ((0, 1), 2))
    add_values(trace["true_nodes"], {(0, 1): 0.5, (0, 2): 1.0}, trace["words"])
    page = show([trace])
    assert page.locator(".om-tree").count() == 1
    assert page.locator(".om-heading").all_inner_texts() == ["True tree\nthis model induces none"]
    assert not page.locator(".om-cursor").is_visible()
    add_values(trace["true_nodes"], {(0, 1): -0.5, (0, 2): 0.25}, trace["words"], "model_value")
    page = show([trace])
    assert page.locator("[aria-label='True tree, values of the model'] .om-negative").count() == 1
    assert page.locator("[aria-label='True tree'] .om-negative").count() == 0
    assert page.locator("[aria-label='True tree'] .om-node").count() == 2


def test_only_a_certain_answer_has_all_of_the_probability(show: Any) -> None:
    trace = example(3, true=1)
    for probabilities, shown in (
        ([0.00002, 0.99998], ["> 99.9 %", "< 0.1 %"]),
        ([0.0, 1.0], ["100.0 %", "0.0 %"]),
        ([0.001, 0.999], ["99.9 %", "0.1 %"]),
    ):
        trace["answer"]["probabilities"] = probabilities
        page = show([trace])
        assert page.locator(".om-classes li > :nth-child(3)").all_inner_texts() == shown


def test_a_value_of_zero_has_no_sign(show: Any) -> None:
    trace = read_tree((0, 1), ["a", "b"])
    add_values(trace["nodes"], {(0, 1): -0.001}, trace["words"])
    page = show([trace])
    assert "value 0.00" in page.locator(".om-node").get_attribute("aria-label")


def test_keys_go_to_the_board_that_is_there(show: Any) -> None:
    page = show([empty_trace(["a"]) | {"example": 0}, example(6, example=0), example(4, example=0)])
    page.keyboard.press("Home")
    assert page.locator(".om-count").all_inner_texts() == ["1 / 7", "5 / 5"]
    page.locator(".om-scroller").nth(2).focus()
    page.evaluate("document.activeElement.blur(); document.querySelectorAll('.om-board')[2].remove()")
    page.keyboard.press("ArrowRight")
    assert page.locator(".om-count").all_inner_texts() == ["2 / 7"]


def test_the_traces_of_an_example_stand_one_under_the_other(show: Any) -> None:
    pair = [example(5, 1, 1, caption="left", example=3), example(6, 2, 1, caption="right", example=3)]
    page = show(pair)
    assert page.locator(".om-board").count() == 2
    assert page.locator(".om-verdict").inner_text() == "Answer yes ✓ right"
    assert page.locator(".om-caption").all_inner_texts() == ["left", "right"]
    page.locator(".om-scroller").nth(1).focus()
    page.keyboard.press("Home")
    assert page.locator(".om-count").all_inner_texts() == ["6 / 6", "1 / 7"]


def test_there_is_room_between_the_traces_of_an_example(show: Any) -> None:
    page = show(
        [example(5, caption=caption, example=i) for i, caption in enumerate(["", "a"]) for _ in range(2)]
    )
    for label in page.locator(".om-examples label").all():
        label.click()
        first, second = (board.bounding_box() for board in page.locator(".om-board").all())
        assert second["y"] - first["y"] - first["height"] >= 28


def test_examples_are_filtered_and_sorted(show: Any) -> None:
    sizes = [12, 3, 25, 7]
    traces = [example(size, size, size % 2, caption=f"length {size}") for size in sizes]
    page = show(traces)
    shown = page.locator(".om-entry b")
    assert shown.all_inner_texts() == [f"length {size}" for size in sizes]
    choose(page, "Order", "length")
    assert shown.all_inner_texts() == [f"length {size}" for size in sorted(sizes)]
    choose(page, "Answer", "wrong")
    assert shown.all_inner_texts() == ["length 12"]
    assert page.get_by_text("1 of 4 examples").count() == 1
    assert page.locator(".om-caption").inner_text() == "length 12"
    choose(page, "Answer", "all")
    choose(page, "Tokens", "up to 10")
    assert shown.all_inner_texts() == ["length 3", "length 7"]
    choose(page, "Tokens", "all")
    choose(page, "Tree depth", "16 or more")
    assert shown.all_inner_texts() == ["length 25"]
    choose(page, "Tree depth", "all")
    page.get_by_role("radio").first.focus()
    for key, size, place in (("Space", 3, 4), ("ArrowDown", 7, 8), ("ArrowLeft", 7, 7), ("ArrowUp", 3, 4)):
        page.keyboard.press(key)
        assert page.locator(".om-caption").inner_text() == f"length {size}"
        assert step(page) == f"{place} / {size + 1}"
    choose(page, "Answer", "wrong")
    choose(page, "Tokens", "up to 10")
    assert page.get_by_text("0 of 4 examples").count() == 1
    assert page.locator(".om-board").count() == 0


def test_examples_are_filtered_by_whether_their_tree_is_the_true_one(show: Any) -> None:
    traces = [read_tree(tree, list("abc")) for tree in (((0, 1), 2), (0, (1, 2)), (0, 1, 2))]
    for number, trace in enumerate(traces):
        trace["caption"] = f"number {number}"
        add_true_tree(trace, ((0, 1), 2))
    page = show(traces)
    shown = page.locator(".om-entry b")
    choose(page, "Induced tree", "the true one")
    assert shown.all_inner_texts() == ["number 0"]
    choose(page, "Induced tree", "another")
    assert shown.all_inner_texts() == ["number 1", "number 2"]
    page = show([traces[0] | {"example": 0}, traces[1] | {"example": 0}, traces[0] | {"example": 1}])
    choose(page, "Induced tree", "the true one")  # of every trace of an example
    assert page.get_by_text("1 of 2 examples").count() == 1
    assert page.locator(".om-board").count() == 1


def test_only_orders_that_change_something_are_offered(show: Any) -> None:
    page = show([read_distances(torch.rand(1, size), ["word"] * size) for size in (3, 5)])
    assert page.get_by_label("Order").locator("option").all_inner_texts() == ["as given", "length"]
    page = show([example(size, true=1) for size in (3, 5)])
    assert "least certain" not in page.get_by_label("Order").inner_text()
    flat, deep = ((0, 1), (2, 3)), (0, (1, (2, 3)))
    traces = [read_tree(tree, list("abcd")) for tree in (deep, flat, deep)]
    for trace, probability, caption in zip(traces, (0.8, 0.6, 0.9), "abc", strict=True):
        trace["caption"] = caption
        trace["answer"] = Answer(classes=["no", "yes"], probabilities=[1 - probability, probability], true=1)
    page = show(traces)
    for order, captions in (("depth", "bac"), ("least certain", "bac"), ("as given", "abc")):
        choose(page, "Order", order)
        assert page.locator(".om-entry b").all_inner_texts() == list(captions)
    assert page.get_by_label("Order").locator("option").count() == 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_names_and_contrast_pass_axe(show: Any, accessibility: Any, scheme: str) -> None:
    traces = [example(8, caption="one", true=1), example(9, 3, caption="two", true=0)]
    add_values(traces[0]["nodes"], {(0, 1): -0.5, (0, 7): 1.0}, range(8))
    traces.append(read_distances(torch.rand(2, 5), list("abcde")))
    page = show(traces, color_scheme=scheme)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(21, 24, 27)")
    for i in range(3):
        page.locator(".om-examples label").nth(i).click()
        page.get_by_role("button", name="Back").click()
        page.get_by_role("button", name="Back").click()
        assert accessibility(page) == []


@pytest.mark.slow
def test_long_sequences_and_long_lists_do_not_stutter(show: Any) -> None:
    def opened() -> float:
        return float(page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"))

    rng = random.Random(0)
    page = show([example(rng.randint(3, 60), seed, seed % 2, example=seed) for seed in range(200)])
    print(f"\n200 examples: ready after {opened():.0f} ms")
    assert opened() < 2000
    page = show([read_attention(attention_of(1000, 20), [str(i % 10) for i in range(1000)])])
    print(f"1,000 tokens: ready after {opened():.0f} ms")
    assert opened() < 2000
    page.keyboard.press("Home")
    # Time that the page's thread computes for, whatever else the machine does.
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def computed() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(float(metric["value"]) for metric in metrics if metric["name"] == "TaskDuration")

    before = computed()
    frames = page.evaluate(
        """() => new Promise(resolve => {
          const times = [];
          const next = now => {
            times.push(now);
            document.querySelector("[title=Forward]").click();
            if (times.length < 302) return requestAnimationFrame(next);
            resolve(times.slice(1).map((time, i) => time - times[i]).sort((a, b) => a - b));
          };
          requestAnimationFrame(next);
        })"""
    )
    a_step = 1000 * (computed() - before) / 301
    print(f"a step at every frame: {a_step:.1f} ms of computing; median frame {frames[150]:.1f} ms")
    assert a_step < 1000 / 30


def test_the_pages_of_the_documentation_open(open_page: OpenPage, tmp_path: Path) -> None:
    pages: Callable[[], dict[str, str]] = runpy.run_path(str(DOCS / "viewer_pages.py"))["pages"]
    for name, text in pages().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        page = open_page((tmp_path / name).as_uri(), offline=True)
        assert page.locator(".om-node[data-state=new]").count() > 0
