"""Split sentences into the words of a model's vocabulary.

The sentences of minimal pairs, and those that users type, are natural text, such as "The author doesn't
laugh.". Language models are trained on text whose words are separated already, in one of several ways. Each
model reads a sentence in its own way.
"""

from __future__ import annotations

from typing import Literal

from tasks.language_model.normalize import is_normalized, normalize
from tasks.language_model.ptb_spelling import spell
from tasks.language_model.vocabulary import Vocabulary, split_at_spaces
from tasks.spelling.words import split_as_treebank

Tokenization = Literal["auto", "mikolov", "treebank", "spaces"]

DESCRIPTIONS = {
    "mikolov": "normalized as in Mikolov's Penn Treebank text: lower case, no punctuation, N for numbers",
    "treebank": "split into words and punctuation as in the Penn Treebank",
    "spaces": "split at spaces",
}
SENTENCE_ENDS = frozenset(".?!…。！？।؟۔։።။")
"""Characters of the marks that end a sentence, in several scripts; "?!" and "..." have several."""
CLOSING = ("''", '"', "'", "”", "’", "»", "」", "』", ")", "]", "}", "-RRB-", "-RSB-", "-RCB-")
"""May follow the end of a sentence."""
SPELLINGS = {
    "``": ('"', "“"),
    "''": ('"', "”"),
    "`": ("'", "‘"),
    "'": ("’",),
    "(": ("-LRB-",),
    ")": ("-RRB-",),
    "[": ("-LSB-",),
    "]": ("-RSB-",),
    "{": ("-LCB-",),
    "}": ("-RCB-",),
}
"""Other spellings of quotation marks and brackets, which are taken if the vocabulary has them only."""


class Tokenizer:
    """Splits sentences into words as in the text that a model was trained on.

    - "mikolov": `normalize.normalize`, for a vocabulary without capital letters and punctuation.
    - "treebank": by the conventions of the Penn Treebank (NLTK's `TreebankWordTokenizer`), for a vocabulary
      with punctuation. Words of the vocabulary stay as they are. Others are spelled like those of the
      vocabulary: in lower case if it only has that, quotation marks and brackets as it has them.
    - "spaces": words are separated by spaces, for all other vocabularies.

    Args:
        vocabulary: vocabulary of the model.
        tokenization: how to split; "auto" is the one for the vocabulary.
        final_period: with "treebank", add a period to a sentence that has no final punctuation, if the
            vocabulary has it.
    Attributes:
        tokenization: how sentences are split, never "auto".
    Example:
        >>> vocabulary = Vocabulary(["<eos>", "<unk>", "the", "The", "author", "does", "n't", "laugh", "."])
        >>> Tokenizer(vocabulary)("The author doesn't laugh")
        ('The', 'author', 'does', "n't", 'laugh', '.')
        >>> Tokenizer(vocabulary, "spaces")("The author doesn't laugh")
        ('The', 'author', "doesn't", 'laugh')
    """

    def __init__(
        self, vocabulary: Vocabulary, tokenization: Tokenization = "auto", final_period: bool = True
    ) -> None:
        self.vocabulary = vocabulary
        self.tokenization = _tokenization_of(vocabulary) if tokenization == "auto" else tokenization
        self.adds_period = final_period and self.tokenization == "treebank" and "." in vocabulary

    @property
    def description(self) -> str:
        """How sentences are split, as the end of a sentence that begins with "sentences are"."""
        period = "; a period is added where final punctuation is missing" if self.adds_period else ""
        return DESCRIPTIONS[self.tokenization] + period

    def __call__(self, text: str) -> tuple[str, ...]:
        """Split a sentence.

        Args:
            text: one sentence.
        Returns:
            Its words, some of which may be unknown; an empty tuple for a text without words.
        """
        if self.tokenization == "mikolov":
            return normalize(text)
        if self.tokenization == "spaces":
            return tuple(split_at_spaces(text))
        words = [self._respell(word) for word in split_as_treebank(text, self.vocabulary)]
        if words and self.adds_period and not _is_complete(words):
            words.append(".")
        return tuple(spell(words, self.vocabulary))

    def _respell(self, word: str) -> str:
        """Spell a quotation mark or bracket as in the vocabulary."""
        spellings = (word, *SPELLINGS.get(word, ()))
        return next((spelling for spelling in spellings if spelling in self.vocabulary), word)


def _tokenization_of(vocabulary: Vocabulary) -> Tokenization:
    """The way in which the text of a vocabulary was most likely split."""
    if is_normalized(vocabulary):
        return "mikolov"
    return "treebank" if any(mark in vocabulary for mark in (".", ",", "?", "!")) else "spaces"


def _is_complete(words: list[str]) -> bool:
    """Whether the last word, closing quotes and brackets aside, ends a sentence."""
    inner = [word for word in words[-3:] if word not in CLOSING]
    return bool(inner) and SENTENCE_ENDS.issuperset(inner[-1])
