"""Predictions in files: a line for each example, which agrees with the results as a whole."""

import errno
import json
from pathlib import Path

import numpy as np
import pytest

from ordered_memory.brackets import from_brackets
from ordered_memory.span_f1 import CORPUS_LEVEL, SENTENCE_LEVEL, span_f1
from tasks.language_model.model import load_model
from tasks.listops.model import ListOpsModel
from tasks.logic.model import LogicModel
from tasks.parsing.__main__ import main as parsing
from tasks.runs.errors import UserError
from tasks.sst.model import SentimentModel
from tasks.syntax_eval.__main__ import main as syntax_eval
from tasks.syntax_eval.scoring import word_log_probabilities
from tests.commands import MAIN

MODELS = {"listops": ListOpsModel, "logic": LogicModel, "sst": SentimentModel}
MIN_WORDS = {"listops": 1, "logic": 2, "sst": 2}


@pytest.fixture
def evaluate(tmp_path):
    """Run `evaluate`; the results, and the predictions."""

    def run(main, *words):
        results, predictions = tmp_path / "results.json", tmp_path / "predictions.jsonl"
        options = ["--json", results, "--predictions", predictions]
        assert main(["evaluate", *map(str, [*words, *options])]) == 0
        lines = predictions.read_text(encoding="utf-8").splitlines()
        return json.loads(results.read_text(encoding="utf-8")), [json.loads(line) for line in lines]

    return run


@pytest.mark.parametrize("task", MODELS)
def test_predictions_of_a_classifier_add_up_to_its_results(task, small_runs, evaluate):
    results, rows = evaluate(MAIN[task], "--checkpoint", small_runs[task])
    assert len(rows) == results["examples"]
    correct = [row["label"] == row["prediction"] for row in rows]
    assert sum(correct) / len(rows) == pytest.approx(results["accuracy"])
    trees = [from_brackets(tree) for row in rows for tree in row["trees"]]
    gold = [from_brackets(tree) for row in rows for tree in row["true_trees"]]
    assert [words for _, words in trees] == [words for _, words in gold]
    pairs = [
        (tree, true)
        for (tree, words), (true, _) in zip(trees, gold, strict=True)
        if len(words) >= MIN_WORDS[task]
    ]
    for convention in (CORPUS_LEVEL, SENTENCE_LEVEL):
        f1 = span_f1(*zip(*pairs, strict=True), **convention._asdict()).f1
        assert f1 == pytest.approx(results["span_f1"][str(convention)]["model"])


@pytest.mark.parametrize("task", MODELS)
def test_each_prediction_is_the_answer_to_its_texts(task, small_runs, evaluate):
    _, rows = evaluate(MAIN[task], "--checkpoint", small_runs[task])
    model = MODELS[task].from_pretrained(small_runs[task])
    for row in rows[:5]:
        answer = model.answer(*row["texts"])
        assert row["prediction"] == answer.answer
        assert row["probabilities"] == pytest.approx(answer.probabilities, abs=1e-5)
        assert tuple(from_brackets(tree)[0] for tree in row["trees"]) == answer.trees


