"""The command line of tasks.syntax_eval."""

import json
from pathlib import Path

import pytest
import torch

from tasks.language_model.grammar import generate_pairs
from tasks.language_model.model import load_model
from tasks.language_model.vocabulary import Vocabulary
from tasks.syntax_eval.__main__ import main
from tasks.syntax_eval.commands import column_names
from tasks.syntax_eval.scoring import word_log_probabilities
from tests.commands import refusal
from tests.tasks.syntax_eval.tiny import WORDS, pair, save, tiny_model, write_lines


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    torch.manual_seed(1)
    fixed = {"data_dir": Path("text")}
    return [save(root / name, tiny_model(recurrent=name, **fixed)) for name in ("onlstm", "lstm")]


@pytest.fixture
def pairs(tmp_path):
    return write_lines(
        tmp_path / "pairs.jsonl",
        pair("the author laughs", "the author laugh"),
        pair("the authors laugh", "the authors laughs"),
        pair("the poet laughs", "the poet laugh"),
        pair("the poet that likes", "the poet that like", "subj_rel"),
        pair("the author.", "The author", "own"),
    )


def test_evaluate(checkpoints, pairs, tmp_path, capsys):
    target, page = tmp_path / "results.json", tmp_path / "pages" / "report.html"
    options = ["--pairs", str(pairs), "--json", str(target), "--output", str(page)]
    assert main(["evaluate", "--checkpoint", *checkpoints, *options]) == 0
    out = capsys.readouterr().out
    assert "5 pairs in " in out
    assert "5 comparisons of two sentences; 3 covered" in out
    assert "2 scored in" in out
    assert "1 not comparable" in out
    assert "the unweighted mean of its rows with scored comparisons" in out
    assert "* fewer than 100 scored comparisons: 1 row, included in the means." in out
    assert "Published" in out
    header, *lines = out.splitlines()
    assert header.split()[:5] == ["comparisons", "covered", "scored", "onlstm", "lstm"]
    (relative,) = (line for line in lines if "subject relative" in line)
    assert relative.split()[-7:] == ["1", "0", "0", "–", "–", "0.66", "0.60"]
    results = json.loads(target.read_text())
    assert results["constructions"][0] == {
        "construction": "simple_agrmt",
        "kind": "",
        "group": "",
        "pairs": 3,
        "covered": 2,
        "scored": 2,
        "accuracy": results["constructions"][0]["accuracy"],
    }
    assert results["models"] == dict(zip(("onlstm", "lstm"), checkpoints, strict=True))
    assert results["tokenization"] == {"onlstm": "mikolov", "lstm": "mikolov"}
    starts = ("5 pairs in ", "5 comparisons of ", "1 not comparable")
    assert all(note.startswith(start) for note, start in zip(results["notes"], starts, strict=False))
    assert sum(note.startswith("Sentences are ") for note in results["notes"]) == 1  # both read alike
    assert out.endswith(f"\npage: {page}\n")
    assert "Across a subject relative clause" in page.read_text()
    assert "python -m tasks.syntax_eval evaluate" in page.read_text()


def test_unknown_words_that_differ_are_told_to_be_not_comparable(checkpoints, tmp_path, capsys):
    pairs = write_lines(
        tmp_path / "pairs.jsonl", pair("the author", "author the"), pair("the poet", "the baker")
    )
    options = ["--checkpoint", checkpoints[0], "--pairs", str(pairs), "--unknown"]
    assert main(["evaluate", *options, "score"]) == 0
    assert "1 not comparable: to a model, both sentences are the same." in capsys.readouterr().out
    assert main(["evaluate", *options, "skip"]) == 0
    assert "not comparable" not in capsys.readouterr().out


def test_lines_are_as_long_as_the_terminal_has_room_for(checkpoints, pairs, monkeypatch, capsys):
    monkeypatch.chdir(pairs.parent)
    command = ["--checkpoint", *checkpoints, "--pairs", pairs.name]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60


def test_options_change_what_is_scored(checkpoints, pairs, tmp_path, capsys):
    first, rows = ["--checkpoint", checkpoints[0], "--pairs", str(pairs)], tmp_path / "rows.jsonl"
    options = ["--unknown", "score", "--no-end", "--limit", "1", "--predictions", str(rows)]
    assert main([*first, *options]) == 0
    out = capsys.readouterr().out
    assert "3 of them used (--limit 1 for each construction, evenly spaced)" in out
    assert "without the end of the sentence" in out
    assert "read as <unk>" in out
    assert "2 scored in" in out
    trained, row = load_model(Path(checkpoints[0])), json.loads(rows.read_text().splitlines()[0])
    words = trained.vocabulary.encode(row["good"].split(), "")
    expected = float(word_log_probabilities(trained.model, words)[:-1].sum())  # but for that of the end
    assert row["log_probabilities"]["onlstm"]["good"] == pytest.approx(expected, abs=1e-5)


