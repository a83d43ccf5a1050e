"""Predictions of runs are compared: scores, significance, agreement and consensus of trees."""

import bz2
import json
import re

import pytest

from ordered_memory.span_f1 import CORPUS_LEVEL, SENTENCE_LEVEL
from tasks.parsing.__main__ import main as parsing
from tasks.predictions.__main__ import main as predictions
from tasks.runs.command_options import json_line
from tasks.syntax_eval.__main__ import main as syntax_eval
from tests.commands import MAIN

CORPUS_F1, SENTENCE_F1 = (f"F1, {convention}" for convention in (CORPUS_LEVEL, SENTENCE_LEVEL))
ANSWER = b'{"texts": ["a"], "prediction": "x", "probabilities": {"x": 1.0}'
LEFT, RIGHT, MIXED = "( ( ( a b ) c ) d )", "( a ( b ( c d ) ) )", "( ( a b ) ( c d ) )"


@pytest.fixture
def write(tmp_path):
    """Write a file of predictions; its path."""

    def write_rows(name, rows):
        (tmp_path / name).write_text("".join(map(json_line, rows)), encoding="utf-8")
        return str(tmp_path / name)

    return write_rows


@pytest.fixture
def compare(tmp_path, capsys):
    """Compare files; the results, and what is printed."""

    def run(*words):
        results = tmp_path / "results.json"
        status = predictions(["compare", *map(str, words), "--json", str(results)])
        printed = capsys.readouterr()
        assert status == 0, printed.err
        return json.loads(results.read_text(encoding="utf-8")), printed.out

    return run


@pytest.fixture
def refused(capsys):
    """Compare files that cannot be compared; the error message."""

    def run(*words, command="compare"):
        assert predictions([command, *map(str, words)]) == 2
        message = capsys.readouterr().err
        assert message.startswith("python -m tasks.predictions: error: ")
        return message

    return run


def test_accuracies_differ_by_the_examples_that_one_run_alone_gets_right(write, compare):
    def answers(name, *given):
        """x and y with probabilities of 0.6, X and Y with 0.9."""
        rows = []
        for answer in given:
            best = 0.9 if answer.isupper() else 0.6
            probabilities = {other: best if other == answer.lower() else 1 - best for other in "yx"}
            row = {"texts": ["a\u2028"], "label": "x", "prediction": answer.lower()}
            rows.append(row | {"probabilities": probabilities})
        return write(name, rows)

    results, printed = compare(answers("a", *"xXxXy"), answers("b", *"xyYyx"))
    assert results["runs"] == ["a", "b"]
    assert results["examples"] == 5
    # In the last example the mean probabilities are equal; max() takes the first class.
    assert results["scores"] == {"accuracy": {"a": 0.8, "b": 0.4, "ensemble": 0.6}}
    assert "Ensemble: the class with the highest mean probability." in printed
    [test] = results["tests"]
    assert (test["only_first_right"], test["only_second_right"]) == (3, 1)
    assert (test["difference"], test["p"]) == (pytest.approx(0.4), 0.625)
    assert results["agreement"] == {}
    assert printed.startswith("2 runs, 5 examples\n")
    assert re.search(r"^a, b +\+0\.4000 +0\.625 +3 +1$", printed, re.MULTILINE)
    assert "corrected" not in printed
    results, printed = compare(*(answers(name, *"xxxxy") for name in "abc"))
    assert [(test["first"], test["second"]) for test in results["tests"]] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
    ]
    assert "not corrected for the number of tests" in printed


