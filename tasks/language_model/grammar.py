"""Generate sentences of a small English-like grammar, with their trees, for the `demo` preset.

    S    → NP[n] VP[n]
    NP   → D N[n] | D A N[n] | NP[n] PP | NP[n] SBAR
    PP   → P NP
    SBAR → that VP[n] | that S
    VP   → V | V and V | V PP | T NP | W SBAR

Subject and verb agree in number n across anything between them. After a noun, S in `that S` is NP[m] T[m]:
the noun is the object of T.

There is no word `an`: a sentence may have `a old author`. The words stay, since measured numbers depend on
what a seed draws.
"""

from __future__ import annotations

from bisect import bisect
from typing import NamedTuple

import numpy as np

from ordered_memory.trees import Tree

# Words that inflect for number: singular, then plural.
DETERMINERS = (("the", "a", "every", "this"), ("the", "some", "all", "these"))
NOUNS = (
    ("dog", "cat", "child", "teacher", "farmer", "pilot", "author", "senator", "picture", "house"),
    (
        "dogs",
        "cats",
        "children",
        "teachers",
        "farmers",
        "pilots",
        "authors",
        "senators",
        "pictures",
        "houses",
    ),
)
ADJECTIVES = ("old", "young", "small", "tall", "happy", "famous")
PREPOSITIONS = ("near", "behind", "beside", "with")
INTRANSITIVE = (
    ("sleeps", "laughs", "swims", "runs", "waits", "smiles"),
    ("sleep", "laugh", "swim", "run", "wait", "smile"),
)
TRANSITIVE = (
    ("sees", "likes", "helps", "follows", "admires", "hears"),
    ("see", "like", "help", "follow", "admire", "hear"),
)
SENTENTIAL = (("says", "thinks", "knows"), ("say", "think", "know"))
MAX_DEPTH = 4
"""Maximum depth of nested clauses and phrases."""

Node = tuple[str, list["Node | str"]]


class GeneratedSentence(NamedTuple):
    """A sentence with its constituents.

    Args:
        words: the words.
        tree: over the words.
        labeled_spans: label, first and last word of every constituent of two or more words.
    """

    words: list[str]
    tree: Tree
    labeled_spans: list[tuple[str, int, int]]


class AgreementPair(NamedTuple):
    """A grammatical sentence and one that violates subject-verb agreement.

    Args:
        construction: name of the construction between subject and verb.
        good, bad: words of the sentences, which differ only in the verb.
    """

    construction: str
    good: list[str]
    bad: list[str]


def generate_sentences(count: int, seed: int) -> list[GeneratedSentence]:
    """Generate sentences.

    Args:
        count: number of sentences; some may be equal. A smaller count gives the first of them.
        seed: not negative.
    """
    rng = np.random.default_rng(seed)
    return [_flatten(_clause(rng, int(rng.integers(2)), 0)) for _ in range(count)]


def generate_pairs(count: int, seed: int) -> list[AgreementPair]:
    """Generate minimal pairs: two sentences, of which only one has subject-verb agreement.

    Args:
        count: number of pairs for each construction.
        seed: not negative.
    """
    rng = np.random.default_rng(seed)
    return [_draw_pair(rng, construction) for construction in _BETWEEN for _ in range(count)]


def _clause(rng: np.random.Generator, number: int, depth: int) -> Node:
    return "S", [_noun_phrase(rng, number, depth), _verb_phrase(rng, number, depth)]


def _noun_phrase(rng: np.random.Generator, number: int, depth: int) -> Node:
    kind = _choose(rng, _NOUN_PHRASES) if depth < MAX_DEPTH else int(rng.integers(2))
    if kind < 2:
        adjective = [_pick(rng, ADJECTIVES)] if kind == 1 else []
        return "NP", [_pick(rng, DETERMINERS[number]), *adjective, _pick(rng, NOUNS[number])]
    head = _simple_phrase(rng, number)
    modifier = _prepositional_phrase if kind == 2 else _relative_clause
    return "NP", [head, modifier(rng, number, depth + 1)]


def _simple_phrase(rng: np.random.Generator, number: int) -> Node:
    return "NP", [_pick(rng, DETERMINERS[number]), _pick(rng, NOUNS[number])]


def _prepositional_phrase(rng: np.random.Generator, number: int, depth: int) -> Node:
    return "PP", [_pick(rng, PREPOSITIONS), _noun_phrase(rng, int(rng.integers(2)), depth)]


