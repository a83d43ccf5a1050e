"""A report of a run, as a reader opens it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.reporting.curves import Curve
from tasks.reporting.report import Report, Table, write_report
from tests.tasks.reporting.pages import embedded

OpenPage = Callable[..., Any]
RUNS = ("listops", "logic", "sst", "language_model")


@pytest.fixture
def open_report(open_page: OpenPage, small_runs: dict[str, str]) -> OpenPage:
    """Open the report of a tiny run from the disk, without a network: `open_report("listops", width=400)`."""

    def open_report(task: str, **options: Any) -> Any:
        path = Path(small_runs[f"{task}_run"]) / "report.html"
        return open_page(path.as_uri(), offline=True, **options)

    return open_report


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("task", RUNS)
def test_a_report_is_accessible(
    task: str, scheme: str, open_report: OpenPage, accessibility: Callable[[Any], list[Any]]
) -> None:
    assert accessibility(open_report(task, color_scheme=scheme)) == []


@pytest.mark.parametrize("task", RUNS)
def test_nothing_sticks_out_of_a_narrow_screen(task: str, open_report: OpenPage) -> None:
    page = open_report(task, width=400)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_the_examples_are_listed_and_can_be_chosen(open_report: OpenPage, small_runs: dict[str, str]) -> None:
    traces = embedded((Path(small_runs["listops_run"]) / "report.html").read_text())
    page = open_report("listops")
    entries = page.locator(".om-examples label")
    assert entries.count() == len(traces)
    entries.last.click()
    assert page.locator(".om-token").all_inner_texts()[: len(traces[-1]["tokens"])] == traces[-1]["tokens"]


def test_pointer_and_keys_tell_the_values_of_a_plot(open_report: OpenPage) -> None:
    page = open_report("listops")
    figure = page.locator(".curve").last
    plot, readout = figure.locator(".plot"), figure.locator(".readout")
    figure.locator("summary").click()
    rows = [text.split("\t") for text in figure.locator("tbody tr").all_inner_texts()]

    def told(place: int) -> str:
        depth, accuracy, count = rows[place]
        return f"depth {depth}: test {accuracy}, count {count}"

    assert readout.inner_text() == told(-1)
    plot.hover(position={"x": 40, "y": 100})
    hovered = readout.inner_text()
    assert hovered == told(0)
    plot.focus()
    for key, place in (
        ("Home", 0),
        ("ArrowLeft", 0),
        ("ArrowRight", 1),
        ("End", -1),
        ("ArrowDown", -2),
        ("ArrowUp", -1),
    ):
        page.keyboard.press(key)
        assert readout.inner_text() == told(place)
        assert plot.get_attribute("aria-valuetext") == told(place)
    figure.locator("summary").focus()
    assert readout.inner_text() == told(-1)


def test_a_place_that_was_tapped_stays_and_shortcuts_are_the_browsers(open_report: OpenPage) -> None:
    page = open_report("listops", has_touch=True)
    figure = page.locator(".curve").last
    plot, readout = figure.locator(".plot"), figure.locator(".readout")
    at_rest = readout.inner_text()
    plot.tap(position={"x": 40, "y": 100})
    assert readout.inner_text() != at_rest
    plot.focus()
    told = readout.inner_text()
    prevented = plot.evaluate(
        """plot => ["altKey", "ctrlKey", "metaKey"].map(key => !plot.dispatchEvent(
            new KeyboardEvent("keydown", { key: "ArrowRight", [key]: true, cancelable: true })))"""
    )
    assert prevented == [False, False, False]
    assert readout.inner_text() == told


def test_keys_scroll_a_page_whose_examples_are_out_of_view(open_report: OpenPage) -> None:
    page = open_report("listops", height=300)
    assert page.evaluate("document.querySelector('.om-board').getBoundingClientRect().top > innerHeight")
    count = page.locator(".om-count").first.inner_text()
    page.keyboard.press("End")
    page.wait_for_function("scrollY > 0")
    assert page.locator(".om-count").first.inner_text() == count


def test_the_command_is_shown_as_it_was_typed(open_page: OpenPage, tmp_path: Path) -> None:
    command = "python -m tasks.listops --run-dir 'two  spaces\nand  <b>lines'"
    write_report(tmp_path / "report.html", Report("t", "a", "s", facts={"Command": command}))
    page = open_page((tmp_path / "report.html").as_uri(), offline=True)
    assert page.locator("dd").inner_text() == command


def test_long_names_of_runs_fit_on_a_narrow_screen(open_page: OpenPage, tmp_path: Path) -> None:
    name = "directory/" * 12
    report = Report(
        name,
        "about",
        name,
        [Curve("loss", "", {name: [(1, 0.5)]})],
        tables=[Table(name, ["model", "F1"], [[name, 0.5]])],
    )
    report.facts = {name: name}
    write_report(tmp_path / "report.html", report)
    page = open_page((tmp_path / "report.html").as_uri(), offline=True, width=400)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    for shown in (page.locator("svg > text").last, page.locator("td:visible")):
        box = shown.bounding_box()
        assert box["x"] + box["width"] <= 400


def test_a_wide_table_fits_on_paper(open_page: OpenPage, tmp_path: Path) -> None:
    columns = ["model", "all", *(f"{10 * i + 1}–{10 * i + 10}" for i in range(10)), "F1, corpus level"]
    rows = [[f"ordered-memory --seed {i}", *["0.1234 ± 0.0123"] * 12] for i in range(3)]
    write_report(tmp_path / "report.html", Report("t", "a", "s", tables=[Table("Accuracy", columns, rows)]))
    page = open_page((tmp_path / "report.html").as_uri(), offline=True, width=700)  # of A4
    page.emulate_media(media="print")
    box = page.locator("table").bounding_box()
    assert box["x"] + box["width"] <= 700


def test_no_line_ends_within_a_value_of_a_plot(open_page: OpenPage, tmp_path: Path) -> None:
    names = [f"ordered-memory --seed {i}" for i in range(5)]
    curve = Curve("accuracy", "fraction", {name: [(1, 0.5)] for name in names})
    write_report(tmp_path / "report.html", Report("t", "a", "s", [curve]))
    page = open_page((tmp_path / "report.html").as_uri(), offline=True, width=400)
    readout = page.locator(".readout")
    assert readout.inner_text() == f"epoch 1: {', '.join(f'{name} 0.5000' for name in names)}"
    heights = [value.bounding_box()["height"] for value in readout.locator("span").all()]
    assert len(heights) == 5
    assert max(heights) < 30
