"""`python -m tasks.parsing evaluate`: the trees of a model beside those of a treebank."""

import json
import re

import pytest

from ordered_memory.brackets import from_brackets
from ordered_memory.draw import tree_text
from ordered_memory.trace import nodes_of
from tasks.language_model.model import load_model
from tasks.language_model.reading import distances_of_sentences, trace_sentence
from tasks.language_model.vocabulary import Vocabulary
from tasks.parsing.__main__ import main
from tasks.parsing.evaluation import decode
from tests.tasks.parsing.tiny import checkpoint, fails
from tests.tasks.reporting.pages import Page, embedded


def test_evaluating_a_treebank_prints_tables_and_writes_page_and_json(directory, tmp_path, capsys):
    outputs = ["--output", str(tmp_path / "new" / "page.html"), "--json", str(tmp_path / "results.json")]
    options = [
        "--checkpoint",
        str(directory / "text.safetensors"),
        "--treebank",
        str(directory / "trees.mrg"),
    ]
    assert main(["evaluate", *options, *outputs]) == 0
    output = capsys.readouterr().out
    output = " ".join(output.split())
    for fact in (
        *(
            "3 sentences of",
            "22 words (7.3 a sentence)",
            "1 without words",
            "removed, according to their tags",
            "section 23",
            "0.477",
            "86.36% of the words are in the model's vocabulary; it reads the others as <unk>.",
        ),
        *("3 words of tags that the Penn Treebank does not have (HYPH 2, NFP 1)", "EVALB also counts"),
        *("layer 1, prpn", "layer 2, unbiased", "layer 2, cky", "left-branching", "random", "SBAR", "EVALB"),
    ):
        assert fact in output, fact
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["coverage"] == 19 / 22
    assert results["groups"]["all"]["labels"]["NP"] == 6
    assert [len(results["rows"]), results["groups"]["short"]["sentences"]] == [12, 2]
    text = (tmp_path / "new" / "page.html").read_text()
    places = [text.index(part) for part in ("3 sentences of", "according to their tags", "Recall by label")]
    assert places == sorted(places)  # what was scored is said beside the numbers
    page = Page(text)
    assert page.open == page.external == []
    traces = embedded(text)
    assert [len(trace["tokens"]) for trace in traces] == [13, 5]  # the sentence of three words is too short
    for trace in traces:
        assert [layer["name"] for layer in trace["layers"]] == ["layer 1", "layer 2"]
        assert trace["true_nodes"]


def test_the_page_stands_beside_the_checkpoint_and_a_layer_can_be_chosen(directory, capsys):
    options = ["--treebank", str(directory / "trees.mrg"), "--layer", "2", "--max-words", "5"]
    assert main(["--checkpoint", str(directory / "text.safetensors"), *options, "--keep-punctuation"]) == 0
    output = capsys.readouterr().out
    assert "layer 1" not in output
    assert "layer 2, cky" in output
    assert "are kept" in output
    facts = (
        r"1 sentence of .*, 4 words \(4\.0 a sentence\), 0 sentences of one word; left out: 0 without words"
    )
    assert re.search(facts, " ".join(output.split()))
    assert (directory / "parsing.html").exists()


def test_lines_are_as_long_as_the_terminal_has_room_for(directory, monkeypatch, capsys):
    command = [
        "--checkpoint",
        str(directory / "text.safetensors"),
        "--treebank",
        str(directory / "trees.mrg"),
    ]
    assert main(command) == 0
    whole = capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    assert main(command) == 0
    narrow, _ = capsys.readouterr().out.split("\n\nreport: ")
    assert max(map(len, whole.splitlines())) > 100
    paths = {word for word in narrow.split() if len(word) > 60}
    assert all(len(line) <= 60 or paths.intersection(line.split()) for line in narrow.splitlines())
    assert set(whole.split("\n\nreport: ")[0].split()) == set(narrow.split())


