"""Compute how often language models assign the higher probability to the grammatical sentence of a pair.

A model is right on a pair if the grammatical sentence is strictly more probable. A pair is scored if

- it is covered: all words of both sentences are in the vocabularies of all models, each of which splits
  sentences in its own way (`tokenization`). With `unknown="score"`, pairs that are not covered are scored,
  too, with `<unk>` for unknown words;
- for all models, the two sentences differ. They may become equal by normalization, or by differing only in
  words that are read as `<unk>`.

So all models are compared on the same pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from tasks.language_model.model import Trained
from tasks.language_model.tokenization import Tokenizer
from tasks.runs.errors import UserError
from tasks.syntax_eval.pairs import MinimalPair
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
    """Numbers of comparisons: one for each pair, three if it has an intrusive sentence.

    Args:
        comparisons: all comparisons.
        covered: comparisons whose words are all in the vocabularies of all models.
        scored: comparisons that count for the accuracy.
        right: the number of scored comparisons that each model gets right.
    """

    comparisons: int
    covered: int
    scored: int
    right: tuple[int, ...]


class Comparison(NamedTuple):
    """Two sentences to compare.

    Args:
        key: key of the `Tally` that counts the comparison.
        better: the sentence that should be more probable.
        worse: the other sentence.
        pair_key: the `key` of its pair.
    """

    key: Key
    better: str
    worse: str
    pair_key: str = ""


class ScoredComparison(NamedTuple):
    """A comparison and the log-probabilities of its sentences.

    Args:
        comparison: the two sentences.
        covered: whether all of their words are in the vocabularies of all models.
        differs_in_unknown: whether the comparison is scored and, for some model, one sentence has more
            unknown words than the other. A word is then compared with `<unk>`.
        log_probabilities: log-probabilities of the better and the worse sentence for each model, in nats;
            None if the comparison is not scored.
    """

    comparison: Comparison
    covered: bool
    differs_in_unknown: bool
    log_probabilities: tuple[tuple[float, float], ...] | None

    def row(self, models: Sequence[str]) -> dict[str, Any]:
        """The comparison as JSON values.

        Args:
            models: their names.
        """
        (construction, kind, group), better, worse, pair_key = self.comparison
        scores = None
        if self.log_probabilities is not None:
            scores = {
                name: {"good": round(good, 6), "bad": round(bad, 6), "right": good > bad}
                for name, (good, bad) in zip(models, self.log_probabilities, strict=True)
            }
        return {
            "construction": construction,
            "kind": kind,
            "group": group,
            "key": pair_key,
            "good": better,
            "bad": worse,
            "covered": self.covered,
            "log_probabilities": scores,
        }


def score_pairs(
    models: Sequence[Trained],
    pairs: Sequence[MinimalPair],
    *,
    tokenizers: Sequence[Tokenizer] | None = None,
    unknown: Unknown = "skip",
    include_end: bool = True,
) -> list[ScoredComparison]:
    """Compute the log-probabilities of the sentences of pairs.

    Args:
        models: one or more.
        pairs: what to compare.
        tokenizers: how each model reads sentences; by default `Tokenizer` of its vocabulary.
        unknown: "skip" pairs with unknown words, or "score" unknown words as `<unk>`.
        include_end: whether the end of a sentence counts as a word.
    Returns:
        The comparisons in the order of the pairs, scored or not.
    Raises:
        UserError: a model's log-probabilities are not finite, or a vocabulary without `<unk>` lacks a word.
    """
    tokenizers = tokenizers or [Tokenizer(trained.vocabulary) for trained in models]
    comparisons = _comparisons(pairs)
    readers = [
        _Reader(trained, tokenizer, _sentences(comparisons))
        for trained, tokenizer in zip(models, tokenizers, strict=True)
    ]
    covered = {pair: all(reader.knows(pair) for reader in readers) for pair in comparisons}
    candidates = [pair for pair in comparisons if covered[pair] or unknown == "score"]
    comparable = [pair for pair in candidates if all(reader.distinguishes(pair) for reader in readers)]
    tables = [reader.log_probabilities(_sentences(comparable), include_end) for reader in readers]
    results = {
        pair: tuple((table[pair.better], table[pair.worse]) for table in tables) for pair in comparable
    }
    differing = {pair for pair in comparable if any(reader.differs_in_unknown(pair) for reader in readers)}
    return [
        ScoredComparison(pair, covered[pair], pair in differing, results.get(pair)) for pair in comparisons
    ]


def count_right(scored: Sequence[ScoredComparison], models: int) -> dict[Key, Tally]:
    """Count the pairs that models get right.

    Args:
        scored: returned by `score_pairs`.
        models: number of models.
    Returns:
        The counts of each key, in the order of the keys' first pairs.
    """
    by_key: dict[Key, list[ScoredComparison]] = {}
    for pair in scored:
        by_key.setdefault(pair.comparison.key, []).append(pair)
    tallies = {}
    for key, group in by_key.items():
        counted = [pair.log_probabilities for pair in group if pair.log_probabilities is not None]
        right = [sum(scores[model][0] > scores[model][1] for scores in counted) for model in range(models)]
        covered = sum(pair.covered for pair in group)
        tallies[key] = Tally(len(group), covered, len(counted), tuple(right))
    return tallies


def _comparisons(pairs: Sequence[MinimalPair]) -> list[Comparison]:
    """The comparisons of pairs: one for each pair, three if there is an intrusive sentence."""
    comparisons = []
    groups: dict[str, str] = {}
    for construction, good, bad, intrusive, pair_group, key in pairs:
        group = groups.setdefault(construction, pair_group)
        if intrusive is None:
            comparisons.append(Comparison(Key(construction, "", group), good, bad, key))
            continue
        for kind, better, worse in zip(KINDS, (good, intrusive, good), (intrusive, bad, bad), strict=True):
            comparisons.append(Comparison(Key(construction, kind, group), better, worse, key))
    return comparisons


def _sentences(comparisons: Sequence[Comparison]) -> list[str]:
    """The sentences of comparisons, each once."""
    return list(dict.fromkeys(sentence for pair in comparisons for sentence in (pair.better, pair.worse)))


class _Reader:
    """A model, and sentences as it reads them."""

    def __init__(self, trained: Trained, tokenizer: Tokenizer, sentences: Sequence[str]) -> None:
        self.trained = trained
        self.words = {sentence: tokenizer(sentence) for sentence in sentences}

    def knows(self, pair: Comparison) -> bool:
        return not (self._unknown_words(pair.better) or self._unknown_words(pair.worse))

    def differs_in_unknown(self, pair: Comparison) -> bool:
        return self._unknown_words(pair.better) != self._unknown_words(pair.worse)

    def distinguishes(self, pair: Comparison) -> bool:
        return self._encode(pair.better) != self._encode(pair.worse)

    def log_probabilities(self, sentences: Sequence[str], include_end: bool) -> dict[str, float]:
        values = log_probabilities(
            self.trained.model,
            [self._encode(sentence) for sentence in sentences],
            include_end=include_end,
        )
        if not np.isfinite(values).all():
            raise UserError("the model's log-probabilities are not finite: its training has diverged")
        return dict(zip(sentences, values.tolist(), strict=True))

    def _unknown_words(self, sentence: str) -> int:
        return sum(word not in self.trained.vocabulary for word in self.words[sentence])

    def _encode(self, sentence: str) -> list[int]:
        return self.trained.vocabulary.encode(self.words[sentence], f"sentence {sentence!r}")
