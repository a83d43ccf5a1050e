"""Generate sentences about films from a small grammar in which the structure determines the sentiment.

A word without a sentiment in `lexicon.py` is neutral (2). Constituents are labeled bottom-up:

    very good, very bad               4, 0: an intensifier strengthens
    somewhat brilliant                3: a diminisher weakens
    not good, not very good           1, 1: negation flips and weakens; so do `n't`, `hardly`, `no`, `lacks`,
                                      `doubts`, `nobody`
    good and bad                      2: the mean, halves away from neutral
    good but bad                      1: what follows `but`
    neither good nor bad              2: the mean of both, each flipped
    loved this dull film              4: the verb; where it is neutral, its object
    the dull film is good             3: the predicate; where it is neutral, its subject
    the good film that nobody liked   1: the relative clause; where it is neutral, its noun
    although it is good , it is bad   1: the main clause

A sentence has one reading: degrees and negations stand before one adjective or quality; `but`, `and` and
`although` join single adjectives or whole sentences.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from ordered_memory.trees import Span, Tree
from tasks.runs.errors import UserError
from tasks.sst import lexicon
from tasks.sst.treebank import NEUTRAL, LabeledTree, Treebank

LONGEST = 25
"""Maximum number of words of a sentence."""
MAX_DEPTH = 2
"""Maximum depth of nested clauses such as `the critic says that …`."""
SMALLEST_TREEBANK = 10


class Node(NamedTuple):
    """A labeled constituent.

    Args:
        label: 0 … 4.
        parts: a word, or two constituents.
    """

    label: int
    parts: str | tuple[Node, Node]


def generate(size: int, seed: int) -> list[LabeledTree]:
    """Generate distinct sentences.

    Args:
        size: number of sentences, at least 1. A smaller size gives the first sentences of a larger one.
        seed: not negative.
    Raises:
        UserError: an argument is out of range.
    """
    if size < 1:
        raise UserError(f"the number of generated sentences must be at least 1, got {size}")
    if seed < 0:
        raise UserError(f"the seed of generated sentences must not be negative, got {seed}")
    drawer = _Drawer(random.Random(seed))
    trees: dict[tuple[str, ...], LabeledTree] = {}
    while len(trees) < size:
        tree = _flatten(drawer.sentence())
        if len(tree.words) <= LONGEST:
            trees.setdefault(tree.words, tree)
    return list(trees.values())


def generate_treebank(size: int, seed: int) -> Treebank:
    """Generate distinct sentences: 80 % for training, 10 % for validation, 10 % for testing.

    Args:
        size: total number of sentences, at least `SMALLEST_TREEBANK`.
        seed: not negative.
    Raises:
        UserError: an argument is out of range.
    """
    if size < SMALLEST_TREEBANK:
        raise UserError(f"--generated must be 0 or at least {SMALLEST_TREEBANK}, got {size}")
    trees, tenth = generate(size, seed), size // 10
    return Treebank(trees[: -2 * tenth], trees[-2 * tenth : -tenth], trees[-tenth:])


# ---- how sentiments are composed

STRONGER = (0, 0, 2, 4, 4)
"""What `very` makes of each label."""
WEAKER = (1, 1, 2, 3, 3)
"""What `somewhat` makes of each label."""
NEGATED = (3, 3, 2, 1, 1)
"""What `not` makes of each label."""


def _mean(first: int, second: int) -> int:
    total = first + second
    return (total + 1) // 2 if total > 2 * NEUTRAL else total // 2


def _label_of_head(head: int, other: int) -> int:
    """The label of the head or, if that is neutral, of the other constituent."""
    return other if head == NEUTRAL else head


# ---- the grammar


def _word(text: str) -> Node:
    return Node(NEUTRAL, text)


def _join(label: int, left: Node, right: Node) -> Node:
    return Node(label, (left, right))


def _right_headed(left: Node, right: Node) -> Node:
    """A constituent whose label is that of its right child."""
    return _join(right.label, left, right)


def _negate(left: Node, right: Node) -> Node:
    return _join(NEGATED[right.label], left, right)


def _and(left: Node, right: Node) -> Node:
    return _join(_mean(left.label, right.label), left, _right_headed(_word("and"), right))


def _but(left: Node, right: Node) -> Node:
    return _right_headed(left, _right_headed(_word("but"), right))


class _Drawer:
    """Draws random constituents; each method is a rule of the grammar."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def happens(self, probability: float) -> bool:
        return self.rng.random() < probability

    def choose(self, **weights: float) -> str:
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def word(self, words: Sequence[str]) -> Node:
        return _word(self.rng.choice(words))

    def loaded_word(self, words: Sequence[Sequence[str]], neutral: float) -> Node:
        """A word with a sentiment or, with the probability `neutral`, a neutral one."""
        label = NEUTRAL if self.happens(neutral) else self.rng.choice((0, 1, 1, 3, 3, 4))
        return Node(label, self.rng.choice(words[label]))

    def sentence(self) -> Node:
        kind = self.choose(one=0.3, joined=0.5, aside_first=0.14, aside_last=0.06)
        if kind == "one":
            return self.statement()
        if kind == "joined":
            return self.joined()
        aside = _right_headed(self.word(lexicon.CONCESSIONS), self.statement())
        if kind == "aside_last":
            main = self.statement()
            return _join(main.label, main, aside)
        main = self.joined() if self.happens(0.3) else self.statement()
        return _right_headed(_join(aside.label, aside, _word(",")), main)

    def joined(self) -> Node:
        return (_but if self.happens(0.7) else _and)(self.statement(), self.statement())

    def statement(self, depth: int = 0) -> Node:
        """A clause, or `somebody says that` or `somebody doubts that` with a clause."""
        if depth == MAX_DEPTH or self.happens(0.75):
            return self.about_thing() if self.happens(0.7) else self.about_person()
        inner = _right_headed(_word("that"), self.statement(depth + 1))
        if self.happens(0.4):
            return self.of_person(_negate(self.word(lexicon.DOUBTS), inner))
        return self.of_person(_right_headed(self.word(lexicon.SAYS), inner))

    def about_thing(self) -> Node:
        subject = _word("it") if self.happens(0.3) else self.thing(relative=0.4)
        predicate = self.predicate()
        return _join(_label_of_head(predicate.label, subject.label), subject, predicate)

    def predicate(self) -> Node:
        kind = self.choose(adjectives=0.5, is_not=0.15, is_a=0.1, gives=0.05, gives_no=0.05, lacks=0.15)
        if kind == "adjectives":
            return _right_headed(self.word(lexicon.COPULAS), self.adjectives())
        if kind == "is_not":
            auxiliary = _right_headed(self.word(lexicon.AUXILIARIES), _word("n't"))
            return _negate(auxiliary, self.strong() if self.happens(0.6) else self.one_thing())
        if kind == "is_a":
            return _right_headed(self.word(lexicon.AUXILIARIES), self.one_thing())
        quality = self.loaded_word(lexicon.QUALITIES, neutral=0.1)
        if kind == "lacks":
            return _negate(self.word(lexicon.LACKS), quality)
        return _right_headed(
            self.word(lexicon.GIVES), quality if kind == "gives" else _negate(_word("no"), quality)
        )

    def about_person(self) -> Node:
        if self.happens(0.3):
            return self.of_person(
                _negate(_right_headed(_word("did"), _word("n't")), self.action(lexicon.VERBS))
            )
        return self.of_person(self.action(lexicon.PAST))

    def action(self, verbs: Sequence[Sequence[str]]) -> Node:
        verb, thing = self.loaded_word(verbs, neutral=0.25), self.thing(relative=0.15)
        return _join(_label_of_head(verb.label, thing.label), verb, thing)

    def of_person(self, predicate: Node) -> Node:
        kind = self.choose(person=0.5, everyone=0.3, nobody=0.2)
        if kind == "nobody":
            return _negate(_word("nobody"), predicate)
        if kind == "everyone":
            return _right_headed(self.word(lexicon.EVERYONE), predicate)
        return _right_headed(
            _right_headed(self.word(lexicon.DETERMINERS), self.word(lexicon.PEOPLE)), predicate
        )

    def adjectives(self) -> Node:
        kind = self.choose(degree=0.4, negated=0.2, neither=0.15, but=0.15, both=0.1)
        if kind == "degree":
            return self.degree()
        if kind == "negated":
            return self.negated()
        if kind == "neither":
            left, right = _negate(_word("neither"), self.strong()), _negate(_word("nor"), self.strong())
            return _join(_mean(left.label, right.label), left, right)
        left, right = (self.negated() if self.happens(0.3) else self.degree() for _ in range(2))
        return _but(left, right) if kind == "but" else _and(left, right)

    def negated(self) -> Node:
        return _negate(self.word(lexicon.NEGATIONS), self.strong())

    def degree(self) -> Node:
        if self.happens(0.8):
            return self.strong()
        adjective = self.loaded_word(lexicon.ADJECTIVES, neutral=0.05)
        return _join(WEAKER[adjective.label], self.word(lexicon.DIMINISHERS), adjective)

    def strong(self) -> Node:
        """An adjective, possibly with an intensifier, but never with a diminisher (`not somewhat good`)."""
        adjective = self.loaded_word(lexicon.ADJECTIVES, neutral=0.05)
        if self.happens(0.75):
            return adjective
        return _join(STRONGER[adjective.label], self.word(lexicon.INTENSIFIERS), adjective)

    def one_thing(self) -> Node:
        """`a dull film`."""
        article, adjective = _word("a"), self.loaded_word(lexicon.ADJECTIVES, neutral=0.05)
        if str(adjective.parts).startswith(("a", "e", "i", "o", "u", "hon")):
            article = _word("an")
        return _right_headed(article, _join(adjective.label, adjective, self.word(lexicon.THINGS)))

    def thing(self, relative: float) -> Node:
        """`the film`, possibly with an adjective, and with probability `relative` with a relative clause."""
        noun = self.word(lexicon.THINGS)
        if self.happens(0.3):
            adjective = self.degree()
            noun = _join(adjective.label, adjective, noun)
        phrase = _right_headed(self.word(lexicon.DETERMINERS), noun)
        if not self.happens(relative):
            return phrase
        inside = (
            self.predicate()
            if self.happens(0.4)
            else self.of_person(self.loaded_word(lexicon.PAST, neutral=0.1))
        )
        clause = _right_headed(_word("that"), inside)
        return _join(_label_of_head(clause.label, phrase.label), phrase, clause)


def _flatten(root: Node) -> LabeledTree:
    words: list[str] = []
    labels: dict[Span, int] = {}

    def visit(node: Node) -> Tree:
        first = len(words)
        if isinstance(node.parts, str):
            words.append(node.parts)
            tree: Tree = first
        else:
            tree = tuple(visit(part) for part in node.parts)
        labels[first, len(words) - 1] = node.label
        return tree

    tree = visit(root)
    return LabeledTree(tuple(words), tree, labels)
