"""Reports: self-contained, small, the same every time; the best is marked, and nothing in them is markup."""

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from ordered_memory.baseline_trees import left_branching
from ordered_memory.draw import attention_figure
from ordered_memory.trace import add_true_tree, read_attention
from tasks.reporting.curves import COLORS, LONGEST_NAME, MAX_MARKS, Curve, curve_svg
from tasks.reporting.drawing import figure_png
from tasks.reporting.examples import LENGTHS
from tasks.reporting.rendering import cell
from tasks.reporting.report import (
    Report,
    Table,
    best_cells,
    best_epoch,
    learning_curves,
    numbers_table,
    render,
    write_report,
)
from tasks.runs.errors import UserError
from tasks.runs.run_directory import best_row
from tests.tasks.reporting.pages import Page, embedded

WORDS = ["[MAX", "2", "9", "]"]


def trace(tokens=WORDS, slots=3):
    attention = torch.eye(slots)[torch.arange(len(tokens)) % slots]
    attention[0] = 0
    found = read_attention(attention, tokens)
    add_true_tree(found, left_branching(len(tokens)))
    return found


def report(**changes):
    fields = {
        "title": "A <run> & more",
        "about": "what it is about",
        "subtitle": "one line",
        "config": {"slot_size": 8},
        "facts": {"command": "python -m <b>"},
        "curves": [
            Curve(
                "loss", "nats", {"train": [(1, 0.5), (2, 0.25)], "validation": [(1, 0.75), (2, 0.5)]}, best=2
            )
        ],
        "tables": [Table("Accuracy", ["length", "accuracy"], [["1–20", 0.98765]], "a note")],
        "traces": [trace()],
    }
    return Report(**{**fields, **changes})


def test_saving_twice_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.png").write_bytes(figure_png(attention_figure(torch.eye(4, 3), WORDS)))
        write_report(tmp_path / f"{name}.html", report())
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_names_of_files_need_not_be_utf_8(tmp_path):
    write_report(tmp_path / "a.html", report(config={"data_dir": "data\udcff"}))
    assert "data\\udcff" in (tmp_path / "a.html").read_text()


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(source, target):
        raise OSError("full")

    monkeypatch.setattr("tasks.runs.files.os.replace", fail)
    with pytest.raises(OSError, match="full"):
        write_report(path, report())
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_nothing_in_a_report_is_markup_or_comes_from_elsewhere():
    wild = "</script><script>alert(1)</script>"
    tokens = [wild, "&", '"', "\u2028"]
    page = Page(
        render(
            report(
                title=wild,
                about=wild,
                subtitle=wild,
                samples=[wild],
                facts={wild: wild},
                config={wild: wild},
                curves=[Curve(wild, wild, {wild: [(1, 0.5)]}, wild)],
                tables=[Table(wild, [wild], [[wild]], wild)],
                traces=[trace(tokens)],
            )
        )
    )
    assert page.tags.count("script") == 2  # the data of the examples, and the program
    assert page.external == []
    assert embedded(page.text)[0]["tokens"] == tokens
    assert "alert(1)</script>" not in page.text


def test_the_best_epoch_is_marked_in_the_plot_and_in_its_numbers():
    rows = [
        {
            "epoch": epoch,
            "train_loss": 1 / epoch,
            "validation_loss": loss,
            "train_accuracy": 0.5,
            "validation_accuracy": 1 - loss,
            "fraction": 1.0,
            "best": epoch <= 2,
        }
        for epoch, loss in enumerate([0.75, 0.25, 0.5], start=1)
    ]
    without_accuracy = [
        {name: value for name, value in row.items() if "accuracy" not in name} for row in rows
    ]
    by_accuracy, by_loss = learning_curves(rows), learning_curves(without_accuracy)
    assert [curve.best for curve in by_accuracy + by_loss] == [2, 2, 2]
    page = render(report(curves=by_accuracy))
    assert page.count("★ best") == 2
    assert re.findall(r'<tr><th scope="row" class=best>(\w+)</th>', page) == ["2", "2"]


