"""Tables of accuracy by group, and files with one example per line."""

import json

import pytest

from tasks.classifiers.files import read_lines
from tasks.classifiers.report import (
    _accuracy_table,
    accuracy_plots,
    confusion_table,
    f1_scores,
    results_text,
    values_to_summarize,
)
from tasks.runs.errors import UserError


def results(accuracy_by):
    return {
        "part": "test",
        "unit": "pairs",
        "accuracy": 0.5,
        "examples": 8,
        "accuracy_by": accuracy_by,
        "confusion": None,
        "span_f1": {},
        "valid_trees": {},
        "scored_trees": 0,
        "punctuation": "",
    }


def test_groups_are_rows():
    text = results_text(results({"depth": {"1": [0.25, 4], "2": [1.0, 1_200]}}))
    assert text.splitlines()[2:] == [
        "depth  accuracy  count",
        "1        0.2500      4",
        "2        1.0000  1,200",
    ]


def test_true_classes_are_the_rows_of_a_confusion_matrix_in_the_text():
    classes = {"classes": ["no", "yes"], "confusion": [[5, 1], [2, 3_000]]}
    *_, header, no, yes = results_text({**results({}), **classes}).splitlines()
    assert [line.split() for line in (header, no, yes)] == [
        ["no", "yes"],
        ["no", "5", "1"],
        ["yes", "2", "3,000"],
    ]


def test_the_title_of_a_table_says_of_what_the_accuracy_is():
    titles = ["first operator", "sentences with", "nodes"]
    assert [_accuracy_table(title, {"all": [0.5, 2]}).title for title in titles] == [
        "Accuracy: first operator",
        "Accuracy: sentences with",
        "Accuracy: nodes",
    ]


def test_groups_of_two_names_are_rows_and_columns_with_gaps_where_there_is_no_example():
    text = results_text(
        results({"size × colour": {"2 × red": [0.5, 4], "2 × blue": [1.0, 3], "3 × blue": [0.0, 1]}})
    )
    assert [line.split() for line in text.splitlines()[2:]] == [
        ["size", "×", "colour", "red", "blue", "count"],
        ["2", "0.5000", "1.0000", "7"],
        ["3", "–", "0.0000", "1"],
    ]


def test_the_number_of_scored_trees_is_told():
    scores = {"span_f1": {"corpus level": {"model": 0.5}}, "punctuation": "every token counts"}
    assert "\nTrees scored: 1,200. Every token" in results_text(
        results({}) | scores | {"scored_trees": 1_200}
    )


@pytest.mark.parametrize(
    ("classes", "shown"),
    [(["no", "yes, sir"], "no"), (["very bad", "very good"], "very bad")],
)
def test_names_of_classes_stay_different_when_they_are_short(classes, shown):
    text = results_text({**results({}), "classes": classes, "confusion": [[1, 2], [3, 4]]})
    assert text.splitlines()[-2].startswith(shown)


def test_a_confusion_matrix_has_the_name_of_its_model_beside_others():
    shown = {"classes": ["no", "yes"], "confusion": [[1, 2], [3, 4]]}
    alone, beside = confusion_table(shown), confusion_table(shown, "LSTM")
    assert beside.title == f"{alone.title}: LSTM"
    assert beside.rows == [["no", 1, 2], ["yes", 3, 4]]


def test_the_numbers_of_several_seeds_are_named():
    scores = {"corpus level, without what is trivial": {"model": 0.5, "random": 0.1}}
    values = results({"depth": {"1": [0.25, 4]}}) | {"span_f1": scores, "valid_trees": {"model": 0.75}}
    named = {"accuracy": 0.5, "depth 1": 0.25, "F1, corpus level": 0.5, "valid trees": 0.75}
    assert values_to_summarize(values) == named
    scores["corpus level, without what is trivial"]["model, unbiased"] = 0.4
    values["valid_trees"]["model, unbiased"] = 0.3
    unbiased = {"F1, corpus level, unbiased": 0.4, "valid trees, unbiased": 0.3}
    assert values_to_summarize(values) == named | unbiased


