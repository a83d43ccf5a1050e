"""The command line of tasks.parsing: subcommands, and every kind of bad input as one line with status 2."""

import dataclasses
import json
import re
from functools import partial

import pytest
import torch

from ordered_memory.brackets import from_brackets
from ordered_memory.draw import tree_text
from ordered_memory.trace import nodes_of
from ordered_memory.tree_recovery import from_distances
from tasks.language_model.config import LanguageModelConfig
from tasks.language_model.corpus import load_corpus
from tasks.language_model.model import build_model, load_model
from tasks.language_model.reading import distances_of_sentences, trace_sentence
from tasks.language_model.vocabulary import Vocabulary
from tasks.parsing.__main__ import main
from tasks.parsing.evaluation import LABELS, decode
from tasks.runs.checkpoints import save_tensors
from tasks.runs.saved_config import config_to_dict
from tests.commands import refusal
from tests.tasks.reporting.pages import Page, embedded

fails = partial(refusal, main)

TREES = """
( (S (NP-SBJ (DT The) (NN cat)) (VP (VBZ sees) (NP (DT the) (NN dog))) (. .)) )
( (S (NP-SBJ (DT The) (NN dog)) (VP (VBD paid) (NP ($ $) (CD 3.50) (-NONE- *U*))) (. .)) )
( (NP (. .) (HYPH -) (HYPH -) (NFP *)) )
( (S (NP (NN cat)) (VP (VBZ sees) (SBAR (IN that) (S (NP (NP (DT the) (NN dog)) (PP (IN of) (NP (NN cat))))
  (VP (VBZ sees) (NP (DT the) (JJ old) (NN cat) (CC and) (NN dog))))))) )
"""
SMALL = LanguageModelConfig(sentences=200, embedding_size=6, hidden_size=8, num_layers=2, chunk_size=2)


