"""`python -m tasks.parsing score`: trees of a file beside those of a treebank."""

import json
import re

import pytest

from tasks.parsing.__main__ import main
from tasks.parsing.evaluation import LABELS
from tests.tasks.parsing.tiny import fails


def test_trees_of_a_file_have_the_scores_of_the_model_that_wrote_them(directory, tmp_path, capsys):
    treebank, predicted = str(directory / "trees.mrg"), tmp_path / "trees.txt"
    results, rows = tmp_path / "results.json", tmp_path / "rows.jsonl"
    outputs = ["--json", str(results), "--predictions", str(rows), "--output", str(tmp_path / "page.html")]
    evaluating = ["--checkpoint", str(directory / "text.safetensors"), "--treebank", treebank, *outputs]
    assert main(["evaluate", *evaluating]) == 0
    by_name = {row["name"]: row for row in json.loads(results.read_text())["rows"]}
    trees = [json.loads(line)["trees"]["layer 2, prpn"] for line in rows.read_text().splitlines()]
    predicted.write_text("\n\n".join(trees))
    capsys.readouterr()
    assert main(["score", str(predicted), "--treebank", treebank, "--json", str(results)]) == 0
    assert "True tree" not in capsys.readouterr().out
    found = {row["name"]: row for row in json.loads(results.read_text())["rows"]}
    assert list(found) == ["trees.txt", "left-branching", "right-branching", "balanced", "random"]
    for name, row in found.items():
        expected = by_name["layer 2, prpn" if name == "trees.txt" else name]
        assert (row["all"], row["short"]) == (expected["all"], expected["short"])


def test_trees_of_a_file_may_have_labels(directory, tmp_path):
    predicted, results = tmp_path / "trees.txt", tmp_path / "results.json"
    trees = ["((a b) (c (d e)))", "((a b) (c d))", "(a (b (c (d (e (f (g (h (i (j (k (l m))))))))))))"]
    words = [re.sub(r"(\w)", r"(X \1)", tree) for tree in trees]
    found = []
    labeled = [re.sub(r"\((?=\()", "(S ", tree) for tree in words]
    for text in (trees, labeled, [f"(ROOT {tree})" for tree in labeled]):  # one node more counts for nothing
        predicted.write_text("\n".join(text))
        options = ["--treebank", str(directory / "trees.mrg"), "--json", str(results)]
        assert main(["score", str(predicted), *options]) == 0
        found.append(json.loads(results.read_text())["rows"])
    assert found[0] == found[1] == found[2]


def test_brackets_around_a_single_constituent_count_for_nothing(tmp_path):
    (tmp_path / "gold.mrg").write_text("(S (NP (DT a) (NN b)) (VP (VB c) (NP (NN d))))\n")
    options = ["--treebank", str(tmp_path / "gold.mrg"), "--json", str(tmp_path / "results.json")]
    found = []
    texts = ("((a b) (c d))", "((((a) b)) (((c (d)))))", "(((a b) (c d)))", "((a (b)) (c (d)))")
    for text in texts:
        (tmp_path / "trees.txt").write_text(text)
        assert main(["score", str(tmp_path / "trees.txt"), *options]) == 0
        found.append(json.loads((tmp_path / "results.json").read_text())["rows"])
    assert all(rows == found[0] for rows in found)


def test_punctuation_of_a_treebank_is_removed_from_trees_that_have_it(tmp_path, capsys):
    (tmp_path / "gold.mrg").write_text(
        "(S (NP (`` ``) (DT a) (NN b)) (, ,) (VP (VB c) (-NONE- *)) (. .))\n(NP (NN d) (NN e))\n"
    )
    options = ["--treebank", str(tmp_path / "gold.mrg"), "--json", str(tmp_path / "results.json")]
    found = []
    for text in (
        "(a (b c))\n(d e)",
        '(" (a ((b (, c)) .)))\n(d e)',
        '(S (X ") (S (X a) (S (S (X b) (S (X ,) (X c))) (X .))))\n(S (X d) (X e))',
    ):
        (tmp_path / "trees.txt").write_text(text)
        assert main(["score", str(tmp_path / "trees.txt"), *options]) == 0
        assert not capsys.readouterr().err
        found.append(json.loads((tmp_path / "results.json").read_text())["rows"])
    assert found[0] == found[1] == found[2]
    assert found[0][0]["all"]["f1_corpus"] == 2 / 3  # the spans abc and de of abc, bc, de
    (tmp_path / "trees.txt").write_text("(a (b (c x)))\n(d e)")
    assert "line 1: expected a tree over the 3 words" in fails(
        capsys, "score", tmp_path / "trees.txt", *options
    )


