"""Counting pairs that models get right, and the table of results."""

import re
from collections import Counter

import numpy as np
import pytest
import torch

from tasks.language_model.tokenization import Tokenizer
from tasks.language_model.vocabulary import Vocabulary
from tasks.runs.errors import UserError
from tasks.syntax_eval.evaluation import (
    Comparison,
    Key,
    ScoredComparison,
    Tally,
    count_right,
    score_pairs,
)
from tasks.syntax_eval.pairs import MinimalPair
from tasks.syntax_eval.paper_table import KINDS, PAPER_ROWS, PUBLISHED_MODELS, rows_for
from tasks.syntax_eval.report import lines_of, results_text, write_page
from tasks.syntax_eval.scoring import word_log_probabilities
from tests.tasks.syntax_eval.tiny import WORDS, tiny_model

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


def compare(models, pairs, **options):
    return count_right(score_pairs(models, pairs, **options), len(models))


def by_hand(trained, better, worse):
    totals = [
        float(word_log_probabilities(trained.model, trained.vocabulary.encode(s.split(), "")).sum())
        for s in (better, worse)
    ]
    return int(totals[0] > totals[1])


def test_pairs_and_triples_against_one_at_a_time():
    trained = tiny_model()
    trained.model.double()
    good, bad, intrusive = (
        "the author laughs",
        "the author laugh",
        "no author laughs",
    )
    tallies = compare([trained], [MinimalPair("x", good, bad), MinimalPair("y", good, bad, intrusive, "g")])
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
    twice = compare(
        [trained], [MinimalPair("x", good, bad, group="g"), MinimalPair("x", good, bad, group="h")]
    )
    assert {key: tally.comparisons for key, tally in twice.items()} == {Key("x", "", "g"): 2}
    # The other way round, what was wrong is right.
    (turned,) = compare([trained], [MinimalPair("x", bad, good)]).values()
    assert turned.right[0] == 1 - tallies[Key("x", "", "")].right[0]


