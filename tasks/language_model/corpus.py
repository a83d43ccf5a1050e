"""Text as one long row of word numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from tasks.language_model.config import LanguageModelConfig
from tasks.language_model.grammar import draw_sentences
from tasks.language_model.vocabulary import Vocabulary
from tasks.runs.errors import UserError

FILES = ("train.txt", "valid.txt", "test.txt")


class Corpus(NamedTuple):
    """A text in three parts, each a row of numbers, (N,) int64, every sentence followed by `<eos>`.

    Args:
        vocabulary: the words of the training part.
        train, validation, test: the parts.
    """

    vocabulary: Vocabulary
    train: Tensor
    validation: Tensor
    test: Tensor


def load_corpus(config: LanguageModelConfig) -> Corpus:
    """The text of a run: read from its directory, or drawn.

    Args:
        config: names the directory, or says how many sentences to draw and with which seed.
    Raises:
        UserError: a file is missing or empty, or has words that are not in the training part, which has no
            `<unk>`.
    """
    if config.data_dir is not None:
        return read_corpus(config.data_dir)
    sentences = [sentence.words for sentence in draw_sentences(config.sentences, config.seed)]
    held_out = config.sentences // 10
    parts = [sentences[2 * held_out :], sentences[held_out : 2 * held_out], sentences[:held_out]]
    vocabulary = Vocabulary.of(parts[0])
    try:
        rows = [encode_text(part, vocabulary, name) for part, name in zip(parts, FILES, strict=True)]
    except UserError as error:
        raise UserError(f"--sentences {config.sentences} are too few: drawn {error}") from None
    return Corpus(vocabulary, *rows)


def read_corpus(directory: Path) -> Corpus:
    """Read train.txt, valid.txt and test.txt.

    Args:
        directory: has the three files, a sentence to a line.
    Raises:
        UserError: see `load_corpus`.
    """
    texts = [read_sentences(directory / name) for name in FILES]
    vocabulary = Vocabulary.of(texts[0])
    rows = (
        encode_text(text, vocabulary, str(directory / name)) for text, name in zip(texts, FILES, strict=True)
    )
    return Corpus(vocabulary, *rows)


def read_sentences(path: Path) -> list[list[str]]:
    """The words of each line; an empty line is a sentence without words.

    Args:
        path: of a UTF-8 text, words between spaces.
    Raises:
        UserError: no such file, or it has no words or is no UTF-8.
    """
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        sentences = [line.split() for line in lines]
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error.reason} at byte {error.start})") from None
    if not any(sentences):
        raise UserError(f"{path}: has no words")
    return sentences


def encode_text(sentences: Iterable[Sequence[str]], vocabulary: Vocabulary, where: str) -> Tensor:
    """The numbers of a text, every sentence followed by `<eos>`.

    Args:
        sentences: words.
        vocabulary: of the model.
        where: where they stand, for errors.
    Returns:
        (N,) int64.
    Raises:
        UserError: a word is not in the vocabulary, which has no `<unk>`.
    """
    numbers: list[int] = []
    for line, sentence in enumerate(sentences, start=1):
        numbers += vocabulary.encode(sentence, f"{where}, line {line}")
        numbers.append(vocabulary.end)
    return torch.tensor(numbers)