def test_an_epoch_that_a_time_limit_cut_off_is_neither_the_one_before_nor_one_more():
    rows = [
        {"epoch": 1, "fraction": 1.0, "best": True, "train_loss": 0.75, "validation_loss": 0.5},
        {"epoch": 2, "fraction": 0.25, "best": True, "train_loss": 0.5, "validation_loss": 0.375},
        {"epoch": 2, "fraction": 1.0, "best": False, "train_loss": 0.25, "validation_loss": 0.625},
    ]
    [curve] = learning_curves(rows)
    numbers = numbers_table(curve)
    assert numbers.rows == [[1, 0.75, 0.5], ["1.25", 0.5, 0.375], [2, 0.25, 0.625]]
    assert numbers.best == [(1, 0)]
    rows = [row | {"validation_accuracy": 0.5} for row in rows]
    assert best_epoch(rows) == "with the weights of epoch 2, the best of 2 on validation data (0.5000)"


def test_the_best_epoch_is_told_with_its_score_which_is_1_only_if_it_is():
    row = {"epoch": 1, "best": True}
    rows = [row | {"validation_loss": 0.1, "validation_accuracy": 0.99996}]
    assert "epoch 1, the best of 1 on validation data (0.99996)" in best_epoch(rows)
    rows = [row | {"validation_loss": 700.0, "validation_perplexity": math.exp(700.0)}]
    assert "(1.01423e+304)" in best_epoch(rows)


def test_the_best_epoch_is_the_one_that_the_trainer_marked():
    rows = [
        {"epoch": epoch, "validation_loss": loss, "validation_accuracy": 0.5, "best": best}
        for epoch, loss, best in [(1, 0.3, True), (2, 0.2, True), (3, 0.25, False)]
    ]
    assert best_row(rows)["epoch"] == 2
    with pytest.raises(UserError, match="marks no epoch as the best one"):
        best_row([row | {"best": False} for row in rows])


def test_a_measure_of_a_task_of_ones_own_has_a_curve():
    rows = [{"epoch": 1, "fraction": 1.0, "train_f1": 0.5, "validation_f1": 0.4, "best": True}]
    (curve,) = learning_curves(rows)
    assert (curve.name, curve.unit) == ("f1", "")
    assert curve.series == {"train": [(1.0, 0.5)], "validation": [(1.0, 0.4)]}


def test_a_part_of_an_epoch_has_its_place_in_the_curve():
    rows = [
        {"epoch": 1, "train_loss": 3.0, "validation_loss": 3.0, "best": True, "fraction": 1.0},
        {"epoch": 2, "train_loss": 2.0, "validation_loss": 2.0, "best": True, "fraction": 0.5},
        {"epoch": 2, "train_loss": 1.0, "validation_loss": 2.5, "best": False, "fraction": 1.0},
    ]
    (curve,) = learning_curves(rows)
    assert curve.series["validation"] == [(1.0, 3.0), (1.5, 2.0), (2.0, 2.5)]
    assert curve.best == 1.5


def test_options_in_running_text_stay_in_one_piece():
    text = "tasks.listops train --max-minutes 3 --run-dir 'a--b' (--epochs) & --x<"
    table = Table("m --seed 1", [""], [["m --seed 2"]], text)
    page = render(report(subtitle=text, facts={"m --seed 3": text}, tables=[table]))
    kept = ["--max-minutes", "--run-dir", "--epochs", "--x"]
    expected = [*kept, "--seed", "--seed", *kept, "--seed", *kept]
    assert re.findall('<span class="option">(.*?)</span>', page) == expected
    assert Page(page).words.count(text) == 3
    assert ".option { white-space: nowrap; }" in page


