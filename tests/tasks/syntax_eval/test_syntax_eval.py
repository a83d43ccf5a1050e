"""Minimal pairs: reading, normalising, scoring, counting, and the command line."""

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from onlstm.language_model import LanguageModel
from tasks.language_model.config import LanguageModelConfig
from tasks.language_model.grammar import draw_pairs
from tasks.language_model.model import Trained, build_model
from tasks.language_model.vocabulary import Vocabulary
from tasks.runs.checkpoints import save_weights
from tasks.runs.errors import UserError
from tasks.runs.run_directory import config_to_dict
from tasks.syntax_eval.__main__ import main
from tasks.syntax_eval.commands import column_names
from tasks.syntax_eval.evaluation import Key, Tally, compare
from tasks.syntax_eval.normalize import normalize
from tasks.syntax_eval.pairs import Pair, read_pairs, spread
from tasks.syntax_eval.paper_table import KINDS, PAPER_ROWS, PUBLISHED_MODELS, rows_for
from tasks.syntax_eval.report import lines_of, results_text
from tasks.syntax_eval.scoring import log_probabilities, word_log_probabilities

MARVIN_LINZEN = {
    **dict.fromkeys(
        ("simple_agrmt", "sent_comp", "vp_coord", "long_vp_coord", "prep_anim", "prep_inanim"), 1
    ),
    **dict.fromkeys(("subj_rel", "simple_reflexives", "reflexive_sent_comp", "reflexives_across"), 1),
    **{
        f"obj_rel_{that}{place}_{noun}": 1
        for that in ("", "no_comp_")
        for place in ("across", "within")
        for noun in ("anim", "inanim")
    },
    **{f"{place}_{noun}": 3 for place in ("simple_npi", "npi_across") for noun in ("anim", "inanim")},
}
"""All 22 cases, with the number of comparisons in each."""

WORDS = ["<eos>", "<unk>", "the", "author", "authors", "laughs", "laugh", "that", "like", "likes", "N", "no"]
VOCABULARY = Vocabulary(WORDS)


def tiny_model(vocabulary=VOCABULARY, recurrent="onlstm", **changes):
    options = {"embedding_size": 6, "hidden_size": 8, "num_layers": 2, "chunk_size": 2, "backend": "sequence"}
    config = LanguageModelConfig(model=recurrent, **{**options, **changes})
    return Trained(build_model(config, len(vocabulary)).eval(), vocabulary, config)


def save(directory, trained):
    directory.mkdir(parents=True)
    metadata = config_to_dict(trained.config) | {"vocabulary": trained.vocabulary.words}
    save_weights(directory / "best.safetensors", trained.model, metadata)
    return str(directory / "best.safetensors")


def write_lines(path, *records):
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def pair(good, bad, construction="simple_agrmt", **fields):
    return {"case": construction, "good": good, "bad": bad, **fields}


@pytest.mark.parametrize(
    "text",
    [
        "the author next to the security guard laughs",
        "no authors that the security guards like have ever been popular",
        "the author knows many different foreign languages and is twenty three years old",
        "does n't mr. <unk> say john 's $ N is N N of the airlines ' 30-year u.s. debt in the 1980s",
        "he works for j.p. morgan & co.",
        "the '80s were n't",
    ],
)
def test_text_in_that_form_stays_as_it_is(text):
    assert normalize(text) == tuple(text.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Who should Derek hug after shocking Richard?", "who should derek hug after shocking richard"),
        ("Can't Beth's ex-wives, who've won't, see it!", "ca n't beth 's ex-wives who 've wo n't see it"),
        (
            "It\u2019s the girls' 1,000 books; we'd've cannot.",
            "it 's the girls ' N books we 'd 've can not",
        ),
        ("“A $3.5 million (or 12%) share” -- at 10:30 a.m.", "a $ N million or N N share at N a.m."),
        ("She is taller than I.", "she is taller than i"),
        ("In 1987-88 it rose 3-4 %.", "in N it rose N N"),
        ("%" * 5_000, "N " * 5_000),
        ("$" * 5_000, "$ " * 5_000),
        ("a" + "'s" * 5_000, "a" + " 's" * 5_000),
        ("He sold 1/2 of the $300-a-share stock...", "he sold N of the $ 300-a-share stock"),
        ("?!", ""),
    ],
)
def test_natural_text(text, expected):
    assert normalize(text) == tuple(expected.split())
    assert normalize(expected) == tuple(expected.split())


