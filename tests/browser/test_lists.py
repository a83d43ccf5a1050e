"""Pages of several examples, and of examples with several traces."""

from __future__ import annotations

from typing import Any

import torch

from ordered_memory.trace import Answer, add_true_tree, read_distances, read_tree
from tests.browser.boards import choose, drawn, example, step


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


def test_the_tree_that_counts_is_shown_first_and_filters_the_list(show: Any) -> None:
    d = torch.tensor([[9.0, 1.0, 5.0], [9.0, 5.0, 1.0], [9.0, 1.0, 5.0]])  # "unbiased": left, right, left
    traces = []
    for number, layer in enumerate(("layer 1", "layer 2", "layer 3")):
        trace = read_distances(d, list("abc"))
        trace["caption"] = f"number {number}"
        trace["default_tree"] = {"layer": layer, "decoding": "unbiased"}
        add_true_tree(trace, ((0, 1), 2))
        traces.append(trace)
    page = show(traces)
    shown = page.locator(".om-entry b")
    for number, tree in enumerate(({(0, 1), (0, 2)}, {(1, 2), (0, 2)}, {(0, 1), (0, 2)})):
        page.locator(".om-examples label").nth(number).click()
        assert page.get_by_role("combobox", name="Layer", exact=True).input_value() == f"layer {number + 1}"
        assert drawn(page) == tree
    choose(page, "Induced tree", "another")
    assert shown.all_inner_texts() == ["number 1"]
    choose(page, "Induced tree", "the true one")
    assert shown.all_inner_texts() == ["number 0", "number 2"]
    choose(page, "Layer", "layer 2")  # the choice of the reader is kept
    page.locator(".om-examples label").nth(1).click()
    assert page.get_by_role("combobox", name="Layer", exact=True).input_value() == "layer 2"


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