@pytest.mark.parametrize("task", MODELS)
def test_a_file_without_labels_has_the_same_predictions(task, small_runs, evaluate, tmp_path, capsys):
    _, rows = evaluate(MAIN[task], "--checkpoint", small_runs[task])
    file, output = tmp_path / "texts.txt", tmp_path / "output.jsonl"
    file.write_text("".join("\t".join(row["texts"]) + "\n" for row in rows), encoding="utf-8")
    command = ["predict-file", str(file), "--checkpoint", small_runs[task], "--batch-size", "7"]
    assert MAIN[task]([*command, "--output", str(output)]) == 0
    capsys.readouterr()
    assert MAIN[task](command) == 0
    printed = capsys.readouterr().out
    assert printed == output.read_text(encoding="utf-8")
    found = [json.loads(line) for line in printed.splitlines()]
    answers = MODELS[task].from_pretrained(small_runs[task]).answers([row["texts"] for row in rows])
    for row, of_file, answer in zip(rows, found, answers, strict=True):
        assert of_file["texts"] == row["texts"]
        assert ("label" in of_file) == ("true_trees" in of_file) == (task != "sst")  # which it computes
        assert of_file["prediction"] == row["prediction"] == answer.answer
        assert of_file["trees"] == row["trees"]
        assert tuple(from_brackets(tree)[0] for tree in row["trees"]) == answer.trees
        for probabilities in (of_file["probabilities"], answer.probabilities):
            assert probabilities == pytest.approx(row["probabilities"], abs=1e-5)


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("listops", "[MAX 1 2 ]\n[MAX 1\n", "texts.txt, line 2: "),
        ("logic", "a\tb\na\n", "texts.txt, line 2: expected 2 formulas as text, got ['a']"),
        ("sst", "0\ta film\n", "texts.txt, line 1: expected 1 sentence as text, got ['0', 'a film']"),
        ("sst", "a film\n\na film\n", "texts.txt, line 2: the sentence must have one word or more, got ''"),
        ("sst", "", "texts.txt: the file is empty"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_written(task, text, message, small_runs, tmp_path, capsys):
    file, output = tmp_path / "texts.txt", tmp_path / "output.jsonl"
    file.write_text(text)
    command = ["predict-file", str(file), "--checkpoint", small_runs[task], "--output", str(output)]
    assert MAIN[task](command) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


def test_a_model_of_another_task_is_named(small_runs, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("[MAX 1 2 ]\n")
    command = ["predict-file", str(tmp_path / "texts.txt"), "--checkpoint", small_runs["logic"]]
    assert MAIN["listops"](command) == 2
    assert small_runs["logic"] in capsys.readouterr().err


def test_answers_to_no_texts_and_to_one_text(small_runs):
    model = SentimentModel.from_pretrained(small_runs["sst"])
    assert model.answers([]) == []
    with pytest.raises(TypeError, match="examples must be a list of texts, got the text 'a film'"):
        model.answers("a film")
    for bad, message in (
        (5, r"expected 1 sentence as text, got \(5,\)"),
        (" ", "must have one word or more"),
    ):
        with pytest.raises(UserError, match=f"example 1: .*{message}"):
            model.answers(["a film", bad, "another"])


def test_an_example_is_any_sequence_of_texts(small_runs):
    model = LogicModel.from_pretrained(small_runs["logic"])
    pair = ("( a ( or b ) )", "b")
    assert model.answers([np.array(pair), list(pair), iter(pair)]) == model.answers([pair] * 3)


def test_a_model_on_true_trees_cannot_read_a_file_without_them(tmp_path, capsys):
    tiny = "--generated 60 --vectors none --model gold-tree-rnn --slot-size 8 --epochs 1 --preset demo"
    assert MAIN["sst"](["train", *tiny.split(), "--run-dir", str(tmp_path / "run")]) == 0
    (tmp_path / "texts.txt").write_text("a film\n")
    checkpoint = ["--checkpoint", str(tmp_path / "run" / "best.safetensors")]
    assert MAIN["sst"](["predict-file", str(tmp_path / "texts.txt"), *checkpoint]) == 2
    assert "needs the true tree" in capsys.readouterr().err


@pytest.mark.parametrize("task", ["listops", "language_model", "parsing", "syntax_eval"])
def test_files_are_written_also_where_nothing_can_be_printed(task, small_runs, tmp_path, monkeypatch):
    main = {"parsing": parsing, "syntax_eval": syntax_eval}.get(task) or MAIN[task]
    results, predictions = tmp_path / "results.json", tmp_path / "predictions.jsonl"
    checkpoint = small_runs[task if task in small_runs else "language_model"]
    words = ["--checkpoint", checkpoint, "--json", results, "--predictions", predictions]
    words += ["--output", tmp_path / "page.html"] if task in ("parsing", "syntax_eval") else []

    def full(*texts, file=None, **options):
        if file is None and any(texts):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("builtins.print", full)
    assert main(["evaluate", *map(str, words)]) == 2
    assert results.exists()
    assert predictions.exists()


def test_a_model_without_trees_predicts_none(tmp_path, evaluate):
    tiny = "--generated 60 --vectors none --model lstm --slot-size 8 --epochs 1 --preset demo --max-minutes 1"
    assert MAIN["sst"](["train", *tiny.split(), "--run-dir", str(tmp_path)]) == 0
    _, rows = evaluate(MAIN["sst"], "--checkpoint", tmp_path / "best.safetensors")
    assert "trees" not in rows[0]
    assert rows[0]["true_trees"]


def test_log_probabilities_of_words_add_up_to_the_loss(small_runs, evaluate, tmp_path):
    checkpoint = small_runs["language_model"]
    trained = load_model(Path(checkpoint))
    words = trained.vocabulary.words
    text = tmp_path / "text.txt"
    text.write_text(f"{words[3]} {words[5]}\n\n{words[4]}\n" * 3)
    results, rows = evaluate(MAIN["language_model"], "--checkpoint", checkpoint, "--text", text)
    assert [row["words"] for row in rows] == [
        [words[3], words[5], "<eos>"],
        ["<eos>"],
        [words[4], "<eos>"],
    ] * 3
    found = [value for row in rows for value in row["log_probabilities"]]
    assert len(found) == results["words"]
    assert -sum(found) / len(found) == pytest.approx(results["loss"], abs=1e-5)
    first = word_log_probabilities(trained.model, [3, 5])
    assert rows[0]["log_probabilities"] == pytest.approx(first.tolist(), abs=1e-5)
    _, in_columns = evaluate(
        MAIN["language_model"], "--checkpoint", checkpoint, "--text", text, "--columns", "3"
    )
    assert [row["words"] for row in in_columns] == [row["words"] for row in rows]
    again = [rows[i]["log_probabilities"] for i in range(3)]  # each column starts where the text did
    assert [row["log_probabilities"] for row in in_columns] == [pytest.approx(row) for row in again * 3]


def test_trees_of_sentences_add_up_to_the_scores(small_runs, evaluate, tmp_path):
    page = tmp_path / "page.html"
    results, rows = evaluate(parsing, "--checkpoint", small_runs["language_model"], "--output", page)
    assert len(rows) == results["groups"]["all"]["sentences"]
    gold = [from_brackets(row["true_tree"])[0] for row in rows]
    of_model = [row for row in results["rows"] if row["layer"] is not None]
    assert list(rows[0]["trees"]) == [row["name"] for row in of_model]
    for scored in of_model:
        trees = [from_brackets(row["trees"][scored["name"]])[0] for row in rows]
        assert span_f1(trees, gold, **CORPUS_LEVEL._asdict()).f1 == pytest.approx(scored["all"]["f1_corpus"])
    assert all(len(layer) == len(row["words"]) for row in rows for layer in row["distances"])


def test_scores_of_pairs_add_up_to_the_accuracy(small_runs, evaluate, tmp_path):
    checkpoint = small_runs["language_model"]
    results, rows = evaluate(syntax_eval, "--checkpoint", checkpoint, "--count", "3")
    by_construction = {}
    for row in rows:
        found = row["log_probabilities"]["language_model"]
        assert found["right"] == (found["good"] > found["bad"])
        by_construction.setdefault(row["construction"], []).append(found["right"])
    assert len(rows) == 3 * len(by_construction)
    for line in results["constructions"]:
        right = by_construction[line["construction"]]
        assert line["accuracy"]["language_model"] == pytest.approx(sum(right) / len(right))
    trained = load_model(Path(checkpoint))
    ids = trained.vocabulary.encode(rows[0]["good"].split(), "")
    expected = word_log_probabilities(trained.model, ids).sum().item()
    assert rows[0]["log_probabilities"]["language_model"]["good"] == pytest.approx(expected, abs=1e-4)
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"good": "the qwertz", "bad": "qwertz the"}\n{"good": "the", "bad": "a"}\n')
    _, (unknown, known) = evaluate(syntax_eval, "--checkpoint", checkpoint, "--pairs", pairs)
    assert (unknown["covered"], unknown["log_probabilities"]) == (False, None)
    assert known["covered"]