def test_plain_compressed_and_blimp_in_a_directory(tmp_path):
    intrusive = pair("no author laughs", "the author laughs", "npi", intrusive="an author laughs")
    write_lines(tmp_path / "b.jsonl", pair("the author laughs", "the author laugh"), "", intrusive)
    blimp = {"sentence_good": "They laugh.", "sentence_bad": "They laughs.", "UID": "agreement"}
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write(json.dumps(blimp | {"linguistics_term": "verbs"}) + "\n")
        file.write(json.dumps({"good": "x", "bad": "y"}))
    (tmp_path / "notes.txt").write_text("not read")
    assert read_pairs(tmp_path) == [
        Pair("agreement", ("they", "laugh"), ("they", "laughs"), None, "verbs"),
        Pair("a", ("x",), ("y",)),
        Pair("simple_agrmt", ("the", "author", "laughs"), ("the", "author", "laugh")),
        Pair("npi", ("no", "author", "laughs"), ("the", "author", "laughs"), ("an", "author", "laughs")),
    ]
    assert read_pairs(tmp_path / "a.jsonl.gz") == read_pairs(tmp_path)[:2]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{good", "not JSON"),
        ("[1]", "expected a JSON object, got [1]"),
        (
            {"good": "a", "case": "b"},
            "expected the fields good and bad or sentence_good and sentence_bad",
        ),
        (pair("a", 3), "expected bad to be a string, got 3"),
        (pair("a", "b", ["c"]), "expected case to be a string, got ['c']"),
        (pair("a", "b", intrusive=None), "expected intrusive to be a string, got None"),
        (pair("", "b"), "expected words in good, got ''"),
        (pair("a", " . "), "expected words in bad, got ' . '"),
        (pair("a b", "a b"), "expected two different sentences, got 'a b' twice"),
        (pair("a", "\ud800 b"), "bad: expected Unicode text, got '\\ud800' as character 1"),
        (pair("a", "b", "c\udfff"), "case: expected Unicode text, got '\\udfff' as character 2"),
        (
            '{"good": ' + "[" * 100_000 + "]" * 100_000 + "}",
            "expected a JSON object of strings, got brackets nested too deep",
        ),
        ("1" * 5_000, "not JSON"),
        (pair("a", "b" * (1 << 20)), "expected at most 1,048,576 bytes, got more"),
    ],
)
def test_errors_name_file_line_and_value(line, message, tmp_path):
    path = write_lines(tmp_path / "pairs.jsonl", pair("a", "b"), line)
    with pytest.raises(UserError) as error:
        read_pairs(path)
    assert str(error.value).startswith(f"{path}, line 2: {message}")