def test_options_have_all_their_digits():
    page = render(
        report(config={"learning_rate": 0.00125, "seed": 12345, "adam_betas": [0.0, 0.999], "data_dir": None})
    )
    for name, text in (
        ("learning_rate", "0.00125"),
        ("seed", "12345"),
        ("adam_betas", "0.0 0.999"),
        ("data_dir", "–"),
    ):
        assert f'<th scope="row">{name}</th><td>{text}</td>' in page


@pytest.mark.parametrize(("value", "ticks"), [(1.0, (0.5, 1.0)), (0.0, (0.0, 0.5)), (0.5, (0.25, 0.75))])
def test_around_equal_accuracies_the_axis_has_possible_ones(value, ticks):
    svg = curve_svg(Curve("accuracy", "fraction", {"a": [(1, value), (2, value)]}))
    numbers = [float(label) for label in re.findall(r'text-anchor="end">([\d.]+)</text>', svg)]
    assert (min(numbers), max(numbers)) == pytest.approx(ticks, abs=0.1)
    assert min(numbers) >= 0
    assert max(numbers) <= 1


def test_the_first_twelve_lines_of_a_plot_differ():
    points = [(x, 0.5) for x in range(MAX_MARKS + 1)]
    svg = curve_svg(Curve("accuracy", "fraction", {str(number): points for number in range(12)}))
    styles = re.findall(
        r'<g class="line[^>]*stroke="(#\w+)"[^>]*>\s*<path[^>]*stroke-dasharray="([^"]*)"', svg
    )
    assert len(styles) == len(set(styles)) == 12


def test_a_series_without_values_changes_no_color_and_leaves_no_gap_in_the_legend():
    """The class is the color in dark mode."""
    svg = curve_svg(Curve("accuracy", "", {"a": [(1, 0.5)], "empty": [(1, math.nan)], "c": [(1, 0.5)]}))
    shown = re.findall(r'<g class="line line-(\d)"[^>]*stroke="(#\w+)"', svg)
    assert shown == [(str(number), COLORS[number]) for number in (0, 2)]
    alone = curve_svg(Curve("accuracy", "", {"a": [(1, 0.5)], "c": [(1, 0.5)]}))
    places = [re.findall(r'<text (x="[^"]*" y="[^"]*")>[ac]<', text) for text in (svg, alone)]
    assert places[0] == places[1] != []


def test_the_numbers_of_a_plot_are_a_table_with_gaps():
    curve = Curve(
        "accuracy",
        "fraction",
        {"a": [(1, 0.5), (3, 1.0)], "b": [(2, 0.25)]},
        "depth",
        counts={1: 7, 2: 8, 3: 9},
    )
    numbers = numbers_table(curve)
    assert numbers.columns == ["depth", "a", "b", "count"]
    assert numbers.rows == [[1, 0.5, None, 7], [2, None, 0.25, 8], [3, 1.0, None, 9]]
    page = render(report(curves=[], plots=[curve]))
    assert "<td>–</td><td>0.2500</td><td>8</td>" in page


@pytest.mark.parametrize(
    "values",
    [
        *([0.5], [0.5, 0.5], [0.0, 0.0], [0.1, math.nextafter(0.1, 1)], [1e9, 1e9 + 1e-7], [1e-12, 2e-12]),
        *([1.0, 1e30], [math.exp(700.0), 1.0], [-1e300, 1e300], [5e-324, 0.0]),
        *([math.nan], [math.nan, 0.5], [math.inf, 0.5, -math.inf], [1 / place for place in range(1, 501)]),
    ],
)
def test_any_values_are_drawn_inside_the_plot_with_labels_that_differ(values):
    """A place whose value is not finite is a gap."""
    curve = Curve("loss", "nats", {"train": list(enumerate(values, start=1))}, best=1)
    svg = ElementTree.fromstring(curve_svg(curve))
    labels = [text.text for text in svg.findall(".//{*}text") if text.get("text-anchor") == "end"]
    assert 1 < len(set(labels)) == len(labels)
    assert max(map(len, labels)) < 12
    drawn = [line.get("data-ys").split() for line in svg.findall(".//{*}g") if line.get("data-ys")]
    assert len(drawn) == any(map(math.isfinite, values))
    for ys in drawn:
        assert [y == "-" for y in ys] == [not math.isfinite(value) for value in values]
        assert all(
            float(svg.get("data-top")) <= float(y) <= float(svg.get("data-bottom")) for y in ys if y != "-"
        )
    assert "nan" not in "".join(path.get("d") for path in svg.findall(".//{*}path"))


