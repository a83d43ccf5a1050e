"""Trees in brackets: what is read, and what is refused because it could be read in two ways."""

import nltk
import numpy as np
import pytest

from ordered_memory import brackets
from ordered_memory.trees import from_nltk
from tests.small_trees import all_trees

PENN = "( (S (NP (DT the) (NN cat)) (VP (VBD sat)) (. .)) )"
WORDS = ["the", "cat", "sat", "."]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got no words"),
        ("( a b", r"1 '\(' never closed, the last at token 0"),
        ("( a ( ( b c ) d", r"2 '\(' never closed, the last at token 2"),
        ("a )", r"'\)' at token 1, after its end"),
        (") a", r"'\)' at token 0, which closes nothing"),
        ("( a ( ) )", "empty constituent that ends at token 3"),
        ("( a b ) c", "'c' at token 4, after its end"),
    ],
)
def test_bad_brackets_say_where(text, message):
    with pytest.raises(ValueError, match=message):
        brackets.from_brackets(text)


@pytest.mark.parametrize("text", ["((a b)c)", "( ( a b ) c )", "(\t(a b)\n c)", " ((a  b) c) "])
def test_parentheses_need_no_spaces(text):
    assert brackets.from_brackets(text) == (((0, 1), 2), ["a", "b", "c"])


def test_white_space_is_ascii_so_a_no_break_space_is_part_of_a_word():
    assert brackets.from_brackets("(a\u00a0b c)") == ((0, 1), ["a\u00a0b", "c"])


def test_every_binary_tree_is_read_however_it_is_spaced():
    for n in range(1, 7):
        for tree in all_trees(0, n - 1):
            text = brackets.to_brackets(tree, [f"w{i}" for i in range(n)])
            for spaced in (text, text.replace("( ", "(").replace(" )", ")")):
                assert brackets.from_brackets(spaced)[0] == tree


@pytest.mark.parametrize(
    "text",
    [PENN, PENN[2:-2], f"(ROOT {PENN[2:-2]})", PENN.replace(") (", ")("), "((S (NN a)))", "(S (A a) (B b))"],
)
def test_labeled_trees_are_refused_unless_asked_for(text):
    with pytest.raises(ValueError, match="looks labeled: labels=True drops the labels, labels=False"):
        brackets.from_brackets(text)
    brackets.from_brackets(text, labels=True)
    brackets.from_brackets(text, labels=False)


@pytest.mark.parametrize("text", [PENN, "(S (A a) (B b))", "((S (NN a)))"])
def test_labeled_trees_with_a_space_after_every_parenthesis_are_not_recognized(text):
    spaced = text.replace("(", "( ").replace(")", " )")
    assert brackets.from_brackets(spaced) == brackets.from_brackets(text, labels=False)
    with pytest.raises(ValueError, match="looks labeled"):
        brackets.from_brackets(spaced[:1] + spaced[1:].replace("( ", "(", 2))


def test_a_tree_with_a_constituent_inside_that_has_no_label_is_not_labeled():
    text = "(S ((NP (DT the) (NN cat))) (VP sat))"
    assert brackets.from_brackets(text) == brackets.from_brackets(text, labels=False)


def test_labels_are_dropped_and_unary_chains_collapse_as_nltk_trees_do():
    expected = ((0, 1), 2, 3), WORDS
    for text in (PENN, PENN[2:-2], f"(ROOT {PENN[2:-2]})"):
        assert brackets.from_brackets(text, labels=True) == expected
    for text in ("(S (NP a b) c)", "(NP (NN cats))", "(S (NP the (JJ old) cat) (VP sat))"):
        assert brackets.from_brackets(text, labels=True) == from_nltk(nltk.Tree.fromstring(text))


def test_without_labels_every_word_is_a_leaf():
    assert brackets.from_brackets("(NP (NN cats))", labels=False) == ((0, (1, 2)), ["NP", "NN", "cats"])
    assert brackets.from_brackets("(NP (NN cats))") == ((0, (1, 2)), ["NP", "NN", "cats"])


@pytest.mark.parametrize("labels", [None, False])
def test_without_labels_a_constituent_of_one_child_is_kept(labels):
    assert brackets.from_brackets("((a) b)", labels) == (((0,), 1), ["a", "b"])
    assert brackets.from_brackets("(((a b)) c)", labels) == ((((0, 1),), 2), ["a", "b", "c"])


@pytest.mark.parametrize("word", ["(", "a)", "a b", "", "a\n", None])
def test_words_that_could_not_be_read_again_are_refused(word):
    with pytest.raises(ValueError, match=r"without parentheses and white space, got tokens\[1\] = "):
        brackets.to_brackets((0, 1), ["a", word])


def test_only_text_is_read():
    with pytest.raises(TypeError, match=r"expected text to be a str, got Tree"):
        brackets.from_brackets(nltk.Tree("S", ["a"]))


@pytest.mark.parametrize("labels", [1, 0, "no", np.True_])
def test_whether_there_are_labels_is_a_bool(labels):
    with pytest.raises(TypeError, match="labels must be True or False, got"):
        brackets.from_brackets("(S (NP a) b)", labels=labels)


def test_depth_and_width_are_no_limit():
    text = "(" * 50_000 + "a" + " b)" * 50_000
    assert len(brackets.from_brackets(text)[1]) == 50_001
    assert len(brackets.from_brackets(f"({'a ' * 50_000})")[1]) == 50_000