def test_trees_are_scored_compared_and_joined(write, compare):
    files = [
        write(
            name,
            [
                {
                    "texts": ["s", "t"],
                    "label": "x",
                    "prediction": "x",
                    "probabilities": {"x": 1.0},
                    "trees": [tree, "d"],
                    "other_trees": {"unbiased": [LEFT, "d"], "layer 1": [RIGHT, "d"]},
                    "true_trees": [MIXED, "d"],
                }
            ],
        )
        for name, tree in (("a", LEFT), ("b", RIGHT), ("c", MIXED))
    ]
    results, printed = compare(*files)
    assert results["scored"][CORPUS_F1] == 1
    assert results["scores"]["accuracy"] == {"a": 1, "b": 1, "c": 1, "ensemble": 1}
    corpus = results["scores"][CORPUS_F1]
    assert corpus == {"a": pytest.approx(2 / 3), "b": pytest.approx(2 / 3), "c": 1, "consensus": 1}
    assert results["scores"][SENTENCE_F1] == {"a": 0.5, "b": 0.5, "c": 1, "consensus": 1}
    agreement = results["agreement"]["f1"][str(SENTENCE_LEVEL)]
    assert [pair["f1"] for pair in agreement["pairs"]] == [0, 0.5, 0.5]
    assert agreement["self_f1"] == pytest.approx(1 / 3)
    assert "Consensus: for each sentence the binary tree" in printed
    assert re.search(r"^mean \(self-F1\) +0\.3333$", printed, re.MULTILINE)
    named, _ = compare(*files[:2], "--trees", "unbiased")
    assert named["scores"][SENTENCE_F1] == {"a": 0.5, "b": 0.5}
    assert named["agreement"]["f1"][str(CORPUS_LEVEL)]["self_f1"] == 1
    within, _ = compare(files[2], "--trees", "model", "unbiased", "layer 1", "model")
    assert within["runs"] == ["c: model", "c: unbiased", "c: layer 1"]
    assert "accuracy" not in within["scores"]  # the answers are the same
    assert within["scores"][SENTENCE_F1]["c: unbiased"] == 0.5
    assert within["scores"][SENTENCE_F1]["consensus"] == 1


def test_the_consensus_is_printed_or_written_for_every_sentence(write, refused, tmp_path, capsys):
    files = [
        write(
            name,
            [
                {"words": list("abcd"), "true_tree": MIXED, "trees": {"layer 1": tree, "layer 2": MIXED}},
                other,
            ],
        )
        for other in [{"words": ["a"], "true_tree": "a", "trees": {"layer 1": "a", "layer 2": "a"}}]
        for name, tree in (("a", LEFT), ("b", RIGHT), ("c", LEFT))
    ]
    for names, tree in ((["layer 1"], LEFT), (["layer 1", "layer 2"], MIXED)):
        assert predictions(["consensus", *files, "--trees", *names]) == 0
        assert capsys.readouterr().out == f"{tree}\na\n"
    output = tmp_path / "trees.txt"
    assert predictions(["consensus", *files, "--trees", "layer 1", "--output", str(output)]) == 0
    assert capsys.readouterr().out == ""
    assert output.read_text() == f"{LEFT}\na\n"
    assert "several trees for each sentence" in refused(*files, command="consensus")
    answers = [{"texts": ["a"], "prediction": "x", "probabilities": {"x": 1.0}}]
    without = write("d", answers), write("e", answers)
    assert "d has no trees" in refused(*without, command="consensus")
    assert "must be different files" in refused(*without, "--output", without[0], command="consensus")


def test_trees_of_all_sentences_count_at_corpus_level(write, compare):
    def trees(name, *texts):
        answer = {"texts": ["a"], "prediction": "x", "probabilities": {"x": 1.0}}
        return write(name, [answer | {"trees": [text]} for text in texts])

    files = [
        trees("a", "( ( a b ) c )", "x", LEFT),
        trees("b", "( a ( b c ) )", "x", LEFT),
        trees("c", "( a ( b c ) )", "x", RIGHT),
    ]
    results, printed = compare(*files)
    assert results["scores"] == {}  # there are neither labels nor true trees
    assert results["agreement"]["sentences"] == 2
    corpus, sentence = (results["agreement"]["f1"][str(level)] for level in (CORPUS_LEVEL, SENTENCE_LEVEL))
    assert [pair["f1"] for pair in corpus["pairs"]] == pytest.approx([0.8, 0.4, 0.6])  # of 5 spans each
    assert corpus["self_f1"] == pytest.approx(0.6)
    assert [pair["f1"] for pair in sentence["pairs"]] == [0.5, 0, 0.5]
    assert "Differences" not in printed