def test_a_place_that_is_not_counted_and_a_plot_without_places():
    """Runs that are compared may have been tested on other numbers of operations."""
    curve = Curve("accuracy", "", {"a": [(1, 0.5)], "b": [(2, 0.5)]}, counts={1: 7})
    assert numbers_table(curve).rows == [[1, 0.5, None, 7], [2, None, 0.5, None]]
    assert Page(render(report(plots=[Curve("accuracy", "", {"a": []})], curves=[]))).plots == []


def test_points_are_where_their_values_belong():
    """Lines rise where values rise, and equal values are equally high in every line."""
    curve = Curve("accuracy", "fraction", {"a": [(1, 0.0), (2, 0.5), (4, 1.0)], "b": [(1, 0.5), (2, 1.0)]})
    page = render(report(curves=[curve]))
    xs = [float(x) for x in re.search(r'data-xs="([^"]*)"', page)[1].split()]
    a, b = (found.split() for found in re.findall(r'data-ys="([^"]*)"', page))
    assert xs[2] - xs[1] == pytest.approx(2 * (xs[1] - xs[0]), abs=0.2)
    assert b == [a[1], a[2], "-"]
    heights = [float(y) for y in a]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)
    assert heights[0] > heights[1]


@pytest.mark.parametrize("count", [MAX_MARKS, MAX_MARKS + 1])
def test_a_line_of_many_points_has_no_markers(count):
    points = [(epoch, 1 / epoch) for epoch in range(1, count + 1)]
    svg = ElementTree.fromstring(curve_svg(Curve("loss", "nats", {"train": points})))
    markers = [path for path in svg.findall(".//{*}path") if path.get("d").count("M") == count]
    assert len(markers) == (count <= MAX_MARKS)


def test_a_part_of_an_epoch_is_named_on_the_axis():
    svg = ElementTree.fromstring(curve_svg(Curve("loss", "nats", {"train": [(0.05, 0.5)]})))
    assert "0.05" in [text.text for text in svg.findall(".//{*}text")]


def test_whole_epochs_are_named_once_each_on_the_axis():
    svg = ElementTree.fromstring(curve_svg(Curve("loss", "nats", {"train": [(1, 30.0), (3, 50.0)]})))
    labels = [text.text for text in svg.findall(".//{*}text")]
    assert [label for label in labels if label in ("0", "1", "2", "3", "4")] == ["1", "2", "3"]


def test_a_line_ends_at_a_place_without_a_value():
    series = {"a": [(1, 0.5), (2, 0.5), (4, 0.5), (5, 0.5)], "b": [(1, 0.5), (2, math.nan), (3, 0.5)]}
    svg = ElementTree.fromstring(curve_svg(Curve("accuracy", "fraction", series)))
    lines = [group.find("{*}path").get("d") for group in svg.findall(".//{*}g[@data-ys]")]
    assert [[part.count(",") for part in line.split("M")[1:]] for line in lines] == [[2, 2], [1, 1]]


def test_a_point_between_two_gaps_has_a_marker_on_any_line():
    series = {
        "a": [(x, 1 / x) for x in range(1, 2 * MAX_MARKS) if x not in (3, 5)],
        "b": [(3, 0.5), (5, 0.5)],
    }
    svg = ElementTree.fromstring(curve_svg(Curve("loss", "nats", series)))
    line, marks, *_ = svg.find(".//{*}g[@data-ys]").findall("{*}path")
    alone = line.get("d").split("M")[2]
    assert "L" not in alone
    assert marks.get("d").split("m")[0] == f"M{alone}"


