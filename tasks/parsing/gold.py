"""Sentences with true trees, of a treebank or generated, and options of subcommands that read them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tasks.formatting.tables import count_text
from tasks.language_model.config import LanguageModelConfig
from tasks.language_model.corpus import generate_held_out
from tasks.parsing.evaluation import LABELS, frequent_labels
from tasks.parsing.treebank import (
    PUNCTUATION_TAGS,
    Treebank,
    TreebankSentence,
    cut_label,
    read_treebank,
)
from tasks.runs.command_options import CommandConfig
from tasks.runs.errors import UserError
from tasks.runs.options import check_at_least


class GoldSentences(NamedTuple):
    """Sentences with true trees, and their description for the report.

    Args:
        treebank: the sentences to score, and what was removed.
        source: where they come from.
        punctuation: how punctuation was handled.
        published: whether to show published results for comparison.
        other_tags: whether the treebank has other tags than the Penn Treebank.
        too_long: number of sentences that were left out because they have too many words.
    """

    treebank: Treebank
    source: str
    punctuation: str
    published: bool
    other_tags: bool = False
    too_long: int = 0

    @property
    def sentences(self) -> list[TreebankSentence]:
        """The sentences to score."""
        return self.treebank.sentences

    @property
    def labels(self) -> Sequence[str]:
        """The labels whose recall is shown: those of the paper or, with other tags, the most frequent."""
        return frequent_labels(self.sentences) if self.other_tags else LABELS

    def facts(self) -> dict[str, Any]:
        """The description, as JSON values."""
        return {
            "source": self.source,
            "punctuation": self.punctuation,
            "empty": self.treebank.empty,
            "too_long": self.too_long,
            "dropped_tags": dict(self.treebank.dropped.most_common()),
            "unknown_tags": self.treebank.unknown,
            "published": self.published,
        }

    def at_most(self, max_words: int | None) -> GoldSentences:
        """Leave out long sentences.

        Args:
            max_words: maximum number of words of a sentence; None for no limit.
        Raises:
            UserError: no sentence is short enough.
        """
        if max_words is None:
            return self
        sentences = [sentence for sentence in self.sentences if len(sentence.words) <= max_words]
        if not sentences:
            raise UserError(
                f"--max-words {max_words} leaves none of {count_text(len(self.sentences), 'sentence')}"
            )
        too_long = len(self.sentences) - len(sentences)
        return self._replace(treebank=self.treebank._replace(sentences=sentences), too_long=too_long)


@dataclass(kw_only=True)
class TreebankConfig(CommandConfig):
    """Words and sentences that count."""

    keep_punctuation: bool = False
    """Keep the words of all tags, punctuation and currency signs included."""
    drop_tags: tuple[str, ...] = ()
    """Remove the words of these part-of-speech tags and of the Penn Treebank's tags of punctuation, and keep
    all others: for treebanks with other tags, such as `--drop-tags PU` for the Chinese Treebank. By default
    the words of all tags that are not word tags of the Penn Treebank are removed."""
    max_words: int | None = None
    """Leave out sentences with more words than this; punctuation counts only with --keep-punctuation."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "max_words")

    def read_gold(self, path: Path) -> GoldSentences:
        """Read all sentences of a treebank; warn of tags in `drop_tags` that it does not have.

        Args:
            path: the treebank.
        Raises:
            UserError: both options are given, or see `treebank.read_treebank`.
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
        return GoldSentences(treebank, f"{path}", self._punctuation(), published, other_tags=bool(tags))

    def _punctuation(self) -> str:
        if self.keep_punctuation:
            return "Punctuation and currency signs are kept, null elements removed"
        if self.drop_tags:
            return (
                f"Words with the tags {' '.join(self.drop_tags)}, punctuation of the Penn Treebank and null "
                "elements are removed"
            )
        return "Punctuation, currency signs and null elements are removed, according to their tags"


def generated_gold(config: LanguageModelConfig) -> GoldSentences:
    """Generate the test sentences of a run, with their trees.

    Args:
        config: configuration of the run.
    Raises:
        UserError: the run was not trained on generated sentences.
    """
    if config.data_dir is not None:
        raise UserError("--treebank must name true trees: the model was trained on a text without trees")
    _, test = generate_held_out(config)
    sentences = [
        TreebankSentence(*generated, f"generated sentence {i}") for i, generated in enumerate(test, start=1)
    ]
    source = "the generated test data of the model's run"
    punctuation = "The generated sentences have no punctuation"
    return GoldSentences(Treebank(sentences, 0, Counter()), source, punctuation, published=False)
