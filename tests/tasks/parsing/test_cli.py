"""`python -m tasks.parsing`: parsing typed sentences and texts, bad input, help."""

import pytest
import torch

from ordered_memory.brackets import from_brackets
from ordered_memory.draw import distances_figure, distances_text
from ordered_memory.tree_recovery import from_distances
from tasks.language_model.model import load_model
from tasks.language_model.reading import distances_of_sentences
from tasks.language_model.vocabulary import Vocabulary
from tasks.parsing.__main__ import main
from tests.tasks.parsing.tiny import checkpoint, fails


def test_parse_shows_distances_and_every_tree_and_draws(directory, tmp_path, capsys):
    options = ["--checkpoint", str(directory / "text.safetensors"), "--plot", str(tmp_path / "new" / "d.png")]
    assert main(["parse", "The cat sees 3 zebras", *options]) == 0
    output = capsys.readouterr().out
    assert "read as: the cat sees N <unk>" in output
    assert output.count("distances in master-gate entries") == 2
    leaves = [line.split() for line in output.splitlines() if "zebras" in line and "cat" in line]
    assert leaves == [["The", "cat", "sees", "3", "zebras"]] * 6
    assert (tmp_path / "new" / "d.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "layers", "decoding"),
    [([], [1, 2], "prpn"), (["--layer", "2", "--decoding", "unbiased"], [2], "unbiased")],
)
def test_parse_prints_and_plots_the_distances_of_the_layers(
    directory, tmp_path, monkeypatch, capsys, options, layers, decoding
):
    words, checkpoint = ["the", "dog", "of", "the", "cat", "sees"], directory / "text.safetensors"
    drawn = []
    monkeypatch.setattr(
        "tasks.parsing.commands.distances_figure", lambda *of: drawn.append(of) or distances_figure(*of)
    )
    plot = ["--checkpoint", str(checkpoint), "--plot", str(tmp_path / "d.png")]
    assert main(["parse", " ".join(words), *plot, *options]) == 0
    output = capsys.readouterr().out
    [[plotted, words_plotted, trees, names]] = drawn
    (distances,) = distances_of_sentences(load_model(checkpoint), [words], ["here"])
    expected = distances[[layer - 1 for layer in layers]]
    assert torch.equal(plotted, expected)
    assert words_plotted == words
    assert trees == from_distances(expected, [6] * len(layers), decoding=decoding, batch_first=True)
    assert names == [f"layer {layer}, {decoding}" for layer in layers]
    assert all(distances_text(d.tolist(), words) in output for d in expected)


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
    assert main(["trees", str(text), *options, "--layer", "1"]) == 0
    of_first = capsys.readouterr().out.split("\n")[0]
    trained = load_model(directory / "text.safetensors")
    for layer, line in enumerate((of_first, trees[0])):
        tree, words = from_brackets(line)
        assert words == ["the", "cat", "sees", "the", "dog"]
        (distances,) = distances_of_sentences(trained, [words], ["here"])
        assert tree == from_distances(distances[[layer]], [5], decoding="cky", batch_first=True)[0]
    assert of_first != trees[0]
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


def test_the_tokenization_that_is_asked_for_is_the_one_that_is_read(directory, tmp_path, capsys):
    words = Vocabulary(["<eos>", "<unk>", "The", "the", "Cat", "cat", "."])
    path = checkpoint(directory / "cased.safetensors", words, data_dir=directory)
    options = ["parse", "The Cat", "--checkpoint", str(path), "--tokenization"]
    for tokenization, read in (("auto", "The Cat"), ("spaces", "The Cat"), ("mikolov", "the cat")):
        assert main([*options, tokenization]) == 0
        assert f"read as: {read}\n" in capsys.readouterr().out
    (tmp_path / "text.txt").write_text("The Cat\n")
    assert main(["trees", str(tmp_path / "text.txt"), "--tokenization", "auto", *options[2:4]]) == 0
    assert capsys.readouterr().out == "( The Cat )\n"  # the tree has no word that the text has not
