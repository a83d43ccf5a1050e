"""Compute how often language models assign the higher probability to the grammatical sentence of a pair.

A model is right on a pair if the grammatical sentence is strictly more probable. A pair is scored if

- it is covered: all words of both sentences are in the vocabularies of all models. With `unknown="score"`,
pairs
  that are not covered are scored, too, with `<unk>` for unknown words;
- for all models, the two sentences differ. They may become equal by normalisation, or by differing only in
words
  that are read as `<unk>`.

So all models are compared on the same pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from tasks.language_model.model import Trained
from tasks.runs.errors import UserError
from tasks.syntax_eval.pairs import Pair, Sentence
from tasks.syntax_eval.paper_table import KINDS
from tasks.syntax_eval.scoring import log_probabilities

Unknown = Literal["skip", "score"]


class Key(NamedTuple):
    """The key by which pairs are grouped.

    Args:
        construction: what the pairs test.
        kind: which comparison of three sentences, one of KINDS; empty if there are only two sentences.
        group: group of constructions; if pairs of the same construction have several, the first.
    """

    construction: str
    kind: str
    group: str


class Tally(NamedTuple):
    """Numbers of pairs.

    Args:
        pairs: all pairs.
        covered: pairs whose words are all in the vocabularies of all models.
        scored: pairs that count for the accuracy.
        right: for each model, the number of scored pairs that it gets right.
    """

    pairs: int
    covered: int
    scored: int
    right: tuple[int, ...]


class Comparison(NamedTuple):
    """Two sentences to compare.

    Args:
        key: of the `Tally` that counts the comparison.
        better: the sentence that should be more probable.
        worse: the other sentence.
    """

    key: Key
    better: Sentence
    worse: Sentence


def compare(
    models: Sequence[Trained],
    pairs: Sequence[Pair],
    *,
    unknown: Unknown = "skip",
    include_end: bool = True,
) -> dict[Key, Tally]:
    """Count the pairs that models get right.

    Args:
        models: one or more.
        pairs: what to compare.
        unknown: "skip" pairs with unknown words, or "score" unknown words as `<unk>`.
        include_end: whether the end of a sentence counts as a word.
    Returns:
        The counts of each key, in the order of the keys' first pairs.
    Raises:
        UserError: a model's log-probabilities are not finite, or a vocabulary without `<unk>` lacks a word.
    """
    comparisons = comparisons_of(pairs)
    sentences = {sentence for _, better, worse in comparisons for sentence in (better, worse)}
    words = {word for sentence in sentences for word in sentence}
    known = {word for word in words if all(word in trained.vocabulary for trained in models)}
    covered = {sentence for sentence in sentences if known.issuperset(sentence)}
    candidates = [
        one for one in comparisons if unknown == "score" or (one.better in covered and one.worse in covered)
    ]
    encoded = [_encode(trained, candidates) for trained in models]
    scored = [one for one in candidates if all(table[one.better] != table[one.worse] for table in encoded)]
    right = [
        _right(trained, table, scored, include_end) for trained, table in zip(models, encoded, strict=True)
    ]
    count_all = Counter(one.key for one in comparisons)
    count_covered = Counter(one.key for one in comparisons if one.better in covered and one.worse in covered)
    count_scored = Counter(one.key for one in scored)
    return {
        key: Tally(count, count_covered[key], count_scored[key], tuple(counts[key] for counts in right))
        for key, count in count_all.items()
    }


def comparisons_of(pairs: Sequence[Pair]) -> list[Comparison]:
    """List the comparisons of pairs: one for each pair, three if there is an intrusive sentence.

    Args:
        pairs: minimal pairs.
    Returns:
        Comparisons in the order of the pairs.
    """
    comparisons = []
    groups: dict[str, str] = {}
    for construction, good, bad, intrusive, named in pairs:
        group = groups.setdefault(construction, named)
        if intrusive is None:
            comparisons.append(Comparison(Key(construction, "", group), good, bad))
            continue
        for kind, better, worse in zip(KINDS, (good, intrusive, good), (intrusive, bad, bad), strict=True):
            comparisons.append(Comparison(Key(construction, kind, group), better, worse))
    return comparisons


def _encode(trained: Trained, comparisons: Sequence[Comparison]) -> dict[Sentence, list[int]]:
    sentences = dict.fromkeys(sentence for one in comparisons for sentence in (one.better, one.worse))
    return {
        sentence: trained.vocabulary.encode(sentence, f"sentence {' '.join(sentence)!r}")
        for sentence in sentences
    }


def _right(
    trained: Trained,
    encoded: Mapping[Sentence, list[int]],
    scored: Sequence[Comparison],
    include_end: bool,
) -> Counter[Key]:
    """The number of pairs of each key that a model gets right."""
    numbers = {sentence: i for i, sentence in enumerate(dict.fromkeys(s for one in scored for s in one[1:]))}
    totals = log_probabilities(
        trained.model,
        [encoded[sentence] for sentence in numbers],
        trained.vocabulary.end,
        include_end=include_end,
    )
    if not np.isfinite(totals).all():
        raise UserError("the model's log-probabilities are not finite: its training has diverged")
    values = totals.tolist()
    return Counter(one.key for one in scored if values[numbers[one.better]] > values[numbers[one.worse]])