def test_trees_that_are_all_too_short_leave_the_answers(write, compare):
    row = {"texts": ["a"], "label": "x", "prediction": "x", "probabilities": {"x": 1.0}}
    results, _ = compare(*(write(name, [row | {"trees": ["a"], "true_trees": ["a"]}]) for name in "abc"))
    assert results["scores"] == {"accuracy": {"a": 1, "b": 1, "c": 1, "ensemble": 1}}
    assert results["agreement"] == {}


def test_perplexity_is_of_all_words_and_tested_by_lines(write, compare):
    def lines(name, *log_probabilities):
        return write(
            name, [{"words": ["w", "<eos>"], "log_probabilities": values} for values in log_probabilities]
        )

    worse = lines("a", *[[-2.0, -1.0]] * 12)
    better = lines("b", *[[-1.0, -1.0]] * 12)
    results, printed = compare(worse, better)
    assert results["scores"]["perplexity"] == pytest.approx({"a": 4.4817, "b": 2.7183}, abs=1e-4)
    [test] = results["tests"]
    assert test["difference"] == pytest.approx(4.4817 - 2.7183, abs=1e-4)
    assert test["p"] == pytest.approx(2 / 2**12, abs=5 * (2 / 2**12 / 10_000) ** 0.5)
    assert re.search(r"^a +4\.48$", printed, re.MULTILINE)
    assert "paired randomization test, 10,000 draws" in printed
    many = lines("c", *[[-1.0, -0.5]] * 40)
    results, printed = compare(lines("d", *[[-1.0, -1.0]] * 40), many)
    assert results["tests"][0]["p"] == 1 / 10_001
    assert "≤ 0.0001" in printed


def test_models_are_compared_on_the_pairs_that_all_of_them_score(write, compare, refused):
    def pairs(name, **verdicts):
        """For each model 1, 0 or, if a pair is not scored, - for each pair."""
        rows = []
        for i, verdict in enumerate(zip(*verdicts.values(), strict=True)):
            scores = {model: {"right": right == "1"} for model, right in zip(verdicts, verdict, strict=True)}
            row = {"construction": "c", "good": f"g{i}", "bad": "b"}
            rows.append(row | {"log_probabilities": None if "-" in verdict else scores})
        return write(name, rows)

    both = pairs("a", m="110-", n="100-")
    results, _ = compare(both)
    assert results["scores"]["accuracy"] == pytest.approx({"a: m": 2 / 3, "a: n": 1 / 3})
    results, printed = compare(both, pairs("b", m="-111"))
    assert results["scored"] == {"accuracy": 2}
    assert "Accuracy is that of the 2 examples that all runs score." in printed
    assert results["scores"]["accuracy"] == pytest.approx({"a: m": 1 / 2, "a: n": 0, "b": 1})
    assert "neither scored examples nor trees" in refused(both, pairs("c", m="---1"))
    assert "d: nothing is scored" in refused(both, pairs("d", m="----"))