def test_a_line_ends_at_a_line_feed_alone(tmp_path):
    (tmp_path / "f").write_bytes("a\u2028b\x0cc\r\nd\n\n".encode())
    assert read_lines(tmp_path / "f", str) == ["a\u2028b\x0cc", "d"]
    (tmp_path / "f").write_bytes(b"\n")
    with pytest.raises(UserError, match="the file is empty"):
        read_lines(tmp_path / "f", str)


def test_a_line_that_a_parser_fails_at_is_named(tmp_path):
    (tmp_path / "f").write_text('{"label": 1}\n{"labels": 2}\n')
    with pytest.raises(KeyError) as caught:
        read_lines(tmp_path / "f", lambda line: json.loads(line)["label"])
    assert caught.value.__notes__ == [f"in {tmp_path / 'f'}, line 2: '{{\"labels\": 2}}'"]


def test_only_a_perfect_score_reads_as_one():
    text = results_text({**results({"depth": {"1": [0.99999, 100_000]}}), "accuracy": 0.99996})
    assert "accuracy 0.99996 on" in text
    assert " 0.99999  100,000" in text


def test_plots_of_models_with_other_tests_have_no_counts():
    one, other = results({"length": {"7": [0.5, 10]}}), results({"length": {"7": [0.6, 500], "9": [0.7, 60]}})
    assert [dict(curve.counts) for curve in accuracy_plots({"a": one, "b": one})] == [{7.0: 10}]
    assert [dict(curve.counts) for curve in accuracy_plots({"a": one, "b": other})] == [{}]


def test_a_plot_has_the_models_that_were_tested_with_its_groups():
    older = results({"length": {"7": [0.5, 10]}, "size": {"1": [0.3, 4], "over 1": [0.7, 6]}})
    newer = results({"length": {"7": [0.6, 10]}, "depth": {"2": [0.4, 10]}, "size": {"1": [0.2, 10]}})
    for models in ({"a": older, "b": newer}, {"b": newer, "a": older}):
        plots = {curve.axis: curve for curve in accuracy_plots(models)}
        lines = {title: sorted(curve.series) for title, curve in plots.items()}
        assert lines == {"length": ["a", "b"], "depth": ["b"], "size": ["b"]}
        assert plots["length"].series == {"a": [(7.0, 0.5)], "b": [(7.0, 0.6)]}
        assert plots["length"].counts == {7: 10}
        assert plots["size"].counts == {1: 10}


def test_each_way_to_read_trees_has_a_row_a_column_and_a_note():
    rows = {"model": 0.5, "model, unbiased": 0.4, "model, layer 1": 0.6, "model, backward": 0.3}
    rows["model, backward, unbiased"] = 0.2
    scores = {"span_f1": {"corpus level, with": rows | {"random": 0.1}}, "punctuation": "every token counts"}
    values = results({}) | scores
    lines = results_text(values).splitlines()
    start = lines.index("span F1, corpus level, with") + 1
    assert [line.rsplit(maxsplit=1)[0].strip() for line in lines[start : start + 6]] == [*rows, "random"]
    assert len({len(line) for line in lines[start : start + 6]}) == 1
    columns = ["F1, corpus level" + name.removeprefix("model") for name in rows]
    assert f1_scores(values) == dict(zip(columns, rows.values(), strict=True))
    assert f1_scores(values, "random") == {"F1, corpus level": 0.1}
    notes = ("favors right", "Where no layer is named", "Backward: ", "favors left")
    for count, note in enumerate(notes, start=1):
        some = dict(list(rows.items())[: count + 1])
        text = " ".join(results_text(values | {"span_f1": {"corpus level, with": some}}).split())
        fewer = dict(list(rows.items())[:count])
        assert note in text
        assert note not in results_text(values | {"span_f1": {"corpus level, with": fewer}})
