"""Words in the spelling of the Penn Treebank text for language models."""

import pytest

from tasks.language_model.ptb_spelling import is_number, spell
from tasks.language_model.vocabulary import Vocabulary

NUMBERS = ["61", "8.45", "1,650", r"1\/2", "3-4", "7:30", "-5", "1988", "%"]
NO_NUMBERS = ["30-year", "1980s", "n't", "--", "...", "p53", "$", "and/or"]


def test_numbers_become_n_and_words_lower_case():
    vocabulary = Vocabulary(["<eos>", "<unk>", "N", "the", "n't", "nov.", "u.s.", "30-year"])
    assert spell(NUMBERS, vocabulary) == ["N"] * len(NUMBERS)
    assert spell(NO_NUMBERS, vocabulary) == NO_NUMBERS
    assert spell(["The", "Nov.", "U.S.", "30-Year", "Elsevier"], vocabulary) == [
        *("the", "nov.", "u.s.", "30-year", "elsevier")
    ]


def test_words_that_the_vocabulary_has_stay_as_they_are():
    vocabulary = Vocabulary(["<eos>", "The", "the", "61", "N", "%"])
    assert spell(["The", "61", "%", "62"], vocabulary) == ["The", "61", "%", "62"]
    assert spell(["61"], Vocabulary(["<eos>"])) == ["61"]
    assert spell(["61"], Vocabulary(["<eos>", "N", "%"])) == ["N"]


@pytest.mark.parametrize("word", ["1" * 100_000 + "x", "." * 100_000, "-" * 100_000 + "n"])
def test_long_words_take_linear_time(word):
    assert not is_number(word)


def test_numbers():
    assert all(map(is_number, [*NUMBERS, "+1", ".5"]))
    assert not any(map(is_number, [*NO_NUMBERS, "", "N", "١٢"]))
