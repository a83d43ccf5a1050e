"""Sentences with true trees, of a treebank or generated, and the options of verbs that read a treebank."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tasks.language_model.config import LanguageModelConfig
from tasks.language_model.corpus import generate_splits
from tasks.parsing.evaluation import LABELS, frequent_labels
from tasks.parsing.treebank import (
    PUNCTUATION_TAGS,
    Treebank,
    TreebankSentence,
    cut_label,
    read_treebank,
)
from tasks.runs.errors import UserError


class GoldSentences(NamedTuple):
    """Sentences with true trees, and their description for the report.

    Args:
        sentences: the sentences to score.
        source: where they come from.
        punctuation: how punctuation was handled.
        empty: number of trees without words.
        too_long: number of sentences that were left out because they have too many words.
        dropped_tags: number of removed words by tag, null elements excluded.
        unknown_tags: the part of `dropped_tags` whose tags the Penn Treebank does not have.
        published: whether to show published results for comparison.
        labels: the labels of constituents whose recall is shown.
    """

    sentences: list[TreebankSentence]
    source: str
    punctuation: str
    empty: int
    too_long: int
    dropped_tags: dict[str, int]
    unknown_tags: dict[str, int]
    published: bool
    labels: Sequence[str]

    def facts(self) -> dict[str, Any]:
        """The description, as JSON values."""
        return {name: value for name, value in self._asdict().items() if name not in ("sentences", "labels")}


@dataclass(kw_only=True)
class TreebankConfig:
    """Words that count."""

    keep_punctuation: bool = False
    """Keep the words of all tags, punctuation and currency signs included."""
    drop_tags: tuple[str, ...] = ()
    """Remove the words of these part-of-speech tags and of the Penn Treebank's tags of punctuation, and keep
    all others: for treebanks with other tags, such as `--drop-tags PU` for the Chinese Treebank. By default
    the words of all tags that are not word tags of the Penn Treebank are removed."""

    def read_gold(self, path: Path, max_words: int | None = None) -> GoldSentences:
        """Read a treebank; warn of tags in `drop_tags` that it does not have.

        With `drop_tags`, the labels are the most frequent ones, not those of the paper.

        Args:
            path: the treebank.
            max_words: maximum number of words of a sentence; None for no limit.
        Raises:
            UserError: both options are given, no sentence is short enough, or see `treebank.read_treebank`.
        """
        tags = [cut_label(tag) for tag in self.drop_tags]
        if self.keep_punctuation and tags:
            raise UserError(f"--drop-tags {' '.join(self.drop_tags)} has no effect with --keep-punctuation")
        if self.keep_punctuation:
            treebank = read_treebank(path, drop_tags=())
        else:
            treebank = read_treebank(path, drop_tags={*PUNCTUATION_TAGS, *tags} if tags else None)
        for tag in tags:
            if tag not in treebank.dropped:
                print(f"warning: --drop-tags {tag}: no word of {path} has this tag", file=sys.stderr)
        published = not (self.keep_punctuation or tags)
        gold = _select(treebank, max_words, f"{path}", self._punctuation(), published)
        return gold._replace(labels=frequent_labels(gold.sentences)) if tags else gold

    def _punctuation(self) -> str:
        if self.keep_punctuation:
            return "Punctuation and currency signs are kept, null elements removed"
        if self.drop_tags:
            return (
                f"Words with the tags {' '.join(self.drop_tags)}, punctuation of the Penn Treebank and null "
                "elements are removed"
            )
        return "Punctuation, currency signs and null elements are removed, according to their tags"


def generated_gold(config: LanguageModelConfig, max_words: int | None = None) -> GoldSentences:
    """Generate the test sentences of a run, with their trees.

    Args:
        config: configuration of the run.
        max_words: maximum number of words of a sentence; None for no limit.
    Raises:
        UserError: the run was not trained on generated sentences, or no sentence is short enough.
    """
    if config.data_dir is not None:
        raise UserError("--treebank must name true trees: the model was trained on a text without trees")
    _, _, test = generate_splits(config)
    sentences = [
        TreebankSentence(*generated, f"generated sentence {i}") for i, generated in enumerate(test, start=1)
    ]
    source = "the generated test data of the model's run"
    punctuation = "The generated sentences have no punctuation"
    return _select(Treebank(sentences, 0, Counter()), max_words, source, punctuation, published=False)


def _select(
    treebank: Treebank, max_words: int | None, source: str, punctuation: str, published: bool
) -> GoldSentences:
    """Choose the sentences that are short enough; one at least."""
    sentences = [
        sentence for sentence in treebank.sentences if max_words is None or len(sentence.words) <= max_words
    ]
    if not sentences:
        raise UserError(f"--max-words {max_words} leaves none of {len(treebank.sentences):,} sentences")
    return GoldSentences(
        sentences,
        source,
        punctuation,
        empty=treebank.empty,
        too_long=len(treebank.sentences) - len(sentences),
        dropped_tags=dict(treebank.dropped.most_common()),
        unknown_tags=treebank.unknown,
        published=published,
        labels=LABELS,
    )