def test_labeled_trees_need_no_part_of_speech_tags(tmp_path, capsys):
    (tmp_path / "gold.mrg").write_text("(S (NP (DT a) (NN b)) (VB c))\n(NP (DT d) (NN e))\n")
    options = ["--treebank", str(tmp_path / "gold.mrg"), "--json", str(tmp_path / "results.json")]
    for text in ("(S (NP a b) c)\n(NP d e)\n", "(S (NP a b) (VP c))\n(NP (DT d) e)\n"):
        (tmp_path / "trees.txt").write_text(text)
        assert main(["score", str(tmp_path / "trees.txt"), *options]) == 0
        assert not capsys.readouterr().err
        scores = json.loads((tmp_path / "results.json").read_text())["rows"][0]["all"]
        assert (scores["f1_corpus"], scores["label_recall"]["NP"]) == (1.0, 1.0)
    (tmp_path / "trees.txt").write_text("(S (NP a b) c x)\n(NP d e)\n")
    assert "line 1: expected a tree over the 3 words of" in fails(
        capsys, "score", tmp_path / "trees.txt", *options
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("(NP (DT d) (NN e)", "expected matching parentheses, got 1 '(' never closed"),
        ("(NP (DT d) (NN e)))", "expected one tree, got ')' at token 11, after its end"),
        ("(NP () (DT d) (NN e))", "expected words, got an empty constituent"),
        ("(NP (DT) (NN e))", "expected words, got an empty constituent"),
        ("(NP (DT d) (NN e) (NN f))", "expected a tree over the 2 words of"),
        ("((d) e", "expected matching parentheses, got 1 '(' never closed"),
        ("(d e))", "expected one tree, got ')' at token 4, after its end"),
        ("(d () e)", "expected words, got an empty constituent"),
        ("(d e f)", "expected a tree over the 2 words of"),
    ],
)
def test_a_bad_line_is_named_among_trees_with_labels_or_without(tmp_path, capsys, line, complaint):
    gold, trees = tmp_path / "gold.mrg", tmp_path / "trees.txt"
    labeled, unlabeled = "(S (NP (DT a) (NN b)) (VP (VB c)))", "((a b) c)"
    gold.write_text(f"{labeled}\n(NP (DT d) (NN e))\n")
    trees.write_text(f"{labeled if 'NP' in line else unlabeled}\n{line}\n")
    assert f"trees.txt, line 2: {complaint}" in fails(capsys, "score", trees, "--treebank", gold)


def test_unlabeled_trees_may_have_constituents_that_begin_with_words(tmp_path, capsys):
    (tmp_path / "gold.mrg").write_text(
        "(S (NP (DT a) (NN dog)) (VP (VBZ sees) (NP (DT the) (NN cat))))\n"
        "(S (DT a) (NP (JJ small) (NN dog)) (VB runs))\n"
        "(S (RB now) (NP (DT a) (NN dog)) (VP (VBZ sees) (PRP it)))\n"
    )
    options = ["--treebank", str(tmp_path / "gold.mrg"), "--json", str(tmp_path / "results.json")]
    (tmp_path / "trees.txt").write_text(
        "((a dog) (sees (the cat)))\n(a (small dog) runs)\n(now (a dog) (sees it))\n"
    )
    assert main(["score", str(tmp_path / "trees.txt"), *options]) == 0
    assert not capsys.readouterr().err
    assert json.loads((tmp_path / "results.json").read_text())["rows"][0]["all"]["f1_corpus"] == 1.0


