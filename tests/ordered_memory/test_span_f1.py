"""Span F1: hand-made corpora under every convention, baselines, reports."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ordered_memory.baseline_trees import balanced, left_branching, random_trees, right_branching
from ordered_memory.charts import to_chart
from ordered_memory.span_f1 import (
    CORPUS_LEVEL,
    SENTENCE_LEVEL,
    Convention,
    baselines,
    compare,
    format_report,
    fraction_text,
    read_spans,
    score_spans,
    span_f1,
)

CONVENTIONS = [(level, whole) for level in ("corpus", "sentence") for whole in (True, False)]
EVALB = CORPUS_LEVEL._asdict()
ON_LSTM = SENTENCE_LEVEL._asdict()

corpora = st.lists(st.integers(1, 12), min_size=1, max_size=6)


@given(corpora, st.integers(0, 99))
def test_identity_scores_one_under_every_convention(lengths, seed):
    trees = random_trees(lengths, seed)
    for level, whole in CONVENTIONS:
        scores = span_f1(trees, trees, level=level, whole_sentence=whole)
        assert (scores.precision, scores.recall, scores.f1) == (1, 1, 1)
        assert scores.sentences == len(lengths)


@given(corpora, st.integers(0, 99))
def test_f1_is_symmetric(lengths, seed):
    one, other = random_trees(lengths, seed), random_trees(lengths, seed + 100)
    for level, whole in CONVENTIONS:
        forth = span_f1(one, other, level=level, whole_sentence=whole)
        back = span_f1(other, one, level=level, whole_sentence=whole)
        assert forth.f1 == back.f1
        assert (forth.precision, forth.recall) == (back.recall, back.precision)
        assert (forth.matched, forth.predicted, forth.gold) == (back.matched, back.gold, back.predicted)


# Sentence 1, four words.   predicted ((0 1) (2 3)): 0-1, 2-3, 0-3    gold (((0 1) 2) 3): 0-1, 0-2, 0-3
# Sentence 2, three words.  predicted (0 (1 2)): 1-2, 0-2             gold (0 1 2), one constituent: 0-2
# Sentence 3, one word.     no spans in either
# Sentence 4, two words.    predicted (0 1): 0-1                      gold (0 1): 0-1
PREDICTED = [((0, 1), (2, 3)), (0, (1, 2)), 0, (0, 1)]
GOLD = [(((0, 1), 2), 3), (0, 1, 2), 0, (0, 1)]


def test_corpus_level_with_whole_sentence_by_hand():
    # matched 2 + 1 + 0 + 1 = 4; predicted 3 + 2 + 0 + 1 = 6; gold 3 + 1 + 0 + 1 = 5
    scores = span_f1(PREDICTED, GOLD, **EVALB)
    assert scores.precision == pytest.approx(4 / 6)
    assert scores.recall == pytest.approx(4 / 5)
    assert scores.f1 == pytest.approx(8 / 11)
    assert (scores.matched, scores.predicted, scores.gold, scores.sentences) == (4, 6, 5, 4)
    assert (scores.level, scores.whole_sentence) == ("corpus", True)


def test_corpus_level_without_whole_sentence_by_hand():
    # matched 1 + 0 + 0 + 0; predicted 2 + 1 + 0 + 0; gold 2 + 0 + 0 + 0
    scores = span_f1(PREDICTED, GOLD, level="corpus", whole_sentence=False)
    assert (scores.precision, scores.recall) == (pytest.approx(1 / 3), pytest.approx(1 / 2))
    assert scores.f1 == pytest.approx(2 / 5)


def test_sentence_level_without_whole_sentence_by_hand():
    # 1: p 1/2, r 1/2, f 1/2.   2: one span predicted, none to find: p 0, r 1, f 0.
    # 3 and 4: nothing predicted, nothing to find: p 1, r 1, f 1.
    scores = span_f1(PREDICTED, GOLD, **ON_LSTM)
    assert scores.precision == pytest.approx((1 / 2 + 0 + 1 + 1) / 4)
    assert scores.recall == pytest.approx((1 / 2 + 1 + 1 + 1) / 4)
    assert scores.f1 == pytest.approx((1 / 2 + 0 + 1 + 1) / 4)
    assert (scores.matched, scores.predicted, scores.gold) == (1, 3, 2)


def test_sentence_level_with_whole_sentence_by_hand():
    # 1: 2 of 3 and 3, f 2/3.   2: p 1/2, r 1, f 2/3.   3: f 1.   4: f 1.
    scores = span_f1(PREDICTED, GOLD, level="sentence", whole_sentence=True)
    assert scores.f1 == pytest.approx((2 / 3 + 2 / 3 + 1 + 1) / 4)


def test_nothing_in_common_is_zero_and_not_a_number_near_it():
    scores = span_f1([((0, 1), 2)], [(0, (1, 2))], **ON_LSTM)
    assert (scores.precision, scores.recall, scores.f1) == (0, 0, 0)


def test_nothing_predicted_is_precise_and_nothing_to_find_is_found():
    # Without the whole sentence ((0 1) 2) has one span and the flat (0 1 2) none.
    for level in ("corpus", "sentence"):
        silent = span_f1([(0, 1, 2)], [((0, 1), 2)], level=level, whole_sentence=False)
        assert (silent.precision, silent.recall, silent.f1) == (1, 0, 0)
        wordy = span_f1([((0, 1), 2)], [(0, 1, 2)], level=level, whole_sentence=False)
        assert (wordy.precision, wordy.recall, wordy.f1) == (0, 1, 0)


@pytest.mark.parametrize("whole", [True, False])
def test_spans_are_those_of_the_charts(whole):
    lengths = [1, 2, 5, 9]
    predicted, gold = random_trees(lengths, 1), random_trees(lengths, 2)
    counts = torch.zeros(3, dtype=torch.long)
    for pair in zip(predicted, gold, strict=True):
        ours, theirs = (to_chart(tree).triu(1) for tree in pair)
        if not whole:
            ours[0, -1] = theirs[0, -1] = False
        counts += torch.stack([(ours & theirs).sum(), ours.sum(), theirs.sum()])
    scores = span_f1(predicted, gold, level="corpus", whole_sentence=whole)
    assert [scores.matched, scores.predicted, scores.gold] == counts.tolist()


def test_deep_trees_are_scored():
    # Two chains of 3,000 leaves share the whole sentence and nothing else, of 2,999 spans each.
    chains = [left_branching(3000)], [right_branching(3000)]
    assert span_f1(*chains, **EVALB).f1 == pytest.approx(1 / 2999)
    assert span_f1(*chains, **ON_LSTM).f1 == 0


class MadeWhenAsked(Sequence):
    """Trees that are made when they are asked for, so that one may take the place of another in memory."""

    def __len__(self):
        return 20

    def __getitem__(self, index):
        if index >= len(self):
            raise IndexError
        pair = (0, 1) if index % 3 else (2, 3)
        return (pair, 2, 3) if index % 3 else (0, 1, pair)


def test_trees_may_be_made_when_they_are_asked_for():
    trees = MadeWhenAsked()
    assert read_spans(trees) == read_spans(list(trees))


def test_a_tree_is_read_once_for_all_sentences_of_its_length():
    trees = baselines([3, 4, 3, 3])
    for name in ("left-branching", "right-branching", "balanced"):
        assert trees[name][0] is trees[name][2]
    first, _, third, _ = read_spans(trees["balanced"])
    assert first is third


def test_a_corpus_of_one_word_sentences_scores_one():
    for level, whole in CONVENTIONS:
        assert span_f1([0, 0], [0, 0], level=level, whole_sentence=whole).f1 == 1


def test_unary_chains_and_repeated_spans_count_once():
    assert span_f1([((0, 1), 2)], [((((0, 1),),), 2)], **EVALB).f1 == 1


@pytest.mark.parametrize(
    ("predicted", "gold", "arguments", "message"),
    [
        ([0], [0, 0], EVALB, "as many predicted as gold trees, got 1 and 2"),
        ([], [], EVALB, "one sentence or more, got none"),
        (
            [0, (0, 1)],
            [0, ((0, 1), 2)],
            EVALB,
            r"got 2 leaves in predicted\[1\] and 3 in gold\[1\]",
        ),
        (
            [(1, 2)],
            [(0, 1)],
            EVALB,
            r"predicted\[0\] to have the leaves 0, 1, …, got 1 as the first",
        ),
        ([0], [0], {"level": "word", "whole_sentence": True}, "got 'word'"),
    ],
)
def test_what_cannot_be_scored_is_named(predicted, gold, arguments, message):
    with pytest.raises(ValueError, match=message):
        span_f1(predicted, gold, **arguments)


@pytest.mark.parametrize("tree", [0, (0, 1), ((0, 1), 2)])
def test_one_tree_is_no_list_of_trees(tree):
    for arguments in ((tree, [tree]), ([tree], tree)):
        with pytest.raises(TypeError, match=r"to be a list of trees, got one tree: \(?\(?0"):
            span_f1(*arguments, **EVALB)
        with pytest.raises(TypeError, match="to be a list of trees, got one tree"):
            compare(*arguments)
    for trees in ((tree,), (tree, tree)):
        assert span_f1(trees, list(trees), **EVALB).f1 == 1


def test_an_unknown_convention_of_spans_that_were_read_before_is_named():
    trees = read_spans([((0, 1), 2)])
    with pytest.raises(ValueError, match="level must be one of corpus, sentence, got 'Corpus'"):
        score_spans(trees, trees, Convention("Corpus", whole_sentence=True))
    with pytest.raises(TypeError, match="whole_sentence must be True or False, got 'no'"):
        score_spans(trees, trees, Convention("corpus", whole_sentence="no"))


def test_comparison_scores_every_baseline_on_the_same_sentences():
    lengths = [5, 3, 8]
    gold = [right_branching(n) for n in lengths]
    by_convention = compare([balanced(n) for n in lengths], gold)
    assert list(by_convention) == [CORPUS_LEVEL, SENTENCE_LEVEL]
    scores = by_convention[SENTENCE_LEVEL]
    assert list(scores) == ["model", "left-branching", "right-branching", "balanced", "random"]
    assert scores["right-branching"].f1 == 1
    assert scores["balanced"] == scores["model"]
    expected = span_f1([left_branching(n) for n in lengths], gold, **ON_LSTM)
    assert scores["left-branching"] == expected


def test_trees_of_several_names_are_compared_as_each_alone():
    gold = [right_branching(n) for n in (5, 3, 8)]
    named = {"a": [balanced(n) for n in (5, 3, 8)], "b": [left_branching(n) for n in (5, 3, 8)]}
    together = compare(named, gold)
    alone = {name: compare(trees, gold) for name, trees in named.items()}
    for convention, scores in together.items():
        assert list(scores) == ["a", "b", "left-branching", "right-branching", "balanced", "random"]
        for name, by_convention in alone.items():
            assert scores[name] == by_convention[convention]["model"]
            assert scores["random"] == by_convention[convention]["random"]
    lines = format_report(compare({"a" * 30: named["a"]}, gold), punctuation="none").split("\n")[2:8]
    assert len({line.rindex("  ") for line in lines[1:]}) == 1
    assert lines[0].index("F1") == 32
    with pytest.raises(ValueError, match="than that of a baseline, got 'balanced'"):
        compare({"balanced": gold}, gold)
    with pytest.raises(TypeError, match="expected b to be a list of trees, got one tree"):
        compare({"a": gold, "b": gold[0]}, gold)


def test_baselines_of_an_iterator_are_those_of_a_list():
    assert baselines(iter([5, 3])) == baselines([5, 3])
    assert set(map(tuple, baselines([1]).values())) == {(0,)}


def test_the_seed_draws_the_random_trees_and_no_others():
    lengths = [9, 8, 7]
    first, second = baselines(lengths, seed=1), baselines(lengths, seed=2)
    assert first["random"] == random_trees(lengths, seed=1) != second["random"]
    gold = random_trees(lengths, seed=3)
    scores = [compare(gold, gold, conventions=[CORPUS_LEVEL], seed=seed)[CORPUS_LEVEL] for seed in range(5)]
    assert len({by_name["random"] for by_name in scores}) > 1
    assert len({by_name["balanced"] for by_name in scores}) == 1


def test_report_states_its_conventions():
    text = format_report(compare([(0, 1)] * 3, [(0, 1)] * 3), punctuation="dropped")
    for fact in (
        *("3 sentences", "sentence level, without the whole", "corpus level, with the whole"),
        *("never count", "punctuation: dropped"),
    ):
        assert fact in text


def test_nearly_the_whole_is_not_the_whole():
    assert fraction_text(1 - 1e-8) == "0.99999999"
    assert fraction_text(1 - 1e-12) == "1.000000000"  # nine digits and no more
    assert fraction_text(1.0) == "1.0000"


def test_arguments_of_another_kind_are_named():
    with pytest.raises(TypeError, match="whole_sentence must be True or False, got 'no'"):
        span_f1([(0, 1)], [(0, 1)], level="corpus", whole_sentence="no")
    with pytest.raises(ValueError, match=r"lengths\[1\] must be an integer of at least 1, got 0"):
        baselines([3, 0])
    with pytest.raises(TypeError, match="expected conventions to be of type Convention, got 'sentence'"):
        compare([(0, 1)], [(0, 1)], conventions=["sentence"])
    with pytest.raises(ValueError, match="expected one convention or more, got none"):
        compare([(0, 1)], [(0, 1)], conventions=[])


def test_one_convention_is_as_a_list_of_one():
    trees = ([((0, 1), 2)], [(0, (1, 2))])
    one, several = (compare(*trees, conventions=given) for given in (SENTENCE_LEVEL, [SENTENCE_LEVEL]))
    assert one == several
    assert list(one) == [SENTENCE_LEVEL]
    assert compare(*trees, conventions=iter([SENTENCE_LEVEL])) == one