def _relative_clause(rng: np.random.Generator, number: int, depth: int) -> Node:
    """A relative clause. The noun that it modifies has this number, and is its subject or object."""
    if rng.random() < 0.5:
        return "SBAR", ["that", _verb_phrase(rng, number, depth)]
    other_number = int(rng.integers(2))
    return "SBAR", ["that", ("S", [_simple_phrase(rng, other_number), _pick(rng, TRANSITIVE[other_number])])]


def _verb_phrase(rng: np.random.Generator, number: int, depth: int) -> Node:
    kind = _choose(rng, _VERB_PHRASES) if depth < MAX_DEPTH else int(rng.integers(2))
    if kind == 0:
        return "VP", [_pick(rng, INTRANSITIVE[number])]
    if kind == 1:
        return "VP", [_pick(rng, INTRANSITIVE[number]), "and", _pick(rng, INTRANSITIVE[number])]
    other_number = int(rng.integers(2))
    if kind == 2:
        return "VP", [_pick(rng, INTRANSITIVE[number]), _prepositional_phrase(rng, other_number, depth + 1)]
    if kind == 3:
        return "VP", [_pick(rng, TRANSITIVE[number]), _noun_phrase(rng, other_number, depth + 1)]
    return "VP", [_pick(rng, SENTENTIAL[number]), ("SBAR", ["that", _clause(rng, other_number, depth + 1)])]


def _cumulative(*probabilities: float) -> list[float]:
    sums = np.cumsum(probabilities)
    cumulative: list[float] = (sums / sums[-1]).tolist()
    return cumulative


_NOUN_PHRASES = _cumulative(0.5, 0.2, 0.15, 0.15)
_VERB_PHRASES = _cumulative(0.3, 0.1, 0.15, 0.35, 0.1)


def _choose(rng: np.random.Generator, cumulative: list[float]) -> int:
    """The same draw as `rng.choice` with these probabilities, which takes several times as long."""
    return bisect(cumulative, rng.random())


def _pick(rng: np.random.Generator, words: tuple[str, ...]) -> str:
    return words[int(rng.integers(len(words)))]


def _flatten(node: Node) -> GeneratedSentence:
    words: list[str] = []
    labeled_spans: list[tuple[str, int, int]] = []

    def visit(node: Node | str) -> Tree:
        if isinstance(node, str):
            words.append(node)
            return len(words) - 1
        first = len(words)
        children = [visit(child) for child in node[1]]
        if len(words) - first > 1:
            labeled_spans.append((node[0], first, len(words) - 1))
        return children[0] if len(children) == 1 else tuple(children)

    tree = visit(node)
    return GeneratedSentence(words, tree, labeled_spans)


def _between_nothing(rng: np.random.Generator, number: int) -> Node | None:
    return None


def _between_phrase(rng: np.random.Generator, number: int) -> Node:
    return "PP", [_pick(rng, PREPOSITIONS), _distractor(rng, number)]


def _between_subject_clause(rng: np.random.Generator, number: int) -> Node:
    return "SBAR", ["that", ("VP", [_pick(rng, TRANSITIVE[number]), _distractor(rng, number)])]


def _between_object_clause(rng: np.random.Generator, number: int) -> Node:
    verb = _pick(rng, TRANSITIVE[1 - number])
    return "SBAR", ["that", ("S", [_distractor(rng, number), verb])]


def _distractor(rng: np.random.Generator, number: int) -> Node:
    """A noun phrase in the other number than the subject."""
    return _simple_phrase(rng, 1 - number)


_BETWEEN = {
    "agreement": _between_nothing,
    "agreement across a prepositional phrase": _between_phrase,
    "agreement across a subject relative clause": _between_subject_clause,
    "agreement across an object relative clause": _between_object_clause,
}


def _draw_pair(rng: np.random.Generator, construction: str) -> AgreementPair:
    number = int(rng.integers(2))
    head = _simple_phrase(rng, number)
    between = _BETWEEN[construction](rng, number)
    subject: Node = head if between is None else ("NP", [head, between])
    verb = int(rng.integers(len(INTRANSITIVE[0])))
    good, bad = (
        _flatten(("S", [subject, ("VP", [INTRANSITIVE[n][verb]])])).words for n in (number, 1 - number)
    )
    return AgreementPair(construction, good, bad)