def test_a_sentence_of_punctuation_alone_may_have_a_tree_that_is_not_scored(tmp_path, capsys):
    gold, results = tmp_path / "gold.mrg", tmp_path / "results.json"
    gold.write_text(
        "(S (NN a) (NN b) (. .))\n(X (-NONE- *))\n(X (: -) (: -))\n(X (: -))\n(S (X (NN c) (NN d)) (NN e))\n"
    )
    options = ["--treebank", str(gold), "--json", str(results)]
    for text in ("(a b)\n((c d) e)", "((a b) .)\n(- -)\n-\n((c d) e)"):
        (tmp_path / "trees.txt").write_text(text)
        assert main(["score", str(tmp_path / "trees.txt"), *options]) == 0
        assert not capsys.readouterr().err
        first, *_ = json.loads(results.read_text())["rows"]
        assert first["all"]["f1_corpus"] == 1
    for text in ("(a b)\n(- -)\n((c d) e)", "(a b)\n-\n(- -)\n((c d) e)"):
        (tmp_path / "trees.txt").write_text(text)
        assert main(["score", str(tmp_path / "trees.txt"), *options]) == 2


def test_long_sentences_are_left_out_of_a_score_as_of_an_evaluation(directory, tmp_path, capsys):
    treebank, predicted = str(directory / "trees.mrg"), tmp_path / "trees.txt"
    results, rows = tmp_path / "results.json", tmp_path / "rows.jsonl"
    outputs = ["--json", str(results), "--output", str(tmp_path / "page.html")]
    options = ["--checkpoint", str(directory / "text.safetensors"), "--treebank", treebank, *outputs]
    assert main(["evaluate", *options, "--predictions", str(rows)]) == 0
    trees = [json.loads(line)["trees"]["layer 2, prpn"] for line in rows.read_text().splitlines()]
    predicted.write_text("\n".join(trees))
    assert main(["evaluate", *options, "--max-words", "5"]) == 0
    by_name = {row["name"]: row for row in json.loads(results.read_text())["rows"]}
    limited = ["score", str(predicted), "--treebank", treebank, "--json", str(results), "--max-words"]
    assert main([*limited, "5"]) == 0
    first, *_ = json.loads(results.read_text())["rows"]
    assert first["all"] == by_name["layer 2, prpn"]["all"]
    assert json.loads(results.read_text())["groups"]["all"]["sentences"] == 2
    assert json.loads(results.read_text())["too_long"] == 1
    capsys.readouterr()
    assert fails(capsys, *limited, "0") == "--max-words must be at least 1, got 0"
    assert fails(capsys, *limited, "2") == "--max-words 2 leaves none of 3 sentences"


def test_punctuation_that_is_kept_counts_for_the_maximum_number_of_words(tmp_path):
    gold, trees, results = (tmp_path / name for name in ("gold.mrg", "trees.txt", "results.json"))
    gold.write_text("(S (NN a) (NN b) (. .))\n(S (NN c) (NN d))\n")
    trees.write_text("(a b .)\n(c d)\n")
    options = ["--treebank", str(gold), "--json", str(results), "--max-words", "2"]
    for more, too_long in (([], 0), (["--keep-punctuation"], 1)):
        assert main(["score", str(trees), *options, *more]) == 0
        assert json.loads(results.read_text())["too_long"] == too_long


def test_the_tree_of_a_long_sentence_is_not_scored_for_the_next_one(tmp_path):
    gold, results = tmp_path / "gold.mrg", tmp_path / "results.json"
    gold.write_text("(S (X (NN a) (NN b)) (X (NN c) (NN d)))\n(S (NN a) (X (NN b) (NN c)))\n")
    (tmp_path / "trees.txt").write_text("((a b) (c d))\n(a (b c))\n")
    options = ["--treebank", str(gold), "--json", str(results), "--max-words", "3"]
    assert main(["score", str(tmp_path / "trees.txt"), *options]) == 0
    first, *_ = json.loads(results.read_text())["rows"]
    assert first["all"]["f1_corpus"] == 1


