"""The viewer: what it shows at each step."""

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
from tests.browser.boards import attention_of, choose, drawn, example, step
from tests.browser.conftest import OpenPage

DOCS = Path(__file__).parents[2] / "docs"
CODE = "<script>alert(1)</script>"


def held(page: Any) -> list[tuple[int, str]]:
    """Slot and words of what the stack holds, from the top."""
    found = page.evaluate(
        """() => [...document.querySelectorAll(".om-bar:not([data-state=erased])")]
        .map(bar => [+bar.dataset.slot, bar.textContent]).sort((a, b) => a[0] - b[0])"""
    )
    return [(slot, words) for slot, words in found]


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


@pytest.mark.parametrize("decoding", ["prpn", "cky"])
def test_what_leaves_no_choice_is_not_asked(show: Any, decoding: Any) -> None:
    d = torch.tensor([[3.0, 1.0, 2.0]])
    one, two = (
        read_distances(d, list("abc"), decodings=[decoding]),
        read_distances(d.repeat(2, 1), list("abc")),
    )
    page = show([{**one, "example": 0}, {**two, "example": 1}])
    choices = [page.get_by_role("combobox", name=name, exact=True) for name in ("Layer", "Tree")]
    assert [found.count() for found in choices] == [0, 0]
    assert drawn(page) == {(0, 2), (1, 2) if decoding == "prpn" else (0, 1)}
    page.locator(".om-examples label").nth(1).click()
    assert [found.count() for found in choices] == [1, 1]


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


def test_each_bar_has_its_number(show: Any) -> None:
    d = torch.tensor([[0.0, -3.2, 9.996, 99.96, 12345.6, 1e9]])
    page = show([read_distances(d, list("abcdef"))])
    numbers = page.locator(".om-number")
    assert numbers.all_text_contents() == ["0.00", "-3.20", "10.0", "100", "1e+4", "1e+9"]
    widths = [number.bounding_box()["width"] for number in numbers.all()]
    assert max(widths) < 34  # the narrowest column


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