def test_models_of_drawn_sentences_need_no_pairs(tmp_path, capsys):
    drawn = generate_pairs(5, 1)
    vocabulary = Vocabulary.from_sentences([*(one.good for one in drawn), *(one.bad for one in drawn)])
    checkpoint = save(tmp_path / "run", tiny_model(vocabulary, sentences=100))
    assert main(["--checkpoint", checkpoint, "--count", "5"]) == 0
    out = capsys.readouterr().out
    assert f"{len(drawn)} pairs generated." in out
    assert f"{len(drawn)} covered" in out
    assert all(one.construction in out for one in drawn)
    assert "Published" not in out


def test_the_seed_draws_the_pairs(tmp_path):
    checkpoint = save(tmp_path / "run", tiny_model(sentences=100))
    options = ["--checkpoint", checkpoint, "--count", "3", "--unknown", "score"]
    predictions = [tmp_path / name for name in ("first", "second", "again")]
    for path, seed in zip(predictions, ("1", "2", "1"), strict=True):
        assert main([*options, "--seed", seed, "--predictions", str(path)]) == 0
    first, second, again = (path.read_text() for path in predictions)
    assert first == again != second


def test_nothing_to_score_still_prints_the_table(checkpoints, tmp_path, capsys):
    path = write_lines(tmp_path / "pairs.jsonl", pair("a poet swims", "a poet swim"))
    assert main(["--checkpoint", checkpoints[0], "--pairs", str(path)]) == 2
    out, err = capsys.readouterr()
    assert "Simple" in out
    assert "–" in out
    assert err.count("\n") == 1
    message = "nothing could be scored: none of 1 pair has only words that all models know"
    assert message in err
    assert "; --unknown score reads unknown words as <unk>" in err
    assert main(["--checkpoint", checkpoints[0], "--pairs", str(path), "--unknown", "score"]) == 2
    assert capsys.readouterr().err.endswith("none of 1 pair has sentences that all models distinguish\n")


def test_score(checkpoints, capsys):
    assert main(["score", "The author laughs.", "the poet", "--checkpoint", checkpoints[0]]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[1:] for line in lines[:5]] == [
        ["the", "author", "laughs"],
        *([w] for w in WORDS[2:3]),
        ["author"],
        ["laughs"],
        ["<eos>"],
    ]
    assert float(lines[0][0]) == pytest.approx(sum(float(line[0]) for line in lines[1:5]), abs=1e-3)
    assert lines[7][1:] == ["poet", "(<unk>)"]
    assert lines[9][:5] == ["Log-probability", "in", "nats", "of", "the"]
    assert main(["score", "the poet", "--no-end", "--checkpoint", checkpoints[0]]) == 0
    *_, last_word, note = capsys.readouterr().out.splitlines()
    assert last_word.split()[1:] == ["poet", "(<unk>)"]
    assert "without the end of the sentence" in note
    assert "normalized as in Mikolov's Penn Treebank text" in note


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--json", "no/such.json"], "--json no/such.json: there is no directory no"),
        (["--limit", "-1"], "--limit must not be negative, got -1"),
        (["--count", "0"], "--count must be at least 1, got 0"),
        (["--seed", "-3"], "--seed must not be negative, got -3"),
        (["--checkpoint"], "--checkpoint must name at least one file"),
        (["--checkpoint", "a", "b", "a"], "--checkpoint names a more than once"),
        (["--checkpoint", "nowhere.safetensors"], "nowhere.safetensors: no such checkpoint"),
        (["score"], "give one or more sentences, each in quotes"),
        (["guess"], "unknown subcommand 'guess'"),
        (["--pairs", "p", "--count", "5"], "--count 5 has no effect with --pairs"),
        (["--pairs", "p", "--seed", "5"], "--seed 5 has no effect with --pairs"),
    ],
)
def test_bad_options_are_told_in_one_line(arguments, message, capsys):
    assert message in refusal(main, capsys, *arguments)


def test_bad_input_is_told_in_one_line(checkpoints, tmp_path, capsys):
    first = ["--checkpoint", checkpoints[0]]
    for arguments, message in [
        (first, "--pairs must name a file: " + checkpoints[0]),
        ([*first, "--pairs", str(tmp_path / "none")], "none: no such file"),
        (["score", *first, "?"], "sentence 1 has no words: '?'"),
        (["score", *first, "the author <eos>"], "sentence 1: expected no <eos>, which is added at the end"),
        (["score", *first, "a \udcff"], "sentence 1: expected Unicode text, got '\\udcff' as character 3"),
    ]:
        assert message in refusal(main, capsys, *arguments)


def test_columns_with_the_same_name_have_their_paths():
    paths = [Path(run, "best.safetensors") for run in ("a/run", "b/run", "b/other")]
    assert column_names(paths) == ["a/run/best.safetensors", "b/run/best.safetensors", "other"]


def test_columns_of_exported_models_have_their_names():
    paths = [Path("exports/first"), Path("owner/second"), Path("runs/third/best.safetensors")]
    assert column_names(paths) == ["first", "second", "third"]


