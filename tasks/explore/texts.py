"""Generate random examples of each task for the page, and longer examples that contain the current one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from tasks.language_model.grammar import generate_sentences
from tasks.language_model.reading import LONGEST_TRACED
from tasks.listops import expressions
from tasks.listops.expressions import CLOSE, OPERATORS
from tasks.listops.generator import Limits, generate
from tasks.logic import formulas
from tasks.logic.formulas import AND, OR, TAUTOLOGY
from tasks.logic.generator import generate as generate_pairs
from tasks.logic.model import LogicModel
from tasks.runs.errors import UserError
from tasks.sst.grammar import generate as generate_film_sentences

Texts = tuple[str, ...]
"""The content of the text boxes of the page: one text, or two formulas."""

Draw = Callable[[random.Random, int | None], Texts]
"""Generates an example with about the given number of tokens; None for any length."""
Lengthen = Callable[[random.Random, Texts], Texts]
"""Generates a longer example that contains the given one."""

LONGEST = 2_000
"""Maximum number of tokens of an expression or formula."""
LONGEST_RANDOM = 1_000
"""Maximum number of tokens of a random expression; longer ones are too rare to be found."""
SEEDS = 2**32
"""Number of different seeds for the generators."""
FORMULA_ATTEMPTS = 100
"""Maximum number of attempts to generate formulas that are neither tautologies nor contradictions."""


class Language(NamedTuple):
    """The input of the models of a task.

    Args:
        boxes: the label of each text box.
        hint: describes the input.
        start: the initial content of the text boxes.
        longest: maximum number of tokens of a text, so that a model answers within seconds.
        draw: see `Draw`.
        lengthen: see `Lengthen`; its texts must be valid.
        sized: whether the length of a random example can be chosen.
    """

    boxes: Texts
    hint: str
    start: Texts
    longest: int
    draw: Draw
    lengthen: Lengthen
    sized: bool = False


def _draw_expression(rng: random.Random, length: int | None) -> Texts:
    limits = Limits()
    if length is not None:
        if not 1 <= length <= LONGEST_RANDOM:
            raise UserError(f"the length must lie in 1..{LONGEST_RANDOM}, got {length}")
        # No expression has 2 or 3 tokens, and long expressions of a given length are rare.
        limits = Limits(min_length=length, max_length=4 if 1 < length < 4 else length + length // 10)
    [expression] = generate(1, seed=rng.randrange(SEEDS), **limits._asdict())
    return (" ".join(expressions.decode(expression.tokens)),)


def _nest(rng: random.Random, texts: Texts) -> Texts:
    """Apply an operator to the expression and a random one, of about the same length if the limit allows."""
    tokens = expressions.tokenize(*texts)
    room = (LONGEST - len(tokens) - 2) * 10 // 11
    length = max(1, min(len(tokens), room))  # less than LONGEST_RANDOM
    arguments = [" ".join(tokens), *_draw_expression(rng, length)]
    rng.shuffle(arguments)
    return (" ".join([rng.choice(OPERATORS), *arguments, CLOSE]),)


def _draw_formulas(rng: random.Random, length: int | None) -> Texts:
    groups = generate_pairs(1, seed=rng.randrange(SEEDS))
    [pair] = [pair for split in groups for group in split for pair in group]
    left, right = (" ".join(formulas.decode(ids)) for ids in (pair.left, pair.right))
    return left, right


def _join_formulas(rng: random.Random, texts: Texts) -> Texts:
    """Combine both formulas with random ones; tautologies and contradictions are avoided if possible."""
    typed = [" ".join(sentence.tokens) for sentence in LogicModel.read_text(*texts).sentences(0)]
    for _ in range(FORMULA_ATTEMPTS):
        random_formulas = _draw_formulas(rng, None)
        left, right = (
            f"( {text} ( {rng.choice((AND, OR))} {other} ) )"
            for text, other in zip(typed, random_formulas, strict=True)
        )
        if not {0, TAUTOLOGY} & {formulas.parse(formulas.tokenize(text)).table for text in (left, right)}:
            break
    return left, right


def _draw_opinion(rng: random.Random, length: int | None) -> Texts:
    [tree] = generate_film_sentences(1, rng.randrange(SEEDS))
    return (" ".join(tree.words),)


def _draw_sentence(rng: random.Random, length: int | None) -> Texts:
    [sentence] = generate_sentences(1, rng.randrange(SEEDS))
    return (" ".join(sentence.words),)


def _and(draw: Draw) -> Lengthen:
    """Append `and` and a random sentence to a sentence."""

    def join(rng: random.Random, texts: Texts) -> Texts:
        [other] = draw(rng, None)
        return (f"{texts[0].rstrip(' .')} and {other}".lstrip(),)

    return join


LANGUAGES = {
    "listops": Language(
        boxes=("Expression",),
        hint="[MAX, [MIN, [MED (median) or [SM (sum modulo 10) of digits and expressions, closed by ]",
        start=("[MAX 2 9 [MIN 4 7 ] 0 ]",),
        longest=LONGEST,
        draw=_draw_expression,
        lengthen=_nest,
        sized=True,
    ),
    "logic": Language(
        boxes=("Left formula", "Right formula"),
        hint="A variable a … f, or ( not F ), ( F ( and F ) ), ( F ( or F ) ) of formulas F",
        start=("( a ( and b ) )", "( a ( or ( not c ) ) )"),
        longest=LONGEST,
        draw=_draw_formulas,
        lengthen=_join_formulas,
    ),
    "sst": Language(
        boxes=("Sentence",),
        hint="Of a film review, in English; the color of a node is its sentiment",
        start=("neither bad nor dull",),
        longest=200,
        draw=_draw_opinion,
        lengthen=_and(_draw_opinion),
    ),
    "language_model": Language(
        boxes=("Sentence",),
        hint="A sentence",
        start=("the cat that the dogs follow sleeps",),
        longest=LONGEST_TRACED,
        draw=_draw_sentence,
        lengthen=_and(_draw_sentence),
    ),
}
"""By task."""