def checkpoint(path, vocabulary, **options):
    torch.manual_seed(1)
    config = dataclasses.replace(SMALL, **options)
    model = build_model(config, len(vocabulary))
    save_tensors(path, model.state_dict(), config_to_dict(config) | {"vocabulary": vocabulary.words})
    return path


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Checkpoints of a text and of drawn sentences, and a treebank."""
    path = tmp_path_factory.mktemp("parsing")
    words = Vocabulary(["<eos>", "<unk>", "N", "the", "cat", "dog", "sees", "of", "that"])
    checkpoint(path / "text.safetensors", words, data_dir=path)
    checkpoint(path / "lstm.safetensors", words, data_dir=path, model="lstm")
    checkpoint(path / "prpn.safetensors", words, data_dir=path, model="prpn")
    checkpoint(path / "no_unknown.safetensors", Vocabulary(["<eos>", "the", "cat"]), data_dir=path)
    checkpoint(path / "drawn.safetensors", load_corpus(SMALL).vocabulary)
    (path / "trees.mrg").write_text(TREES)
    (path / "bad.mrg").write_text("(S (NN a))\n(S (NN b)))")
    return path


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
            "22 words",
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


def test_parse_shows_distances_and_every_tree_and_draws(directory, tmp_path, capsys):
    options = ["--checkpoint", str(directory / "text.safetensors"), "--plot", str(tmp_path / "new" / "d.png")]
    assert main(["parse", "The cat sees 3 zebras", *options]) == 0
    output = capsys.readouterr().out
    assert "read as: the cat sees N <unk>" in output
    assert output.count("distances in master-gate entries") == 2
    leaves = [line.split() for line in output.splitlines() if "zebras" in line and "cat" in line]
    assert leaves == [["The", "cat", "sees", "3", "zebras"]] * 6
    assert (tmp_path / "new" / "d.png").read_bytes().startswith(b"\x89PNG")


def test_a_bad_layer_leaves_no_directory_for_the_plot(directory, tmp_path, capsys):
    options = ["--checkpoint", str(directory / "text.safetensors"), "--layer", "9"]
    assert main(["parse", "cat", *options, "--plot", str(tmp_path / "new" / "d.png")]) == 2
    assert "--layer must be in 1..2, got 9" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_parse_one_layer_one_decoding_one_word(directory, capsys):
    options = ["--checkpoint", str(directory / "text.safetensors"), "--layer", "2", "--decoding", "cky"]
    assert main(["parse", "cat", *options]) == 0
    output = capsys.readouterr().out
    assert "layer 2, cky" in output
    assert "prpn" not in output
    assert "layer 1" not in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fly"], "unknown subcommand 'fly': expected one of evaluate, parse, trees, score, trace"),
        (["--checkpoint", "none.safetensors"], "none.safetensors: no such checkpoint"),
        (["--checkpoint", "lstm.safetensors"], "lstm.safetensors: an LSTM has no distances"),
        (["--checkpoint", "trees.mrg"], "trees.mrg: not a checkpoint of this project"),
        (["--checkpoint", "text.safetensors"], "--treebank must name true trees"),
        (["--layer", "3"], "--layer must be in 1..2, got 3"),
        (["--checkpoint", "prpn.safetensors", "--layer", "2"], "--layer must be in 1..1"),
        (["--layer", "0"], "--layer must be in 1..2, got 0"),
        (["--temperature", "0"], "--temperature must lie in [1e-06, 1e+06], got 0.0"),
        (["--temperature", "nan"], "--temperature must lie in [1e-06, 1e+06], got nan"),
        (["--json", "no/such.json"], "--json no/such.json: there is no directory no"),
        (["--max-words", "0"], "--max-words must be at least 1, got 0"),
        (["--max-words", "2"], "--max-words 2 leaves none of 3 sentences"),
        (["--treebank", "none"], "none: no such file or directory"),
        (["--treebank", "bad.mrg"], "bad.mrg, line 2: ')' closes nothing"),
        (
            ["--checkpoint", "no_unknown.safetensors"],
            "trees.mrg, line 2: 'sees' is not in the vocabulary, which has no <unk>",
        ),
        (["parse", "a \udcff"], "the sentence: expected Unicode text, got '\\udcff' as character 3"),
        (["parse", ""], "the sentence must have 1 to 60 words, got 0"),
        (["parse", "a " * 61], "the sentence must have 1 to 60 words, got 61"),
        (["parse", "a", "--layer", "9"], "--layer must be in 1..2, got 9"),
        (["parse", "a", "--temperature", "-1"], "--temperature must lie in [1e-06, 1e+06], got -1.0"),
        (["parse", "a", "--checkpoint", "lstm.safetensors"], "an LSTM has no distances"),
        (["parse", "zebra", "--checkpoint", "no_unknown.safetensors"], "the sentence: 'zebra' is not in"),
        (["parse", "the <eos>"], "the sentence: expected no <eos>, which is added at the end of each"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(directory, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(directory)
    if "--checkpoint" not in words:
        words = [*words, "--checkpoint", "text.safetensors"]
    evaluating = words[0] not in ("parse", "fly")
    if evaluating and "--treebank" not in words and "--treebank" not in message:
        words = [*words, "--treebank", "trees.mrg"]
    if evaluating:
        words = [*words, "--output", str(tmp_path / "page.html")]
    assert message in fails(capsys, *words)
    assert not list(tmp_path.iterdir())


def test_help_documents_every_option(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    for fact in ("--treebank", "--keep-punctuation", "--temperature", "--max-words", "bracket"):
        assert fact in text


def test_a_text_becomes_a_tree_per_line(directory, tmp_path, capsys):
    text, output = tmp_path / "text.txt", tmp_path / "trees.txt"
    text.write_text("the cat sees the dog\n\ndog\nthe (cat) sees\n")
    options = ["--checkpoint", str(directory / "text.safetensors"), "--decoding", "cky"]
    assert main(["trees", str(text), *options]) == 0
    trees = capsys.readouterr().out.split("\n")
    assert trees[1:3] == ["", "dog"]
    assert trees[4:] == [""]
    assert "-LRB-cat-RRB-" in trees[3]
    assert main(["trees", str(text), *options, "--output", str(output), "--layer", "2"]) == 0
    assert output.read_text().split("\n") == trees  # the second of two layers is the default
    tree, words = from_brackets(trees[0])
    assert words == ["the", "cat", "sees", "the", "dog"]
    trained = load_model(directory / "text.safetensors")
    (distances,) = distances_of_sentences(trained, [words], ["here"])
    assert tree == from_distances(distances[1:], [5], decoding="cky", batch_first=True)[0]
    with pytest.raises(TypeError, match="sentences must be lists of words, got the text 'the cat'"):
        distances_of_sentences(trained, ["the cat"], ["here"])


def test_a_word_with_a_no_break_space_is_one_leaf(directory, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("the 3\u00a01/2 cats\n", encoding="utf-8")
    options = ["--checkpoint", str(directory / "text.safetensors")]
    assert main(["trees", str(tmp_path / "text.txt"), *options]) == 0
    assert from_brackets(capsys.readouterr().out)[1] == ["the", "3\u00a01/2", "cats"]


def test_an_unknown_word_of_a_text_is_named_with_its_line(directory, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("the cat\n\nthe zebra\n")
    error = fails(capsys, "trees", text, "--checkpoint", directory / "no_unknown.safetensors")
    assert "text.txt, line 3: 'zebra' is not in the vocabulary" in error


def test_a_sentence_that_is_too_long_for_cky_is_named(directory, tmp_path, capsys):
    text, treebank = tmp_path / "text.txt", tmp_path / "trees.mrg"
    text.write_text(f"the cat\n{'the ' * 801}\n")
    options = ["--checkpoint", directory / "text.safetensors"]
    error = fails(capsys, "trees", text, *options, "--decoding", "cky")
    assert "text.txt, line 2: CKY takes at most 800 words, got 801; --decoding" in error
    assert main([*map(str, ["trees", text, *options])]) == 0
    treebank.write_text(f"(S (NN cat) (NN cat))\n(S {'(NN cat) ' * 801})")
    options += ["--treebank", treebank, "--output", tmp_path / "page.html"]
    error = fails(capsys, "evaluate", *options)
    assert "trees.mrg, line 2: CKY takes at most 800 words, got 801; --max-words leaves out" in error
    assert main([*map(str, ["evaluate", *options, "--max-words", "800"])]) == 0


def test_the_trees_of_prpn_have_its_only_layer(directory, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("the cat\n")
    assert (
        main(["trees", str(tmp_path / "text.txt"), "--checkpoint", str(directory / "prpn.safetensors")]) == 0
    )
    assert capsys.readouterr().out == "( the cat )\n"


def test_natural_text_is_split_as_the_text_of_the_model(directory, tmp_path, capsys):
    options = ["--checkpoint", str(directory / "prpn.safetensors")]
    assert main(["parse", "The cat, he said, isn't 3 years old!", *options]) == 0
    output = capsys.readouterr().out
    assert "read as: the cat <unk> <unk> <unk> <unk> N <unk> <unk>" in output
    assert main(["parse", "The cat, he", "--tokenization", "spaces", *options]) == 0
    assert "read as: the <unk> <unk>\n" in capsys.readouterr().out
    assert main(["parse", "the 5% .", *options]) == 0
    assert "read as: the N N\n" in capsys.readouterr().out
    text = tmp_path / "text.txt"
    text.write_text("The dog.\n\n!\nCats aren't dogs.\n")
    assert main(["trees", str(text), *options]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "( The dog. )"
    assert main(["trees", str(text), "--tokenization", "auto", *options]) == 0
    first, *empty, last = capsys.readouterr().out.splitlines()
    assert (first, empty) == ("( the dog )", ["", ""])
    assert from_brackets(last)[1] == ["cats", "are", "n't", "dogs"]


def test_the_tokenization_that_is_asked_for_is_the_one_that_is_read(directory, capsys):
    words = Vocabulary(["<eos>", "<unk>", "The", "the", "Cat", "cat", "."])
    path = checkpoint(directory / "cased.safetensors", words, data_dir=directory)
    options = ["parse", "The Cat", "--checkpoint", str(path), "--tokenization"]
    for tokenization, read in (("auto", "The Cat"), ("spaces", "The Cat"), ("mikolov", "the cat")):
        assert main([*options, tokenization]) == 0
        assert f"read as: {read}\n" in capsys.readouterr().out


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
    for text in ("((a b) (c d))", "((((a) b)) (((c (d)))))", "(((a b) (c d)))"):
        (tmp_path / "trees.txt").write_text(text)
        assert main(["score", str(tmp_path / "trees.txt"), *options]) == 0
        found.append(json.loads((tmp_path / "results.json").read_text())["rows"])
    assert found[0] == found[1] == found[2]


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
    ],
)
def test_a_bad_line_among_labeled_trees_is_named(tmp_path, capsys, line, complaint):
    gold, trees = tmp_path / "gold.mrg", tmp_path / "trees.txt"
    gold.write_text("(S (NP (DT a) (NN b)) (VP (VB c)))\n(NP (DT d) (NN e))\n")
    trees.write_text(f"(S (NP (DT a) (NN b)) (VP (VB c)))\n{line}\n")
    assert f"trees.txt, line 2: {complaint}" in fails(capsys, "score", trees, "--treebank", gold)


def test_unlabeled_trees_may_have_constituents_that_begin_with_words(tmp_path, capsys):
    (tmp_path / "gold.mrg").write_text(
        "(S (NP (DT a) (NN dog)) (VP (VBZ sees) (NP (DT the) (NN cat))))\n"
        "(S (DT a) (NP (JJ small) (NN dog)) (VB runs))\n"
    )
    options = ["--treebank", str(tmp_path / "gold.mrg"), "--json", str(tmp_path / "results.json")]
    (tmp_path / "trees.txt").write_text("((a dog) (sees (the cat)))\n(a (small dog) runs)\n")
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