def test_a_page_without_short_sentences_says_what_was_scored_and_how(directory, tmp_path):
    treebank, page = tmp_path / "long.mrg", tmp_path / "page.html"
    treebank.write_text(f"(S {'(NN cat) ' * 11})")
    options = ["--checkpoint", directory / "text.safetensors", "--treebank", treebank, "--output", page]
    assert main([*map(str, options)]) == 0
    text = page.read_text()
    assert "sentences of at most" not in text.partition("Published")[0]
    assert "1 sentence of" in text
    best = r"F1 corpus 0\.1818 with layer 1, prpn: the maximum over the model.{1,5}s layers and decoders on "
    assert re.search(best + r"the evaluated trees\. Left-branching, the best baseline, has 0\.1818\.", text)
    assert "F1 corpus: corpus level" in text


def test_a_treebank_of_other_tags(directory, tmp_path, capsys):
    treebank = tmp_path / "zh.mrg"
    treebank.write_text("(IP (NP (NR a) (NN b)) (VP (AD c) (VV d)) (PU .) (-RRB- -RRB-))")
    options = ["--checkpoint", directory / "text.safetensors", "--output", tmp_path / "page.html"]
    options += ["--json", tmp_path / "results.json", "--treebank", treebank]
    assert main([*map(str, options), "--drop-tags", "PU", "PUX"]) == 0
    output, error = capsys.readouterr()
    assert "Words with the tags PU PUX, punctuation of the Penn Treebank and null elements" in output
    assert "Published" not in output
    assert f"warning: --drop-tags PUX: no word of {treebank} has this tag" in error
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["groups"]["all"] == {
        "sentences": 1,
        "of_one_word": 0,
        "words": 4,
        "labels": {"NP": 1, "VP": 1},
    }
    balanced = next(row for row in results["rows"] if row["name"] == "balanced")
    assert balanced["all"]["label_recall"] == {"NP": 1.0, "VP": 1.0}
    (tmp_path / "trees.txt").write_text("((a b) (c d))\n")
    score = ["score", tmp_path / "trees.txt", "--treebank", treebank, "--drop-tags"]
    assert main([*map(str, score), "PU"]) == 0
    assert "Words with the tags PU, punct" in capsys.readouterr().out
    both = ["--keep-punctuation", "--drop-tags", "PU"]
    assert "--drop-tags PU has no effect with --keep-punctuation" in fails(capsys, *options, *both)


def test_a_model_of_text_with_punctuation_is_said_to_read_none(directory, tmp_path, capsys):
    words = Vocabulary(["<eos>", "<unk>", "the", "cat", "dog", "sees", "."])
    path = checkpoint(tmp_path / "text.safetensors", words, data_dir=tmp_path)
    (tmp_path / "plain.mrg").write_text("(S (NP (DT the) (NN cat)) (VBZ sees))")
    fact = "vocabulary has punctuation, but the model reads these sentences without it"
    for model, treebank, options, is_said in (
        (path, directory / "trees.mrg", [], True),
        (path, directory / "trees.mrg", ["--keep-punctuation"], False),
        (path, tmp_path / "plain.mrg", [], False),
        (directory / "text.safetensors", directory / "trees.mrg", [], False),
    ):
        files = ["--checkpoint", model, "--treebank", treebank, "--output", tmp_path / "page.html"]
        assert main([*map(str, files), *options]) == 0
        assert (fact in " ".join(capsys.readouterr().out.split())) == is_said
        assert (fact in " ".join((tmp_path / "page.html").read_text().split())) == is_said