def test_a_long_name_in_the_legend_keeps_its_end():
    name = "a model with a very long name and a directory, seed 1, seed 2, seed 3, seed 4"
    svg = ElementTree.fromstring(curve_svg(Curve("loss", "nats", {name: [(1, 0.5)]})))
    texts = [text.text for text in svg.findall(".//{*}text")]
    assert f"…{name[1 - LONGEST_NAME :]}" in texts
    assert name not in texts


def test_the_legend_has_as_many_lines_as_it_needs():
    names = [f"model number {number}" for number in range(6)]
    svg = ElementTree.fromstring(curve_svg(Curve("loss", "", {name: [(1, 0.5)] for name in names})))
    assert len({text.get("y") for text in svg.findall(".//{*}text") if text.text in names}) == 3


def test_a_small_number_is_not_rounded_to_zero():
    assert [cell(value) for value in (0.0, 2e-5, -0.25, 1234.5)] == ["0.0000", "2e-05", "-0.2500", "1234.5"]


def test_the_best_of_a_column_is_marked_unless_it_takes_no_part():
    rows = [["model", 0.5, 3], ["random", 0.25, 3], ["oracle", 1.0, 4], ["published", "", 1]]
    assert best_cells(rows, leave_out=["oracle"]) == {(0, 1), (0, 2), (1, 2)}
    assert best_cells(rows[:1]) == best_cells([]) == set()
    page = render(
        report(tables=[Table("F1", ["trees", "F1"], [["model", 0.5], ["random", 0.25]], best={(0, 1)})])
    )
    assert "<td class=best>0.5000</td>" in page
    assert "the best of its column" in page


def test_a_report_without_curves_and_examples_is_a_page():
    page = render(Report("t", "a", "s"))
    assert "<h2>" not in page
    assert render(report(curves=[Curve("loss", "nats", {"train": []})]))


def test_as_many_and_as_long_examples_as_a_report_may_have_are_small():
    longest = trace(["[MAX"] * LENGTHS[1], slots=21)
    page = render(report(traces=[{**longest, "example": i} for i in range(60)]))
    assert len(embedded(page)) == 60
    assert len(page.encode()) < 3_000_000


@pytest.mark.parametrize(
    ("task", "plots", "texts"),
    [
        (
            "listops",
            ["accuracy by epoch", "loss by epoch", "accuracy by depth"],
            ["It is never shown a tree"],
        ),
        ("logic", ["accuracy by epoch", "loss by epoch", "accuracy by operations"], ["two formulas"]),
        ("sst", ["accuracy by epoch", "loss by epoch"], ["predicts its sentiment", "nodes"]),
        ("language_model", ["loss by epoch", "perplexity by epoch"], ["Samples"]),
    ],
)
def test_the_report_of_a_run(small_runs, task, plots, texts):
    text = (Path(small_runs[f"{task}_run"]) / "report.html").read_text()
    page = Page(text)
    assert page.open == page.external == []
    assert [label.partition(";")[0] for label in page.plots] == plots
    for fact in (*texts, "Command", "1 epoch (--epochs)", "torch"):
        assert fact.lower() in page.words.lower(), fact
    traces = embedded(text)
    assert 0 < len({one["example"] for one in traces}) <= 4
    assert len(text.encode()) < 3_000_000


def test_the_largest_examples_are_left_out_of_a_page_that_would_be_too_large(monkeypatch):
    lengths = [40, 5, 30, 5]
    traces = [trace(["w"] * length) | {"example": place // 2} for place, length in enumerate(lengths)]
    monkeypatch.setattr("tasks.reporting.report.MAX_TRACE_BYTES", 14_000)
    page = render(report(traces=traces))
    shown = embedded(page)
    assert [one["example"] for one in shown] == [1, 1]
