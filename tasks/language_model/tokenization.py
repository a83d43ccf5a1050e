"""Split sentences into the words of a model's vocabulary.

The sentences of minimal pairs, and those that users type, are natural text, such as "The author doesn't
laugh.". Language models are trained on text whose words are separated already, in one of several ways. Each
model reads a sentence in its own way.
"""

from __future__ import annotations

from typing import Literal

from nltk.tokenize import TreebankWordTokenizer

from tasks.language_model.normalize import is_normalized, normalize
from tasks.language_model.ptb_spelling import spell
from tasks.language_model.vocabulary import Vocabulary

Tokenization = Literal["auto", "mikolov", "treebank", "spaces"]

DESCRIPTIONS = {
    "mikolov": "normalized as in Mikolov's Penn Treebank text: lower case, no punctuation, N for numbers",
    "treebank": "split into words and punctuation as in the Penn Treebank",
    "spaces": "split at spaces",
}
SENTENCE_ENDS = (".", "?", "!", "...")
CLOSING_QUOTES = ("''", '"', "'", "”", "’")
_TREEBANK = TreebankWordTokenizer()
_STRAIGHT = str.maketrans("“”‘’", "\"\"''")


class Tokenizer:
    """Splits sentences into words as in the text that a model was trained on.

    - "mikolov": `normalize.normalize`, for a vocabulary without capital letters and punctuation.
    - "treebank": by the conventions of the Penn Treebank (NLTK's `TreebankWordTokenizer`), for a vocabulary
      with punctuation. Words of the vocabulary stay as they are, others are spelled like it: in lower case if
      it only has that, quotation marks as in the vocabulary.
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
            return tuple(text.split())
        words = self._split(text)
        if words and self.adds_period and not _is_complete(words):
            words.append(".")
        return tuple(spell(words, self.vocabulary))

    def _split(self, text: str) -> list[str]:
        """Split as the treebank does. Words of the vocabulary, such as <unk>, stay whole."""
        pieces = text.translate(_STRAIGHT).split()
        words: list[str] = []
        for number, piece in enumerate(pieces, start=1):
            if piece in self.vocabulary:
                words.append(piece)
            elif number == len(pieces):
                words += _TREEBANK.tokenize(piece)
            else:  # a period is only split off at the end of the text
                words += _TREEBANK.tokenize(f"{piece} x")[:-1]
        return [self._quotation_mark(word) for word in words]

    def _quotation_mark(self, word: str) -> str:
        """Replace the treebank's quotation marks if the vocabulary only has straight ones."""
        straight = word in ("``", "''") and word not in self.vocabulary and '"' in self.vocabulary
        return '"' if straight else word


def _tokenization_of(vocabulary: Vocabulary) -> Tokenization:
    """The way in which the text of a vocabulary was most likely split."""
    if is_normalized(vocabulary):
        return "mikolov"
    return "treebank" if "." in vocabulary or "," in vocabulary else "spaces"


def _is_complete(words: list[str]) -> bool:
    """Whether the last word, closing quotes aside, ends a sentence."""
    inner = [word for word in words[-2:] if word not in CLOSING_QUOTES]
    return bool(inner) and inner[-1] in SENTENCE_ENDS
