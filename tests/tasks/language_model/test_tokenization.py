"""Splitting sentences into the words of a vocabulary."""

import pytest

from tasks.language_model.tokenization import Tokenizer
from tasks.language_model.vocabulary import Vocabulary

CASED = ["The", "the", "author", "does", "n't", "laugh", "laughs", "Mr.", "N", ",", ".", "''", "``"]


def split(text, words, *options):
    return " ".join(Tokenizer(Vocabulary(["<eos>", "<unk>", *words]), *options)(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The author doesn't laugh", "The author does n't laugh ."),
        ("The author does n't laugh .", "The author does n't laugh ."),
        ("Does the author laugh?", "does the author laugh ?"),
        ("Mr. <unk> of Co. Ltd. laughs, 3.5 % of $3", "Mr. <unk> of co. ltd. laughs , N N of $ N ."),
        ("\u201cThe author\u2019s,\u201d etc.", "`` The author 's , '' etc ."),
        ('the author "laughs."', "the author `` laughs . ''"),
        ("\u201c The author laughs . \u201d", "`` The author laughs . ''"),
        ('" The author laughs . "', "`` The author laughs . ''"),
        ("(The author laughs.)", "( The author laughs . )"),
        ("\u201c(The author laughs.)\u201d", "`` ( The author laughs . ) ''"),
        ("The author laughs\u2014the author\u2026", "The author laughs -- the author ..."),
        (
            "The author laughs. The ‘author’ (etc.) laughs.",
            "The author laughs . The ` author ' ( etc. ) laughs .",
        ),
        (
            "The author laughs.) Mr. Co. 5 – no. Laughs",
            "The author laughs . ) Mr. co. N -- no . laughs .",
        ),
        ("(‘The author’ laughs) 'R&D' in the '80s", "( ` The author ' laughs ) ` r&d ' in the '80s ."),
        ("The Author", "The author ."),
        ("?", "?"),
        (")", ") ."),
        ("", ""),
    ],
)
def test_a_vocabulary_with_punctuation_is_split_as_the_treebank(text, expected):
    assert split(text, CASED) == expected
    assert split(expected, CASED) == expected


@pytest.mark.parametrize("end", ["?!", "…", "।", "。", "؟", "! »", "? 」"])
def test_no_period_is_added_after_the_marks_of_other_scripts(end):
    assert split(f"The author {end}", ["The", "author", ".", *end.split()]) == f"The author {end}"


def test_n_is_an_ordinary_word_beside_numbers():
    assert split("3.5 of N laughs", ["N", "of", "laughs"]) == "N of N laughs"
    assert split("3.5 of N laughs", ["N", "of", "laughs", "2"]) == "3.5 of N laughs"


def test_what_a_vocabulary_lacks():
    assert split("(The \u201cauthor\u201d)", ["The", ".", "-LRB-", "-RRB-", "\u201c", "\u201d"]) == (
        "-LRB- The \u201c author \u201d -RRB- ."
    )
    brackets = ["-LSB-", "-RSB-", "-LCB-", "-RCB-"]
    assert (
        split("[The] {author}", ["The", "author", ".", *brackets]) == "-LSB- The -RSB- -LCB- author -RCB- ."
    )
    assert split('The "author" laughs', ["the", ",", '"']) == 'the " author " laughs'
    assert split("The ‘author’ laughs", ["the", ",", "'"]) == "the ' author ' laughs"
    assert split("The 'author' laughs", ["the", ",", "‘", "’"]) == "the ‘ author ’ laughs"
    assert split("The author laughs", CASED, "auto", False) == "The author laughs"


@pytest.mark.parametrize(
    ("words", "tokenization"),
    [
        (["the", "N", "mr."], "mikolov"),
        (["The", "laughs", "."], "treebank"),
        (["the", ","], "treebank"),
        (["the", "?"], "treebank"),
        (["the", "don't", "3"], "spaces"),
        (["The", "laughs."], "spaces"),
        (["the", "'hood", "'neath"], "mikolov"),
    ],
)
def test_the_vocabulary_tells_how_its_text_was_split(words, tokenization):
    assert Tokenizer(Vocabulary(["<eos>", *words])).tokenization == tokenization


def test_another_tokenization_than_that_of_the_vocabulary():
    assert split("The author doesn't laugh.", CASED, "spaces") == "The author doesn't laugh."
    assert split("The author doesn't laugh.", CASED, "mikolov") == "the author does n't laugh"