def test_the_tables_of_all_and_of_short_sentences_by_hand(tmp_path, capsys):
    """The first of two trees is right. The second one, over 11 words, shares the whole sentence alone."""
    ones = " ".join(f"(NN w{i})" for i in range(11)).replace("(NN w0) (NN w1)", "(NP (NN w0) (NN w1))")
    (tmp_path / "gold.mrg").write_text(f"(S (NN a) (NP (NN b) (NN c)))\n(S {ones})\n")
    tree = "".join(f"(w{i} " for i in range(10)) + "w10" + ")" * 10
    (tmp_path / "trees.txt").write_text(f"(a (b c))\n{tree}\n")
    assert main(["score", str(tmp_path / "trees.txt"), "--treebank", str(tmp_path / "gold.mrg")]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    f1_of_all, f1_of_short, recall = (line[1:] for line in lines if line[:1] == ["trees.txt"])
    found = [list(map(float, cells)) for cells in (f1_of_all, f1_of_short)]
    of_words = (1 + 2 + 2) / 3, (sum(range(1, 11)) + 10) / 11
    expected = [
        [2 * 3 / (12 + 4), 2 * 1 / (10 + 2), (1 + 0) / 2, (2 + 10) / 2, sum(of_words) / 2],
        [1, 1, 1, 2, of_words[0]],
    ]
    assert found == [pytest.approx(values, abs=5e-5) for values in expected]
    (labels,) = (line[1:] for line in lines if line[:1] == ["constituents"])
    at = LABELS.index("NP")
    assert recall == [*"–" * at, "0.5000", *"–" * (len(LABELS) - at - 1)]
    assert labels == ["2" if label == "NP" else "0" for label in LABELS]


def test_trees_over_other_words_are_warned_of(tmp_path, capsys):
    (tmp_path / "gold.mrg").write_text("(S (NN a) (NN b))\n(S (NN c) (NN d))\n")
    for text, warned in (("(A b)\n(c <unk>)", False), ("(c d)\n(a b)", True)):
        (tmp_path / "trees.txt").write_text(text)
        assert main(["score", str(tmp_path / "trees.txt"), "--treebank", str(tmp_path / "gold.mrg")]) == 0
        assert ("only 0 of 4 words match the treebank" in capsys.readouterr().err) == warned


@pytest.mark.parametrize("text", ["(A b)\n(C <unk>)", "(a b)\n(x y)"])
def test_capital_letters_are_no_other_words_and_half_of_the_words_are_enough(text, tmp_path, capsys):
    (tmp_path / "gold.mrg").write_text("(S (NN A) (NN B))\n(S (NN c) (NN d))\n")
    (tmp_path / "trees.txt").write_text(text)
    assert main(["score", str(tmp_path / "trees.txt"), "--treebank", str(tmp_path / "gold.mrg")]) == 0
    assert "warning" not in capsys.readouterr().err


def test_a_labeled_sentence_of_one_word_is_read_as_the_others(tmp_path):
    (tmp_path / "gold.mrg").write_text("(S (NN a) (NN b))\n(NP (NN a))\n")
    (tmp_path / "trees.txt").write_text("(S (X a) (X b))\n(NP (X a))\n")
    assert main(["score", str(tmp_path / "trees.txt"), "--treebank", str(tmp_path / "gold.mrg")]) == 0


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["( a b )"], "line 1: expected a tree over the 5 words of "),
        (["( a ( b"], "line 1: expected matching parentheses"),
        (["( a b c d e )"], "expected a tree for each of 3 sentences, got 1"),
        (
            [*["( a b c d e )", "( a b c d )", "( a b c d e f g h i j k l m )"], "a"],
            "expected a tree for each of 3 sentences, got 4",
        ),
    ],
)
def test_trees_that_are_not_of_the_treebank_are_an_error(directory, tmp_path, capsys, lines, message):
    (tmp_path / "trees.txt").write_text("\n".join(lines))
    error = fails(capsys, "score", tmp_path / "trees.txt", "--treebank", directory / "trees.mrg")
    assert message in error
