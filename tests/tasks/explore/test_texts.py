"""Random examples and longer ones are texts of the task, of the length asked for, around what was typed."""

import random

import pytest

from tasks.explore.texts import LANGUAGES, LONGEST_RANDOM
from tasks.listops import expressions
from tasks.logic import formulas
from tasks.logic.formulas import TAUTOLOGY
from tasks.runs.errors import UserError

LISTOPS, LOGIC = LANGUAGES["listops"], LANGUAGES["logic"]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 20, 100, LONGEST_RANDOM])
def test_a_random_expression_has_about_the_length_asked_for(length):
    [text] = LISTOPS.draw(random.Random(1), length)
    tokens = expressions.tokenize(text)
    expressions.parse(tokens)
    assert length <= len(tokens) <= (4 if 1 < length < 4 else 1.1 * length)


@pytest.mark.parametrize("length", [-1, 0, LONGEST_RANDOM + 1])
def test_a_length_that_no_random_expression_has(length):
    with pytest.raises(UserError, match=rf"the length must lie in 1\.\.1000, got {length}$"):
        LISTOPS.draw(random.Random(1), length)


@pytest.mark.parametrize("typed", ["3", "[MAX 2 9 [MIN 4 7 ] 0 ]", "( ( ( [MAX 2 ) 9 ) ] )", "[SM 1 2]"])
def test_a_longer_expression_has_the_typed_one_as_an_argument(typed):
    rng, text = random.Random(2), typed
    for _ in range(5):
        before = expressions.tokenize(text)
        [text] = LISTOPS.lengthen(rng, (text,))
        after = expressions.tokenize(text)
        expressions.parse(after)
        assert after[1 : 1 + len(before)] == before or after[-1 - len(before) : -1] == before
        assert 2 * len(before) <= len(after)


def test_longer_formulas_have_the_typed_ones_in_them_and_say_something():
    rng, texts = random.Random(3), LOGIC.draw(random.Random(4), None)
    for _ in range(5):
        longer = LOGIC.lengthen(rng, texts)
        for text, before in zip(longer, texts, strict=True):
            parsed = formulas.parse(formulas.tokenize(text))
            assert text.startswith(f"( {before} ( ")
            assert parsed.table not in (0, TAUTOLOGY)
        texts = longer


def test_longer_formulas_say_something_where_the_typed_ones_hardly_do():
    typed = "( a ( or ( b ( or ( c ( or ( d ( or ( e ( or f ) ) ) ) ) ) ) ) ) )"  # false for one assignment
    for seed in range(5):
        for text in LOGIC.lengthen(random.Random(seed), (typed, typed)):
            assert formulas.parse(formulas.tokenize(text)).table not in (0, TAUTOLOGY)


def test_formulas_with_idle_brackets_are_made_longer():
    left, right = LOGIC.lengthen(random.Random(5), ("(a)", "(not(b))"))
    assert left.startswith("( a ( ")
    assert right.startswith("( ( not b ) ( ")


@pytest.mark.parametrize("task", ["sst", "language_model"])
def test_a_longer_sentence_goes_on_after_and(task):
    language = LANGUAGES[task]
    for typed, start in (("it is good .", "it is good and "), (".", "and ")):
        assert language.lengthen(random.Random(6), (typed,))[0].startswith(start)
    assert language.draw(random.Random(6), None) != language.draw(random.Random(7), None)