def test_the_page_of_an_exported_model_stands_in_its_directory(directory, tmp_path, monkeypatch):
    load_model(directory / "text.safetensors").save_pretrained(tmp_path / "models" / "mine")
    options = ["--treebank", str(directory / "trees.mrg"), "--layer", "2"]
    assert main(["--checkpoint", str(tmp_path / "models" / "mine"), *options]) == 0
    assert (tmp_path / "models" / "mine" / "parsing.html").exists()
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "models" / "mine"
    monkeypatch.setattr("tasks.runs.hub.snapshot_download", lambda name, **options: model)
    assert main(["--checkpoint", "owner/name", *options]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models", "parsing.html"]


def test_prpn_has_the_distances_of_one_layer(directory, tmp_path, capsys):
    options = ["--checkpoint", str(directory / "prpn.safetensors")]
    page = tmp_path / "page.html"
    assert main([*options, "--treebank", str(directory / "trees.mrg"), "--output", str(page)]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "Distances of PRPN are in (0, 1); CKY with temperature 0.01." in output
    assert re.search(r"PRPN, layer 1, prpn 0\.374 0\.705 right-branching 0\.398 – ", output)
    assert "ON-LSTM" not in output
    assert "layer 1, prpn" in output
    assert "layer 2, cky" not in output
    assert "Unsupervised parsing with PRPN" in page.read_text()
    assert main(["parse", "the cat sees the dog", *options, "--decoding", "unbiased"]) == 0
    assert "layer 1: distances in (0, 1)" in capsys.readouterr().out


@pytest.mark.parametrize(("model", "default", "other"), [("text", "1", "0.01"), ("prpn", "0.01", "1")])
def test_the_default_temperature_is_that_of_the_model(directory, tmp_path, model, default, other):
    path = directory / f"{model}.safetensors"
    found = []
    for temperature in ([], ["--temperature", default], ["--temperature", other]):
        options = ["--checkpoint", path, "--treebank", directory / "trees.mrg", *temperature]
        outputs = ["--output", tmp_path / "page.html", "--json", tmp_path / "results.json"]
        assert main([*map(str, [*options, *outputs])]) == 0
        results = json.loads((tmp_path / "results.json").read_text())
        traces = embedded((tmp_path / "page.html").read_text())
        found.append((results["config"]["temperature"], results["rows"], traces))
    assert found[0] == found[1]
    assert all(one != other for one, other in zip(found[0], found[2], strict=True))
    trained = load_model(path)
    shown = trace_sentence(trained, ["the", "cat", "sees", "that"], [1])
    assert shown == trace_sentence(trained, ["the", "cat", "sees", "that"], [1], float(default))


def test_the_temperature_reaches_the_trees_of_a_text_and_of_a_typed_sentence(directory, tmp_path, capsys):
    text = "the dog of the cat sees that the cat sees the dog"
    words, trained = text.split(), load_model(directory / "text.safetensors")
    (distances,) = distances_of_sentences(trained, [words], ["here"])
    (tmp_path / "text.txt").write_text(f"{text}\n")
    options = ["--checkpoint", str(directory / "text.safetensors"), "--layer", "2"]
    cky, trees = ["--decoding", "cky"], []
    for temperature in (0.001, 100.0):
        temperatures = ["--temperature", str(temperature)]
        (tree,) = decode([distances[1]], "cky", temperature)
        assert main(["trees", str(tmp_path / "text.txt"), *options, *cky, *temperatures]) == 0
        assert from_brackets(capsys.readouterr().out)[0] == tree
        assert main(["parse", text, *options, *cky, *temperatures]) == 0
        assert tree_text(tree, words) in capsys.readouterr().out
        assert main(["trace", text, *options, *temperatures, "--json", "-"]) == 0
        (trace,) = json.loads(capsys.readouterr().out)["traces"]
        assert trace["layers"][0]["trees"]["cky"] == nodes_of(tree)
        trees.append(tree)
    assert trees[0] != trees[1]


def test_a_model_of_drawn_sentences_needs_no_treebank(directory, capsys):
    assert main(["evaluate", "--checkpoint", str(directory / "drawn.safetensors")]) == 0
    output = capsys.readouterr().out
    assert "20 sentences of the generated test data" in output
    assert "100.00% of the words" in output
    assert "Published" not in output


def test_published_results_are_those_of_the_evaluated_model(directory, tmp_path, capsys):
    (tmp_path / "trees.txt").write_text("(a b)\n")
    (tmp_path / "gold.mrg").write_text("(S (NN a) (NN b))\n")
    options = ["--treebank", str(tmp_path / "gold.mrg")]
    assert main(["score", str(tmp_path / "trees.txt"), *options]) == 0
    of_any = capsys.readouterr().out
    assert "1 sentence of" in of_any
    page = ["--output", str(tmp_path / "page.html")]
    assert main(["--checkpoint", str(directory / "text.safetensors"), *options, *page]) == 0
    of_model = capsys.readouterr().out
    for layer, values in enumerate(("0.200 0.352", "0.477 0.651", "0.366 0.540"), start=1):
        for out in (of_any, of_model):
            assert f"ON-LSTM, layer {layer}, prpn {values}" in " ".join(out.split())
    assert "PRPN, layer 1, prpn 0.374 0.705" in " ".join(of_any.split())
    assert "PRPN" not in of_model
