"""Keys, pointer and finger, and the notes that they show."""

from __future__ import annotations

from typing import Any

import torch

from ordered_memory.trace import empty_trace, read_distances, read_tree
from tests.browser.boards import choose, example, step


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


def test_keys_go_to_the_board_that_is_there(show: Any) -> None:
    page = show([empty_trace(["a"]) | {"example": 0}, example(6, example=0), example(4, example=0)])
    page.keyboard.press("Home")
    assert page.locator(".om-count").all_inner_texts() == ["1 / 7", "5 / 5"]
    page.locator(".om-scroller").nth(2).focus()
    page.evaluate("document.activeElement.blur(); document.querySelectorAll('.om-board')[2].remove()")
    page.keyboard.press("ArrowRight")
    assert page.locator(".om-count").all_inner_texts() == ["2 / 7"]