CASED = Vocabulary(["<eos>", "<unk>", "The", "the", "author", "laughs", "laugh", "."])


def test_a_vocabulary_with_punctuation_reads_sentences_as_in_the_treebank(tmp_path, capsys):
    cased = save(tmp_path / "cased", tiny_model(CASED, data_dir=Path("text")))
    assert main(["score", "The author laughs.", "Who laughs", "--checkpoint", cased]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[1] for line in lines[1:6]] == ["The", "author", "laughs", ".", "<eos>"]
    assert [line[1:] for line in lines[7:-1]] == [["who", "(<unk>)"], ["laughs"], ["."], ["<eos>"]]
    assert main(["score", "laughs.", "--tokenization", "spaces", "--checkpoint", cased]) == 0
    assert "laughs. (<unk>)" in capsys.readouterr().out
    assert main(["score", "laughs", "--no-final-period", "--checkpoint", cased]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[:-1]] == [
        "laughs",
        "laughs",
        "<eos>",
    ]


def test_no_final_period_is_refused_where_no_period_would_be_added(tmp_path, capsys):
    cased = save(tmp_path / "cased", tiny_model(CASED, data_dir=Path("text")))
    options = ["--no-final-period", "--tokenization", "spaces", "--checkpoint", cased]
    assert main(["score", "laughs", *options]) == 2
    message = "--no-final-period has no effect where sentences are split at spaces\n"
    assert capsys.readouterr().err.endswith(message)


def test_each_model_reads_sentences_in_its_own_way(tmp_path, capsys):
    """A model is compared on the same sentences, however many others are."""
    words = [word for word in CASED.words if word not in ("The", ".")]
    cased = save(tmp_path / "cased", tiny_model(CASED, data_dir=Path("text")))
    lower = save(tmp_path / "lower", tiny_model(Vocabulary(words), data_dir=Path("text")))
    path = write_lines(
        tmp_path / "pairs.jsonl",
        pair("The author laughs.", "The author laugh."),
        pair("the author laughs .", "The author laughs ."),  # the same, if normalized
    )
    results = {}
    for checkpoints in ([cased], [lower], [lower, cased]):
        output = tmp_path / "results.json"
        options = ["--pairs", str(path), "--json", str(output)]
        assert main(["--checkpoint", *checkpoints, *options]) == 0
        out = capsys.readouterr().out
        assert "2 covered" in out
        results[len(checkpoints), checkpoints[0]] = json.loads(output.read_text())["lines"][-1]
    assert [result["scored"] for result in results.values()] == [2, 1, 1]
    assert results[2, lower]["accuracy"]["lower"] == results[1, lower]["accuracy"]["lower"]
    assert "For lower, sentences are normalized as in Mikolov's" in out
    assert "For cased, sentences are split into words and punctuation" in out


def test_sentences_that_are_compared_with_unknown_words_are_counted(checkpoints, tmp_path, capsys):
    path = write_lines(
        tmp_path / "pairs.jsonl",
        pair("the author laughs", "the author swims"),
        pair("the poet laughs", "the poet laugh"),
    )
    options = ["--pairs", str(path), "--unknown", "score"]
    assert main(["--checkpoint", checkpoints[0], *options]) == 0
    assert "1 of the scored ones compares a word with <unk>." in capsys.readouterr().out


def test_a_pair_with_the_end_of_a_sentence_is_refused(checkpoints, tmp_path, capsys):
    path = write_lines(tmp_path / "pairs.jsonl", pair("the author laughs", "the author <eos>"))
    assert main(["--checkpoint", checkpoints[0], "--pairs", str(path)]) == 2
    message = "sentence 'the author <eos>': expected no <eos>, which is added at the end of each sentence\n"
    assert capsys.readouterr().err.endswith(message)


@pytest.mark.parametrize(
    ("output", "message"),
    [("-", "--output -: must name a file"), ("pages", "is a directory"), ("sealed/x", "no permission")],
)
def test_a_page_that_cannot_be_written_is_told_before_scoring(
    checkpoints, pairs, tmp_path, monkeypatch, capsys, output, message
):
    (tmp_path / "pages").mkdir()
    (tmp_path / "sealed").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.access", lambda path, mode: "sealed" not in str(path))
    monkeypatch.setattr("tasks.syntax_eval.commands.score_pairs", lambda *arguments, **options: 1 / 0)
    assert main(["--checkpoint", checkpoints[0], "--pairs", str(pairs), "--output", output]) == 2
    assert message in capsys.readouterr().err


def test_the_table_is_printed_before_files_are_written(checkpoints, pairs, tmp_path, monkeypatch, capsys):
    def failing(*arguments):
        raise OSError(28, "No space left on device", "page.html")

    monkeypatch.setattr("tasks.syntax_eval.commands.write_page", failing)
    options = ["--pairs", str(pairs), "--output", str(tmp_path / "page.html")]
    assert main(["--checkpoint", checkpoints[0], *options]) != 0
    out, error = capsys.readouterr()
    assert "Simple" in out
    assert "No space left on device" in error
