"""The words of generated sentences. Words with a sentiment have one list for each label from 0 to 4."""

from __future__ import annotations


def _words(text: str) -> list[str]:
    return text.split()


def _by_label(*texts: str) -> list[list[str]]:
    return [_words(text) for text in texts]


ADJECTIVES = _by_label(
    "awful terrible dreadful horrible atrocious abysmal appalling disastrous unbearable pathetic",
    "bad dull weak boring slow silly flat tedious clumsy predictable bland stale messy shallow lazy tired "
    "pretentious forgettable confusing lifeless",
    "long short new old recent french american italian foreign quiet loud dark modern classic",
    "good funny clever charming fresh smart warm sharp witty lively moving touching engaging solid tender "
    "honest entertaining inventive gripping likable",
    "brilliant superb wonderful magnificent stunning exquisite flawless extraordinary dazzling marvelous",
)
QUALITIES = _by_label(
    "agony misery torture",
    "boredom confusion noise nonsense clutter sentimentality emptiness laziness",
    "dialogue music footage action narration",
    "charm wit humor energy grace warmth depth suspense imagination style intelligence",
    "genius brilliance magic perfection",
)
VERBS = _by_label(
    "hate despise loathe detest",
    "dislike resent mock regret",
    "see watch review mention describe discuss",
    "like enjoy praise appreciate recommend",
    "love adore treasure worship",
)
PAST = _by_label(
    "hated despised loathed detested",
    "disliked resented mocked regretted",
    "saw watched reviewed mentioned described discussed",
    "liked enjoyed praised appreciated recommended",
    "loved adored treasured worshipped",
)

THINGS = _words(
    "film movie story script plot comedy drama thriller documentary sequel ending picture scene remake tale "
    "screenplay adventure romance cartoon biography musical western opera series episode"
)
PEOPLE = _words(
    "critic director actor viewer writer actress producer student teacher reporter child woman man boy girl "
    "neighbor doctor lawyer friend stranger"
)
EVERYONE = _words("everyone everybody somebody someone")
DETERMINERS = _words("the this his her their our")
COPULAS = _words("is was seems looks feels remains sounds stays")
AUXILIARIES = _words("is was")
INTENSIFIERS = _words("very really extremely truly deeply incredibly thoroughly remarkably")
DIMINISHERS = _words("somewhat fairly rather slightly mildly partly moderately")
NEGATIONS = _words("not hardly scarcely")
GIVES = _words("has offers shows delivers contains provides")
LACKS = _words("lacks avoids escapes misses loses")
SAYS = _words("thinks says believes knows claims feels")
DOUBTS = _words("doubts denies")
CONCESSIONS = _words("although though while")
