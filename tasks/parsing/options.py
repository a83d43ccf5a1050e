"""Options of all verbs that read a treebank."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.parsing.evaluation import LABELS, frequent_labels
from tasks.parsing.treebank import Treebank, TreebankSentence, read_treebank
from tasks.runs.options import check_unused


@dataclass(kw_only=True)
class TagsConfig:
    """Words that count."""

    keep_punctuation: bool = False
    """Keep the words of all tags, punctuation and currency signs included."""
    drop_tags: tuple[str, ...] = ()
    """Remove the words of these part-of-speech tags, and keep all others: for treebanks whose tags are not
    those of the Penn Treebank, such as `--drop-tags PU` for the Chinese Treebank. By default the words of all
    tags that are not word tags of the Penn Treebank are removed."""

    def read_treebank(self, path: Path) -> Treebank:
        """Read a treebank; warn of tags in `drop_tags` that it does not have.

        Args:
            path: the treebank.
        Raises:
            UserError: both options are given, or see `treebank.read_treebank`.
        """
        if self.keep_punctuation:
            check_unused(self, TagsConfig, {"drop_tags": "with --keep-punctuation"})
        treebank = read_treebank(path, () if self.keep_punctuation else self.drop_tags or None)
        for tag in self.drop_tags:
            if tag not in treebank.dropped:
                print(f"warning: --drop-tags {tag}: no word of {path} has this tag", file=sys.stderr)
        return treebank

    def labels(self, sentences: Sequence[TreebankSentence]) -> Sequence[str]:
        """The labels whose recall is shown: those of the paper or, with other tags, the most frequent ones.

        Args:
            sentences: the sentences of the treebank.
        """
        return frequent_labels(sentences) if self.drop_tags else LABELS

    @property
    def punctuation(self) -> str:
        """What is removed, for reports."""
        if self.keep_punctuation:
            return "Punctuation and currency signs are kept, null elements removed"
        if self.drop_tags:
            return f"Words with the tags {' '.join(self.drop_tags)} and null elements are removed"
        return "Punctuation, currency signs and null elements are removed, according to their tags"
