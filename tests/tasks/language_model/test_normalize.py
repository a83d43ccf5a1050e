"""Text in the form of Mikolov's Penn Treebank text."""

import pytest

from tasks.language_model.normalize import normalize


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
        ("The 'author' said ‘not this time.’", "the author said not this time"),
        ("'Not this dogs' time,' he said in the '80s.", "not this dogs time ' he said in the '80s"),
        ("I saw 'hood and the airlines ' creditors", "i saw 'hood and the airlines ' creditors"),
        (
            "He said 'the 'hood is nice' to the authors' friends.",
            "he said the 'hood is nice to the authors ' friends",
        ),
        ("They hid 'neath 'Re-Animator', not 'D-Day'.", "they hid 'neath re-animator not d-day"),
        (
            "'24' and '10,000 B.C.' in the '60s, not '60 Minutes'",
            "N and N b.c. in the '60s not '60 minutes '",
        ),
        ("‘Not this time,’ he said, 'or is it?' and left.", "not this time he said or is it and left"),
        ("'Tis what they gave 'em... here", "'tis what they gave 'em here"),
        ("He lives in Tucson, Ariz.", "he lives in tucson ariz."),
        ("I'm sure they'll say we're late; she'd go.", "i 'm sure they 'll say we 're late she 'd go"),
        ("Then - (-) he said 'it is done .' and left. :-)", "then he said it is done and left"),
        ("?!", ""),
    ],
)
def test_natural_text(text, expected):
    assert normalize(text) == tuple(expected.split())
    assert normalize(expected) == tuple(expected.split())