def test_coverage_and_what_cannot_be_compared():
    pairs = [
        MinimalPair("c", "the author laughs", "the author laugh"),
        MinimalPair("c", "the poet laughs", "the poet laugh"),
        MinimalPair("c", "the author swims", "the author swim"),
        MinimalPair("c", "the author", "the author"),
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


def test_a_pair_is_covered_if_all_words_of_both_sentences_are_known():
    known, unknown = "the author laughs", "the author swims"
    pairs = [MinimalPair("c", *sentences) for sentences in ((known, unknown), (unknown, known))]
    for scored in score_pairs([tiny_model()], pairs):
        assert not scored.covered
        assert scored.log_probabilities is None


def test_the_end_of_a_sentence_counts_unless_it_is_left_out():
    trained, pair = tiny_model(), MinimalPair("c", "the author laughs", "the author laugh")
    by_default, with_end, without = (
        score_pairs([trained], [pair], **options)[0].log_probabilities
        for options in ({}, {"include_end": True}, {"include_end": False})
    )
    assert by_default == with_end != without


@pytest.mark.parametrize("include_end", [True, False])
def test_every_model_scores_a_sentence_as_it_reads_it(include_end):
    models = [
        tiny_model(),  # reads "the author laughs" where the other one reads "The author laughs ."
        tiny_model(Vocabulary(["<eos>", "<unk>", "The", "author", "laughs", "laugh", "like", "."])),
    ]
    pairs = [
        MinimalPair("known to both", "The author laughs.", "The author laugh."),
        MinimalPair("one sentence known", "The author laughs.", "The author swims."),
        MinimalPair("equal to the second", "The author likes.", "The author that."),
        MinimalPair("unknown to the second", "The author like.", "The author likes."),
    ]

    def log_probability(trained, sentence):
        words = sentence.replace(".", " .") if trained is models[1] else sentence.lower().strip(".")
        ids = trained.vocabulary.encode(words.split(), "")
        return float(word_log_probabilities(trained.model, ids)[: None if include_end else -1].sum())

    skipping, scoring = (
        score_pairs(models, pairs, unknown=unknown, include_end=include_end) for unknown in ("skip", "score")
    )
    assert [pair.covered for pair in skipping] == [True, False, False, False]
    assert [pair.log_probabilities is not None for pair in skipping] == [True, False, False, False]
    assert [pair.differs_in_unknown for pair in scoring] == [False, True, False, True]
    for pair, (construction, good, bad, *_) in zip(scoring, pairs, strict=True):
        if construction == "equal to the second":
            assert pair.log_probabilities is None
        else:
            expected = [tuple(log_probability(model, text) for text in (good, bad)) for model in models]
            np.testing.assert_allclose(pair.log_probabilities, expected, rtol=1e-5)


def test_a_tokenizer_that_is_given_reads_the_sentences():
    trained = tiny_model()
    pair = MinimalPair("c", "The author laughs.", "The author laugh.")
    spaces = Tokenizer(trained.vocabulary, "spaces")  # for which "The" and "laughs." are unknown
    assert [scored.covered for scored in score_pairs([trained], [pair])] == [True]
    assert [scored.covered for scored in score_pairs([trained], [pair], tokenizers=[spaces])] == [False]


def test_the_sentences_of_each_kind_are_compared():
    good, bad, intrusive = "no author laughs", "the author laughs", "the author laugh"
    scored = score_pairs([tiny_model()], [MinimalPair("x", good, bad, intrusive)])
    assert [pair.comparison[1:3] for pair in scored] == [(good, intrusive), (intrusive, bad), (good, bad)]


def test_the_predictions_have_the_keys_of_the_pairs():
    pairs = [
        MinimalPair("x", "the author", "the laugh", "no author", key="sing"),
        MinimalPair("x", "the author", "the laugh"),
    ]
    rows = [scored.row(["m"]) for scored in score_pairs([tiny_model()], pairs)]
    assert [row["key"] for row in rows] == ["sing", "sing", "sing", ""]
    assert list(rows[0])[:4] == ["construction", "kind", "group", "key"]


def test_a_tie_is_wrong():
    trained = tiny_model(hidden_size=6)
    for parameter in trained.model.parameters():
        torch.nn.init.zeros_(parameter)
    pairs = [MinimalPair("c", "the author", "author the"), MinimalPair("c", "the", "the author")]
    # The same number of words, so the same probability; a shorter sentence is more probable.
    assert compare([trained], pairs)[Key("c", "", "")] == Tally(2, 2, 2, (1,))


def test_a_tie_is_wrong_in_the_predictions_too():
    log_probabilities = ((-1.0, -1.0), (-1.0, -2.0))
    scored = ScoredComparison(Comparison(Key("c", "", ""), "a", "b"), True, False, log_probabilities)
    scores = scored.row(["first", "second"])["log_probabilities"]
    assert [scores[name]["right"] for name in ("first", "second")] == [False, True]


def test_a_diverged_model():
    trained = tiny_model()
    torch.nn.init.constant_(trained.model.embedding.weight, torch.nan)
    with pytest.raises(UserError, match="not finite"):
        compare([trained], [MinimalPair("c", "the", "author")])


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


def test_each_comparison_of_three_sentences_has_its_row():
    right = dict(zip(KINDS, ((3, 1), (2, 4), (29_999, 4)), strict=True))
    sizes = dict(zip(KINDS, (4, 4, 30_000), strict=True))
    tallies = {
        Key(case, kind, ""): Tally(sizes[kind], sizes[kind], sizes[kind], (count,))
        for kind, counts in right.items()
        for case, count in zip(("simple_npi_anim", "npi_across_anim"), counts, strict=True)
    }
    rows = [line for line in lines_of(tallies, ["a"]) if line["level"] == 2]
    assert [row["accuracy"]["a"] for row in rows] == [0.75, 0.5, 29_999 / 30_000, 0.25, 1, 4 / 30_000]
    text = results_text({"lines": rows, "notes": []})
    assert [line.split()[-1] for line in text.splitlines()[1:]] == [
        *("0.7500", "0.5000", "0.99997"),
        *("0.2500", "1.0000", "0.0001"),
    ]


def test_published_accuracies_stand_under_the_name_of_their_model():
    (*_, row) = lines_of({Key("subj_rel", "", ""): Tally(1, 1, 1, ())}, [])
    assert row["accuracy"] == {"ON-LSTM, published": 0.66, "LSTM, published": 0.60}


def test_a_part_of_a_row_has_no_published_accuracies():
    tallies = {
        Key("prep_anim", "", ""): Tally(4, 4, 4, (2,)),
        Key("subj_rel", "", ""): Tally(4, 4, 4, (4,)),
    }
    section, group, prepositions, relative = lines_of(tallies, ["a"])
    assert prepositions["accuracy"] == {"a": 0.5}
    assert relative["accuracy"] == {"a": 1.0, PUBLISHED_MODELS[0]: 0.66, PUBLISHED_MODELS[1]: 0.60}
    assert section["accuracy"] == group["accuracy"] == {"a": 0.75, **dict.fromkeys(PUBLISHED_MODELS)}
    text = results_text({"lines": [section, group, prepositions, relative], "notes": []})
    assert [line.split()[-3:] for line in text.splitlines()[1:]] == [
        ["0.7500", "–", "–"],
        ["0.7500", "–", "–"],
        ["0.5000", "–", "–"],
        ["1.0000", "0.66", "0.60"],
    ]


def test_rows_of_few_pairs_are_marked():
    tallies = {
        Key("prep_anim", "", ""): Tally(500, 100, 99, (6,)),
        Key("subj_rel", "", ""): Tally(500, 100, 100, (5,)),
        Key("long_vp_coord", "", ""): Tally(7, 0, 0, (0,)),
    }
    lines = lines_of(tallies, ["a"])
    assert [line["few"] for line in lines] == [1, 1, 0, 1, 0]
    text = results_text({"lines": lines, "notes": []})
    assert text.splitlines()[0].split()[:3] == ["comparisons", "covered", "scored"]
    assert [line.split()[-4] for line in text.splitlines()[1:]] == ["199", "199", "0", "99*", "100"]


SECTIONS = {
    "Short-term dependency": ["Subject-verb agreement", "Simple", "Reflexive anaphora", "Simple"],
    "Long-term dependency": ["Subject-verb agreement", "Across a subject relative clause"],
    "Constructions": ["u", "g", "v"],
}
"""The rows of constructions in several groups, two of which are not in the paper."""


@pytest.fixture
def lines():
    names = {"simple_agrmt": "", "simple_reflexives": "", "subj_rel": "", "u": "", "v": "g"}
    return lines_of({Key(name, "", group): Tally(3, 3, 3, (2,)) for name, group in names.items()}, ["a"])


def test_each_section_and_group_has_its_own_rows(lines):
    heads = [name for section, names in SECTIONS.items() for name in (section, *names)]
    assert [line["name"] for line in lines] == heads
    assert [line["level"] for line in lines] == [0, 1, 2, 1, 2, 0, 1, 2, 0, 2, 1, 2]
    assert [line["pairs"] for line in lines if line["level"] == 0] == [6, 3, 6]


def test_published_accuracies_have_two_digits_and_a_mark_stands_at_one_number_alone(lines):
    simple = results_text({"lines": lines, "notes": []}).splitlines()[3]
    assert simple.split() == ["Simple", "3", "3", "3*", "0.6667", "0.99", "1.00"]


def test_one_scored_comparison_is_few():
    (*_, row) = lines_of({Key("u", "", ""): Tally(2, 2, 1, (1,))}, ["a"])
    assert row["few"] == 1


def test_a_page_has_a_table_for_each_section_and_every_note_once(lines, tmp_path):
    notes = ["The data.", "The comparisons.", "A convention.", "Another one."]
    write_page(tmp_path / "page.html", {"lines": lines, "notes": notes, "options": {}}, {})
    subtitle, *tables = (tmp_path / "page.html").read_text().split("<h3>")
    found = {}
    for table in tables:
        title, *names = re.findall(r'(?:^|<th scope="row">)([^<]+)', table.partition("</table>")[0])
        found[title] = [name.strip() for name in names[1:]]
        assert names[0] == title
    assert found == SECTIONS
    assert [subtitle.count(note) for note in notes] == [1, 1, 0, 0]
    assert [tables[-1].count(note) for note in notes] == [0, 0, 1, 1]
