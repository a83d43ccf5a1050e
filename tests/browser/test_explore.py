"""The page of `python -m tasks.explore` in a browser: what is typed is read, and nothing else happens."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tasks.explore.models import load_models
from tasks.explore.server import make_app, make_server
from tasks.listops.expressions import parse

EXPRESSION = "[MAX 2 9 [MIN 4 7 ] 0 ]"


@pytest.fixture(scope="module")
def own(small_runs: dict[str, str]) -> str:
    """A checkpoint that knows little."""
    return small_runs["listops"]


@pytest.fixture(scope="module")
def address(own: str, small_runs: dict[str, str]) -> Iterator[str]:
    server = make_server(make_app(load_models([Path(own), Path(small_runs["language_model"])])))
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    server.should_exit = True
    thread.join()


@pytest.fixture
def explore(open_page: Any, address: str) -> Any:
    """Open the page, with a state or without."""

    def explore(fragment: str = "", **options: Any) -> Any:
        page = open_page(f"{address}{fragment}", **options)
        page.set_default_timeout(5000)
        settle(page)
        return page

    return explore


def settle(page: Any) -> None:
    """Wait for an answer or an error."""
    page.locator("#results > section, #error:not(:empty)").first.wait_for()
    page.locator("#results:not([aria-busy])").wait_for(state="attached")


def press(page: Any, name: str) -> None:
    """Press a button that types something, and wait until that is read."""
    before = page.url
    page.get_by_role("button", name=name).click()
    page.wait_for_url(lambda url: url != before)
    settle(page)


def typed(page: Any) -> list[str]:
    return [box.input_value() for box in page.locator("textarea").all()]


def shown(page: Any) -> str:
    """The tokens of the first board."""
    return " ".join(page.locator(".om-tokens").first.locator(".om-token").all_text_contents())


def test_an_expression_is_answered_when_enter_is_pressed(explore: Any) -> None:
    page = explore()
    box = page.get_by_label("Expression")
    assert box.input_value() == shown(page) == EXPRESSION
    box.fill("[SM 7 8]")
    box.press("Enter")
    page.locator(".om-verdict", has_text="Answer 5").wait_for()
    assert shown(page) == "[SM 7 8 ]"
    assert page.locator(".om-true").first.inner_text() == "true"
    assert box.input_value() == "[SM 7 8]"


def test_an_error_is_shown_beside_the_box_and_goes_away(explore: Any) -> None:
    page = explore()
    box = page.get_by_label("Expression")
    box.fill("[MAX 2 q ]")
    page.get_by_role("button", name="Read").click()
    error = page.locator("#error")
    error.get_by_text("unknown token 'q' at position 2").wait_for()
    settle(page)
    assert box.get_attribute("aria-invalid") == "true"
    assert page.locator("#results > section").count() == 0
    box.fill("3")
    box.press("Enter")
    page.locator(".om-verdict", has_text="Answer 3").wait_for()
    assert error.inner_text() == ""
    assert box.get_attribute("aria-invalid") == "false"


def test_the_address_is_all_there_is_to_share(explore: Any) -> None:
    page = explore()
    page.get_by_label("Model").select_option("Logic")
    page.locator(".om-caption", has_text="right formula").wait_for()
    page.get_by_role("textbox", name="Right formula").fill("( a ( or b ) )")
    page.get_by_role("spinbutton", name="Slots").fill("9")
    before = page.url
    page.get_by_role("button", name="Read").click()
    page.wait_for_url(lambda url: url != before)
    settle(page)
    state = parse_qs(urlsplit(page.url).fragment)
    assert state == {
        "model": ["Logic"],
        "slots": ["9"],
        "text": ["( a ( and b ) )", "( a ( or b ) )"],
    }
    other = explore(f"#{urlsplit(page.url).fragment}")
    assert other.get_by_label("Model").input_value() == "Logic"
    assert typed(other) == state["text"]
    assert other.get_by_role("spinbutton", name="Slots").input_value() == "9"
    assert other.locator(".om-gutter span").last.inner_text() == "9"
    page.go_back()
    page.locator(".om-gutter span", has_text="24").first.wait_for()
    assert page.get_by_role("spinbutton", name="Slots").input_value() == ""


@pytest.mark.parametrize("model", ["ListOps", "Logic", "SST-2", "language_model"])
def test_a_random_example_is_read_and_made_longer(explore: Any, small_runs: Any, model: str) -> None:
    name = small_runs.get(model, model)
    page = explore(f"#model={name}")
    press(page, "Random example")
    drawn = typed(page)
    if model == "ListOps":
        assert 20 <= len(drawn[0].split()) <= 22
        assert shown(page) == drawn[0]
    press(page, "Make it longer")
    for before, after in zip(drawn, typed(page), strict=True):
        assert len(after) > len(before)
    assert page.locator("#error").inner_text() == ""


def test_the_length_of_a_random_example_is_chosen(explore: Any) -> None:
    page = explore("#model=ListOps")
    before = page.url
    page.get_by_label("of about").fill("100")
    page.get_by_label("of about").press("Enter")
    page.wait_for_url(lambda url: url != before)
    settle(page)
    tokens = typed(page)[0].split()
    parse(tokens)
    assert 100 <= len(tokens) <= 110
    page.get_by_label("of about").fill("5000")
    page.get_by_role("button", name="Random example").click()
    page.locator("#error").get_by_text("the length must lie in 1..1000, got 5000").wait_for()
    assert typed(page)[0].split() == tokens


def test_going_back_to_the_start_shows_what_it_showed(explore: Any) -> None:
    page = explore()
    page.get_by_label("Expression").fill("[SM 7 8 ]")
    page.get_by_label("Expression").press("Enter")
    page.locator(".om-verdict", has_text="Answer 5").wait_for()
    page.go_back()
    page.locator(".om-verdict", has_text="Answer 9").wait_for()
    assert typed(page) == [EXPRESSION]


def test_numbers_and_texts_that_cannot_be_are_told_in_words(explore: Any) -> None:
    page = explore()
    error = page.locator("#error")
    page.get_by_role("spinbutton", name="Slots").fill("1.5")
    page.get_by_role("button", name="Read").click()
    error.get_by_text("the number of slots must be a whole number, got 1.5").wait_for()
    page.get_by_label("of about").fill("2.5")
    page.get_by_role("button", name="Random example").click()
    error.get_by_text("the length must be a whole number, got 2.5").wait_for()
    page.get_by_role("spinbutton", name="Slots").fill("")
    page.get_by_label("Expression").fill("漢" * 30_000)
    page.get_by_role("button", name="Read").click()
    error.get_by_text("this text is too long to be read").wait_for()
    page.get_by_label("Expression").fill("3")
    page.get_by_role("button", name="Read").click()
    page.locator(".om-verdict", has_text="Answer 3").wait_for()


def test_an_error_marks_what_it_is_about(explore: Any) -> None:
    page = explore()
    box, slots = page.get_by_label("Expression"), page.get_by_role("spinbutton", name="Slots")
    for number, told in (("500", "must lie in 1..100, got 500"), ("1e", "must be a whole number")):
        slots.fill("")
        slots.press_sequentially(number)
        slots.press("Enter")
        page.locator("#error").get_by_text(f"the number of slots {told}").wait_for()
        assert [one.get_attribute("aria-invalid") for one in (box, slots)] == ["false", "true"]
    slots.fill("")
    page.evaluate("() => { window.fetch = () => Promise.reject(new TypeError('no network')); }")
    box.press("Enter")
    page.locator("#error").get_by_text("the server does not answer").wait_for()
    assert [one.get_attribute("aria-invalid") for one in (box, slots)] == ["false", "false"]


def test_what_is_too_long_can_be_deleted(explore: Any) -> None:
    page = explore(f"#model=ListOps&text={'1' * 80_000}")
    page.locator("#error").get_by_text("this text is too long to be read").wait_for()
    box = page.get_by_label("Expression")
    box.press("End")
    box.press("Backspace")
    assert len(typed(page)[0]) == 79_999
    box.press("Control+A")
    box.press_sequentially("3")
    assert typed(page) == ["3"]


def test_every_reading_answers_to_keys(explore: Any) -> None:
    page = explore()
    for digits in ("7 8", "1 2 3", "4 5", "6 7 8"):
        page.get_by_label("Expression").fill(f"[SM {digits} ]")
        page.get_by_label("Expression").press("Enter")
        page.locator(".om-token", has_text=digits[-1]).wait_for()
        page.locator("h1").click()
        page.keyboard.press("Home")
        assert page.locator(".om-count").inner_text().startswith("1 /")


def test_what_is_shown_is_explained(explore: Any, small_runs: dict[str, str]) -> None:
    page = explore()
    about = page.locator("#about")
    assert about.inner_text().startswith("The model keeps what is not finished on a stack of memory slots")
    page.get_by_label("Model").select_option(small_runs["language_model"])
    about.get_by_text("The distance of a word is large").wait_for()
    page.get_by_label("Sentence").fill("")
    page.get_by_label("Sentence").press("Enter")
    page.locator("#error:not(:empty)").wait_for()
    assert not about.is_visible()


def luminance(color: str) -> float:
    """The relative luminance of "rgb(…)" or "color(srgb …)", as the WCAG define it."""
    numbers = [float(number) for number in re.findall(r"[\d.]+", color)][:3]
    if color.startswith("rgb"):
        numbers = [number / 255 for number in numbers]
    linear = [n / 12.92 if n <= 0.04045 else ((n + 0.055) / 1.055) ** 2.4 for n in numbers]
    return sum(weight * n for weight, n in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_boxes_and_the_number_of_slots_are_seen(explore: Any, scheme: str) -> None:
    """Axe looks neither at borders nor at placeholders."""
    page = explore(color_scheme=scheme)
    found = page.evaluate(
        """() => {
          const slots = document.querySelector("#slots");
          const { backgroundColor, borderTopColor } = getComputedStyle(slots);
          return [backgroundColor, borderTopColor, getComputedStyle(slots, "::placeholder").color];
        }"""
    )
    background, border, number = map(luminance, found)
    for color, least in ((border, 3.0), (number, 4.5)):
        low, high = sorted((color, background))
        assert (high + 0.05) / (low + 0.05) >= least


def test_all_of_a_long_text_is_on_paper(explore: Any) -> None:
    page = explore(f"#model=ListOps&text=[SM {'1 ' * 900}]")
    page.emulate_media(media="print")
    assert page.get_by_label("Expression").evaluate("box => box.scrollHeight - box.clientHeight") <= 0
    assert page.locator("form button:visible").count() == 0


def test_what_a_model_answers_is_told_to_those_who_do_not_see_it(explore: Any) -> None:
    page = explore()
    assert page.locator("#verdicts").inner_text() == "ListOps: answer 9"
    page.get_by_label("Expression").fill("q")
    page.get_by_label("Expression").press("Enter")
    page.locator("#error").get_by_text("unknown token").wait_for()
    assert page.locator("#verdicts").inner_text() == ""


def test_a_text_that_no_model_reads_does_not_get_into_the_box(explore: Any) -> None:
    page = explore()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate("navigator.clipboard.writeText('1 '.repeat(5_000_000))")
    page.get_by_label("Expression").press("Control+V")
    page.locator("#error").get_by_text("this text is too long to be read").wait_for()
    assert typed(page) == [EXPRESSION]
    page.get_by_label("Expression").press_sequentially(" ")
    page.get_by_label("Expression").press("Enter")
    page.locator("#error").wait_for(state="hidden")


def test_two_models_are_compared(explore: Any, own: str) -> None:
    page = explore("#model=ListOps", width=1280)
    listed = page.get_by_label("Compare with").locator("option")
    assert listed.evaluate_all("all => all.map((one) => one.value)") == ["", own]
    nothing, name = listed.all_text_contents()
    assert nothing == "nothing"
    directory = own.removesuffix("/best.safetensors")
    assert name == (own if len(own) <= 26 else directory if len(directory) <= 26 else f"…{directory[-25:]}")
    page.get_by_label("Compare with").select_option(own)
    page.locator("#results > section").nth(1).wait_for()
    settle(page)
    assert page.locator("#results > section > h2").all_text_contents() == ["ListOps", own]
    places = [section.bounding_box() for section in page.locator("#results > section").all()]
    assert places[0]["y"] == places[1]["y"]
    page.set_viewport_size({"width": 400, "height": 800})
    places = [section.bounding_box() for section in page.locator("#results > section").all()]
    assert places[0]["x"] == places[1]["x"]
    page.get_by_label("Model").select_option("Logic")
    page.locator(".om-caption", has_text="right formula").wait_for()
    assert not page.get_by_label("Compare with").is_visible()


def test_one_of_two_models_may_fail(explore: Any, own: str, address: str) -> None:
    def answer(route: Any) -> None:
        refused = route.request.post_data_json["model"] == own
        route.fulfill(json={"error": "it has diverged"}) if refused else route.continue_()

    page = explore(f"#model=ListOps&with={own}")
    page.route(f"{address}read", answer)
    page.get_by_label("Expression").press("Enter")
    page.get_by_text("it has diverged", exact=True).wait_for()
    sections = page.locator("#results > section").all()
    assert sections[0].locator(".om-verdict").inner_text().startswith("Answer 9")
    assert sections[1].inner_text().split("\n")[-1] == "it has diverged"
    assert page.locator("#error").inner_text() == ""


def test_what_is_typed_is_no_markup(explore: Any) -> None:
    page = explore("#model=SST-2")
    text = "<script>alert(1)</script> <img src=x onerror=alert(1)>"
    page.get_by_label("Sentence").fill(text)
    page.get_by_label("Sentence").press("Enter")
    page.locator(".om-token", has_text="/script").wait_for()
    assert "< script > alert ( 1 ) < /script >" in shown(page)
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    page.get_by_label("Model").select_option("ListOps")
    page.get_by_label("Expression").fill(text)
    page.get_by_label("Expression").press("Enter")
    page.locator("#error").get_by_text("unknown token '<script>alert' at position 0").wait_for()


def test_a_model_that_the_page_was_not_started_with(explore: Any) -> None:
    page = explore("#model=%3Cb%3Eother")
    told = page.locator("#error").inner_text()
    assert told == "this page has no model <b>other: it was started with other checkpoints"
    page.get_by_role("button", name="Read").click()
    page.locator(".om-verdict", has_text="Answer 9").wait_for()
    assert page.locator("#error").inner_text() == ""
    page = explore("#model=ListOps&with=other")
    assert "no model other" in page.locator("#error").inner_text()


def test_an_answer_that_comes_late_is_not_shown(explore: Any, address: str) -> None:
    page, waiting = explore(), []
    page.route(f"{address}read", lambda route: waiting.append(route))
    page.get_by_label("Expression").press("Enter")
    page.wait_for_function("document.querySelector('#results[aria-busy]')")
    page.evaluate("location.hash = '#model=nosuch'")
    page.locator("#error").get_by_text("no model nosuch").wait_for()
    page.locator("#results:not([aria-busy])").wait_for(state="attached")
    for route in waiting:
        with contextlib.suppress(Exception):
            route.continue_()
    page.unroute(f"{address}read")
    page.evaluate(  # texts are read one after the other: when this one has been, those before have been, too
        """() => fetch("read", {
            method: "POST",
            headers: { "Content-Type": "application/json" },
            body: JSON.stringify({ model: "ListOps", texts: ["3"] }),
        }).then(answer => answer.json())"""
    )
    assert page.locator("#busy").inner_text() == ""
    assert page.locator("#results > section").count() == 0


def test_a_request_that_is_superseded_leaves_the_error_of_the_next(
    explore: Any, address: str, own: str
) -> None:
    page, waiting = explore(), []
    page.route(f"{address}read", lambda route: waiting.append(route))
    page.get_by_label("Expression").press("Enter")
    page.wait_for_function("document.querySelector('#results[aria-busy]')")
    page.get_by_role("spinbutton", name="Slots").fill("1e3")
    page.get_by_role("button", name="Read").click()
    for route in waiting:
        with contextlib.suppress(Exception):
            route.continue_()
    page.locator("#error").get_by_text("slots").wait_for()
    page.wait_for_function("!document.querySelector('#results[aria-busy]')")
    assert "slots" in page.locator("#error").inner_text()
    assert page.locator(".refusal").count() == 0


def test_what_was_typed_for_a_task_is_kept(explore: Any) -> None:
    page = explore()
    page.get_by_label("Expression").fill("[SM 7 8 ]")
    for model, label in (("SST-2", "Sentence"), ("ListOps", "Expression")):
        page.get_by_label("Model").select_option(model)
        page.get_by_label(label).wait_for()
    assert typed(page) == ["[SM 7 8 ]"]


@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_is_wider_than_the_screen(explore: Any, own: str, width: int) -> None:
    for fragment in (f"#model=ListOps&with={own}", "#model=Logic", f"#model=ListOps&text=[MAX {'1 ' * 300}]"):
        page = explore(fragment, width=width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_names_and_contrast_pass_axe(explore: Any, accessibility: Any, own: str, scheme: str) -> None:
    for fragment in (f"#model=ListOps&with={own}", "#model=ListOps&text=q", "#model=SST-5"):
        page = explore(fragment, color_scheme=scheme)
        assert accessibility(page) == []