@pytest.mark.parametrize("task", ["listops", "logic", "sst", "language_model", "parsing", "syntax_eval"])
def test_the_scores_of_a_run_are_those_of_its_evaluation(task, small_runs, compare, tmp_path):
    main = {"parsing": parsing, "syntax_eval": syntax_eval}.get(task) or MAIN[task]
    file, copy, json_file = tmp_path / "a.jsonl", tmp_path / "b.jsonl.bz2", tmp_path / "evaluated.json"
    checkpoint = small_runs[task if task in small_runs else "language_model"]
    words = ["--checkpoint", checkpoint, "--json", json_file, "--predictions", file]
    words += ["--output", tmp_path / "page.html"] if task in ("parsing", "syntax_eval") else []
    assert main(["evaluate", *map(str, words)]) == 0
    copy.write_bytes(bz2.compress(file.read_bytes()))
    evaluated = json.loads(json_file.read_text(encoding="utf-8"))
    trees = ["layer 2, unbiased"] if task == "parsing" else []
    results, _ = compare(file, copy, *(["--trees", *trees] if trees else []))
    assert results["runs"] == ["a.jsonl", "b.jsonl.bz2"]
    assert {test["p"] for test in results["tests"]} == {1.0}
    scores = {measure: values["a.jsonl"] for measure, values in results["scores"].items()}
    if task == "language_model":
        assert scores == {"perplexity": pytest.approx(evaluated["perplexity"], rel=1e-5)}
    elif task == "parsing":
        [row] = [row for row in evaluated["rows"] if row["name"] == trees[0]]
        assert scores[CORPUS_F1] == pytest.approx(row["all"]["f1_corpus"])
    elif task == "syntax_eval":
        rows = [json.loads(line)["log_probabilities"] for line in file.read_text().splitlines()]
        right = [row["language_model"]["right"] for row in rows if row]
        assert scores == {"accuracy": pytest.approx(sum(right) / len(right))}
    else:
        assert scores["accuracy"] == pytest.approx(evaluated["accuracy"])
        f1 = evaluated["span_f1"]
        assert scores[CORPUS_F1] == pytest.approx(f1[str(CORPUS_LEVEL)]["model"])
        if task != "listops":  # whose evaluation also counts expressions of one digit
            assert scores[SENTENCE_F1] == pytest.approx(f1[str(SENTENCE_LEVEL)]["model"])
        assert results["agreement"]["f1"][str(CORPUS_LEVEL)]["self_f1"] == 1


def test_what_cannot_be_compared_is_named(write, refused, tmp_path):
    answer = {"texts": ["a"], "label": "x", "prediction": "x", "probabilities": {"x": 1.0}}
    a, b = (write(name, [answer]) for name in "ab")
    assert "give the files of predictions" in refused()
    assert "expected predictions of two runs or more, got one: a" in refused(a)
    assert f"{a} is given twice" in refused(a, b, a)
    for name, rows in (
        ("c", [answer | {"texts": ["b"]}]),
        ("d", [answer | {"label": "y"}]),
        ("e", [answer, answer]),
        ("f", [{"words": ["a"], "log_probabilities": [-1.0]}]),
    ):
        assert f"a and {name} are predictions for different examples" in refused(a, write(name, rows))
    assert "there are no trees" in refused(a, b, "--trees", "model")
    assert "there are no trees" in refused(tmp_path / "f", "--trees", "model")
    unlabeled = {name: value for name, value in answer.items() if name != "label"}
    assert "neither scored examples nor trees" in refused(*(write(name, [unlabeled]) for name in "gh"))
    assert "i: no such file" in refused(a, tmp_path / "i")
    parse = write("j", [{"words": ["a"], "true_tree": MIXED, "trees": {"layer 1": LEFT, "layer 2": LEFT}}])
    assert "several trees for each sentence: --trees must name 'layer 1' or 'layer 2'" in refused(parse)
    assert "no trees 'layer 3': expected 'layer 1' or 'layer 2'" in refused(parse, "--trees", "layer 3")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x88\0", "not UTF-8"),
        (b"{\n", "line 1: not JSON"),
        (b"\n", "no predictions"),
        (b"[1]\n", "line 1: expected a JSON object"),
        (b'{"texts": ["a"]}\n', "not what"),
        (b'{"prediction": "x"}\n', "not what"),
        (ANSWER + b"}\n", "expected predictions of two runs or more"),
        (ANSWER + b', "trees": null}\n', "not what"),
        (ANSWER + b', "trees": ["( a"]}\n', "not what"),
        (ANSWER + b', "trees": ["( a b )"], "true_trees": ["a", "b"]}\n', "not what"),
        (b'{"words": 5, "log_probabilities": null}\n', "not what"),
        (b'{"words": ["a"], "log_probabilities": [NaN]}\n', "not what `evaluate --predictions` writes"),
        (b'{"words": ["a"], "true_tree": "a", "trees": ["a"]}\n', "not what"),
    ],
)
def test_a_file_of_something_else_is_named(content, message, refused, tmp_path):
    (tmp_path / "a").write_bytes(content)
    assert message in refused(tmp_path / "a")
