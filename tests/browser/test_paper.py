"""The viewer on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ordered_memory.trace import read_distances
from tests.browser.boards import choose, example


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


def test_paper_tells_what_was_chosen(show: Any) -> None:
    page = show([example(5, example=0), read_distances(torch.rand(2, 5), list("abcde")) | {"example": 0}])
    choose(page, "Show", "→π: joined with the token")
    choose(page, "Tree", "prpn")
    page.emulate_media(media="print")
    for name in ("Show", "Layer", "Tree"):
        assert page.get_by_role("combobox", name=name, exact=True).is_visible()
    assert page.get_by_role("combobox", name="Speed").count() == 0