def test_more_than_a_file_may_hold(tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.syntax_eval.pairs.MAX_BYTES", 100)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"\n" * 101))
    with pytest.raises(
        UserError, match=r"a\.jsonl\.gz, line 101: expected at most 100 bytes in all, got more"
    ):
        read_pairs(tmp_path / "a.jsonl.gz")


def test_no_pairs(tmp_path):
    with pytest.raises(UserError, match=r"no pairs \(no files \*\.jsonl"):
        read_pairs(tmp_path)
    path = write_lines(tmp_path / "empty.jsonl")
    with pytest.raises(UserError, match=f"{path}: no pairs"):
        read_pairs(path)
    with pytest.raises(FileNotFoundError):
        read_pairs(tmp_path / "none.jsonl")


def test_not_text_and_not_compressed(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"\xff\n")
    with pytest.raises(UserError, match=r"a\.jsonl, line 1: not JSON"):
        read_pairs(tmp_path / "a.jsonl")
    path = write_lines(tmp_path / "b.jsonl.gz", pair("a", "b"))
    with pytest.raises(UserError, match=r"b\.jsonl\.gz: not a whole gzip file"):
        read_pairs(path)
    path.write_bytes(gzip.compress(b'{"good": "a", "bad": "b"}' * 100)[:-20])
    with pytest.raises(UserError, match=r"b\.jsonl\.gz: not a whole gzip file"):
        read_pairs(path)


def test_limit_spreads_within_each_construction():
    pairs = [Pair("ab"[i % 2], (str(i),), ("x",)) for i in range(20)]
    chosen = [one.good[0] for one in spread(pairs, 2)]
    assert chosen == ["0", "1", "18", "19"]
    assert spread(pairs, 0) == pairs
    assert spread(pairs, 50) == pairs


SENTENCES = [
    [int(word) for word in np.random.default_rng(length).integers(1, 5, length)]
    for length in [3, 5, 1, 4, 4, 7, 2, 3, 3, 6, 4, 2]
] + [[2, 3, 4], [2, 3], [2, 3, 0, 1], [2, 3, 4]]


@pytest.mark.parametrize("recurrent", ["onlstm", "lstm"])
@pytest.mark.parametrize("include_end", [True, False])
def test_shared_prefixes_change_nothing(recurrent, include_end):
    model = tiny_model(recurrent=recurrent).model.double()
    words = [word_log_probabilities(model, sentence, 0) for sentence in SENTENCES]
    expected = np.array([float(each.sum() if include_end else each[:-1].sum()) for each in words])
    for sizes in ({}, {"block_size": 3, "chunk_size": 2}, {"block_size": 1}, {"chunk_size": 1}):
        found = log_probabilities(model, SENTENCES, 0, include_end=include_end, **sizes)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_definition():
    model = tiny_model().model.double()
    found = word_log_probabilities(model, [2, 3], 0)
    state, expected = None, []
    for word, target in ((0, 2), (2, 3), (3, 0)):
        output = model(torch.tensor([[word]]), state)
        state = output.state
        expected.append(float(output.logits[0, 0].detach().softmax(-1)[target].log()))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_every_prefix_is_read_once(monkeypatch):
    model = tiny_model().model
    read = 0
    forward = LanguageModel.forward

    def counting(self, tokens, state=None):
        nonlocal read
        read += tokens.numel()
        return forward(self, tokens, state)

    monkeypatch.setattr(LanguageModel, "forward", counting)
    log_probabilities(model, SENTENCES, 0)
    prefixes = {tuple(sentence[:i]) for sentence in SENTENCES for i in range(len(sentence) + 1)}
    assert read == len(prefixes)
    read = 0
    log_probabilities(model, SENTENCES, 0, include_end=False)
    assert read == len({tuple(s[:i]) for s in SENTENCES for i in range(len(s))})


def test_probabilities_of_all_sentences_sum_to_one():
    model = tiny_model(Vocabulary(["<eos>", "a", "b"])).model.double()
    short = [[], *([i] for i in (1, 2)), *([i, j] for i in (1, 2) for j in (1, 2))]
    ended = np.exp(log_probabilities(model, short, 0)).sum()
    going_on = np.exp(
        log_probabilities(model, [[*s, i] for s in short[3:] for i in (1, 2)], 0, include_end=False)
    )
    assert ended + going_on.sum() == pytest.approx(1, abs=1e-12)


def test_nothing_to_score():
    assert log_probabilities(tiny_model().model, [], 0).shape == (0,)
    assert log_probabilities(tiny_model().model, [[]], 0, include_end=False).tolist() == [0.0]


def by_hand(trained, better, worse):
    totals = [
        float(word_log_probabilities(trained.model, trained.vocabulary.encode(s, ""), 0).sum())
        for s in (better, worse)
    ]
    return int(totals[0] > totals[1])


def test_pairs_and_triples_against_one_at_a_time():
    trained = tiny_model()
    trained.model.double()
    good, bad, intrusive = (
        ("the", "author", "laughs"),
        ("the", "author", "laugh"),
        ("no", "author", "laughs"),
    )
    tallies = compare([trained], [Pair("x", good, bad), Pair("y", good, bad, intrusive, "g")])
    expected = {
        Key("x", "", ""): (good, bad),
        Key("y", KINDS[0], "g"): (good, intrusive),
        Key("y", KINDS[1], "g"): (intrusive, bad),
        Key("y", KINDS[2], "g"): (good, bad),
    }
    assert tallies == {
        key: Tally(1, 1, 1, (by_hand(trained, *sentences),)) for key, sentences in expected.items()
    }
    # Only the first group that a construction is given counts.
    twice = compare([trained], [Pair("x", good, bad, group="g"), Pair("x", good, bad, group="h")])
    assert {key: tally.pairs for key, tally in twice.items()} == {Key("x", "", "g"): 2}
    # The other way round, what was wrong is right.
    (turned,) = compare([trained], [Pair("x", bad, good)]).values()
    assert turned.right[0] == 1 - tallies[Key("x", "", "")].right[0]


def test_coverage_and_what_cannot_be_compared():
    pairs = [
        Pair("c", ("the", "author", "laughs"), ("the", "author", "laugh")),
        Pair("c", ("the", "poet", "laughs"), ("the", "poet", "laugh")),
        Pair("c", ("the", "author", "swims"), ("the", "author", "swim")),
        Pair("c", ("the", "author"), ("the", "author")),
    ]
    trained = tiny_model()
    key = Key("c", "", "")
    assert compare([trained], pairs)[key][:3] == (4, 2, 1)
    assert compare([trained], pairs, unknown="score")[key][:3] == (4, 2, 2)
    # Two models are compared on what both know.
    other = tiny_model(Vocabulary([word for word in WORDS if word != "author"]), "lstm")
    tally = compare([trained, other], pairs)[key]
    assert tally[:3] == (4, 0, 0)
    assert tally.right == (0, 0)
    without = tiny_model(Vocabulary([word for word in WORDS if word != "<unk>"]))
    with pytest.raises(UserError, match="'the poet laughs': 'poet' is not in the vocabulary"):
        compare([without], pairs, unknown="score")


def test_a_tie_is_wrong():
    trained = tiny_model(hidden_size=6)
    for parameter in trained.model.parameters():
        torch.nn.init.zeros_(parameter)
    pairs = [Pair("c", ("the", "author"), ("author", "the")), Pair("c", ("the",), ("the", "author"))]
    # The same number of words, so the same probability; a shorter sentence is more probable.
    assert compare([trained], pairs)[Key("c", "", "")] == Tally(2, 2, 2, (1,))


def test_a_diverged_model():
    trained = tiny_model()
    torch.nn.init.constant_(trained.model.embedding.weight, torch.nan)
    with pytest.raises(UserError, match="not finite"):
        compare([trained], [Pair("c", ("the",), ("author",))])


def test_every_known_case_is_in_exactly_one_row_for_each_comparison():
    found = Counter((case, row.kind) for row in PAPER_ROWS for case in row.cases)
    assert set(found.values()) == {1}
    assert Counter(case for case, _ in found) == MARVIN_LINZEN
    kinds = {case: {kind for name, kind in found if name == case} for case in MARVIN_LINZEN}
    assert all(kinds[case] == (set(KINDS) if "npi" in case else {""}) for case in kinds)
    assert len(MARVIN_LINZEN) == 22
    assert len({(row.section, row.group, row.name) for row in PAPER_ROWS}) == len(PAPER_ROWS) == 19


def test_what_is_not_known_follows_by_group():
    found = [
        ("u", "", "later"),
        ("vp_coord", "", ""),
        ("v", KINDS[0], "earlier"),
        ("simple_agrmt", "", ""),
    ]
    rows = rows_for(found)
    assert [row.name for row in rows] == ["Simple", "Short VP coordination", f"v ({KINDS[0]})", "u"]
    assert [row.group for row in rows[2:]] == ["earlier", "later"]


def test_rows_are_pooled_and_heads_are_means():
    tallies = {
        Key("prep_anim", "", ""): Tally(10, 8, 8, (6, 2)),
        Key("prep_inanim", "", ""): Tally(4, 2, 2, (0, 2)),
        Key("subj_rel", "", ""): Tally(5, 5, 5, (5, 5)),
        Key("long_vp_coord", "", ""): Tally(7, 0, 0, (0, 0)),
    }
    section, group, long, prepositions, relative = lines_of(tallies, ["a", "b"])
    assert (section["name"], group["name"]) == ("Long-term dependency", "Subject-verb agreement")
    assert [line["level"] for line in (section, group, long)] == [0, 1, 2]
    assert prepositions["accuracy"] == {
        "a": 0.6,
        "b": 0.4,
        PUBLISHED_MODELS[0]: 0.67,
        PUBLISHED_MODELS[1]: 0.68,
    }
    assert (prepositions["pairs"], prepositions["covered"], prepositions["scored"]) == (14, 10, 10)
    assert relative["accuracy"]["a"] == 1.0
    assert long["accuracy"]["a"] is None
    assert section["accuracy"] == group["accuracy"]
    # Without the row that could not be scored, in the published columns too.
    assert section["accuracy"] == pytest.approx(
        {"a": 0.8, "b": 0.7, PUBLISHED_MODELS[0]: 0.665, PUBLISHED_MODELS[1]: 0.64}
    )
    assert section["pairs"] == 26


def test_rows_of_few_pairs_are_marked():
    tallies = {
        Key("prep_anim", "", ""): Tally(500, 100, 99, (6,)),
        Key("subj_rel", "", ""): Tally(500, 100, 100, (5,)),
        Key("long_vp_coord", "", ""): Tally(7, 0, 0, (0,)),
    }
    lines = lines_of(tallies, ["a"])
    assert [line["few"] for line in lines] == [1, 1, 0, 1, 0]
    text = results_text({"lines": lines, "notes": []})
    assert [line.split()[-4] for line in text.splitlines()[1:]] == ["199", "199", "0", "99*", "100"]


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
    assert "* fewer than 100 scored pairs: 1 rows" in out
    assert "Published" in out
    header, *lines = out.splitlines()
    assert header.split()[:5] == ["pairs", "covered", "scored", "onlstm", "lstm"]
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
    assert "Across a subject relative clause" in page.read_text()


def test_options_change_what_is_scored(checkpoints, pairs, capsys):
    first = ["--checkpoint", checkpoints[0], "--pairs", str(pairs)]
    assert main([*first, "--unknown", "score", "--no-end", "--limit", "1"]) == 0
    out = capsys.readouterr().out
    assert "3 of them read (--limit 1 of each construction, evenly spread)" in out
    assert "without the end of the sentence" in out
    assert "read as <unk>" in out
    assert "2 scored in" in out


def test_models_of_drawn_sentences_need_no_pairs(tmp_path, capsys):
    drawn = draw_pairs(5, 1)
    vocabulary = Vocabulary.of([*(one.good for one in drawn), *(one.bad for one in drawn)])
    checkpoint = save(tmp_path / "run", tiny_model(vocabulary))
    assert main(["--checkpoint", checkpoint, "--count", "5"]) == 0
    out = capsys.readouterr().out
    assert f"{len(drawn)} pairs drawn." in out
    assert f"{len(drawn)} covered" in out
    assert all(one.construction in out for one in drawn)
    assert "Published" not in out


def test_nothing_to_score_still_prints_the_table(checkpoints, tmp_path, capsys):
    path = write_lines(tmp_path / "pairs.jsonl", pair("a poet swims", "a poet swim"))
    assert main(["--checkpoint", checkpoints[0], "--pairs", str(path)]) == 2
    out, err = capsys.readouterr()
    assert "Simple" in out
    assert "–" in out
    assert err.count("\n") == 1
    assert "nothing could be scored: of 1 pairs" in err


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
    assert main(["score", "the poet", "--no-end", "--checkpoint", checkpoints[0]]) == 0
    assert "<eos>" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--limit", "-1"], "--limit must not be negative, got -1"),
        (["--count", "0"], "--count must be at least 1, got 0"),
        (["--seed", "-3"], "--seed must not be negative, got -3"),
        (["--checkpoint"], "--checkpoint must name at least one file"),
        (["--checkpoint", "a", "b", "a"], "--checkpoint names a more than once"),
        (["--checkpoint", "nowhere.safetensors"], "nowhere.safetensors: no such checkpoint"),
        (["score"], "give one or more sentences, each in quotes"),
        (["guess"], "unknown verb 'guess'"),
    ],
)
def test_bad_options_are_told_in_one_line(arguments, message, capsys):
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_bad_input_is_told_in_one_line(checkpoints, tmp_path, capsys):
    first = ["--checkpoint", checkpoints[0]]
    for arguments, message in [
        (first, "--pairs must name a file: " + checkpoints[0]),
        ([*first, "--pairs", str(tmp_path / "none")], "none: No such file or directory"),
        (["score", *first, "?"], "sentence 1 has no words: '?'"),
        (["score", *first, "a \udcff"], "sentence 1: expected Unicode text, got '\\udcff' as character 3"),
    ]:
        assert main(arguments) == 2
        err = capsys.readouterr().err
        assert message in err
        assert err.count("\n") == 1


def test_columns_with_the_same_name_have_their_paths():
    paths = [Path("a", "run", "best"), Path("b", "run", "best"), Path("b", "other", "best")]
    assert column_names(paths) == ["a/run/best", "b/run/best", "other"]
