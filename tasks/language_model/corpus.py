"""Text as one long row of word ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from tasks.language_model.config import LanguageModelConfig
from tasks.language_model.grammar import Sentence, draw_sentences
from tasks.language_model.vocabulary import Vocabulary
from tasks.runs.errors import UserError

FILES = ("train.txt", "valid.txt", "test.txt")


class Corpus(NamedTuple):
    """A text in three parts, each a row of word ids, (N,) int64, every sentence followed by `<eos>`.

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
    parts = [[sentence.words for sentence in part] for part in draw_parts(config)]
    try:
        return _encode(dict(zip(FILES, parts, strict=True)))
    except UserError as error:
        raise UserError(f"--sentences {config.sentences} are too few: drawn {error}") from None


def draw_parts(config: LanguageModelConfig) -> tuple[list[Sentence], list[Sentence], list[Sentence]]:
    """The sentences of a run that draws its text, with their trees.

    Args:
        config: says how many and with which seed.
    Returns:
        Those for training, validation and testing.
    """
    sentences = draw_sentences(config.sentences, config.seed)
    held_out = config.sentences // 10
    return sentences[2 * held_out :], sentences[held_out : 2 * held_out], sentences[:held_out]


def read_corpus(directory: Path) -> Corpus:
    """Read train.txt, valid.txt and test.txt.

    Args:
        directory: has the three files, one sentence per line.
    Raises:
        UserError: see `load_corpus`.
    """
    return _encode({f"{directory / name}": read_sentences(directory / name) for name in FILES})


def _encode(parts: dict[str, list[list[str]]]) -> Corpus:
    """The three parts by name, training first."""
    vocabulary = Vocabulary.of(next(iter(parts.values())))
    return Corpus(vocabulary, *(encode_text(text, vocabulary, name) for name, text in parts.items()))


def read_sentences(path: Path) -> list[list[str]]:
    """The words of each line; an empty line is a sentence without words.

    Args:
        path: of a UTF-8 text, words between spaces.
    Raises:
        UserError: no such file, it has no words, or it is not UTF-8.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error.reason} at byte {error.start})") from None
    sentences = [line.split() for line in text.removesuffix("\n").split("\n")]
    if not any(sentences):
        raise UserError(f"{path}: has no words")
    return sentences


def split_text(text: Tensor, vocabulary: Vocabulary) -> list[list[str]]:
    """The sentences of a text; the inverse of `encode_text` for known words.

    Args:
        text: (N,) int64, every sentence followed by `<eos>`.
        vocabulary: of the model.
    """
    sentences: list[list[str]] = [[]]
    for i in text.tolist():
        if i == vocabulary.end:
            sentences.append([])
        else:
            sentences[-1].append(vocabulary.words[i])
    return sentences[:-1]


def encode_text(sentences: Iterable[Sequence[str]], vocabulary: Vocabulary, where: str) -> Tensor:
    """The word ids of a text, every sentence followed by `<eos>`.

    Args:
        sentences: words.
        vocabulary: of the model.
        where: name of the text, for errors.
    Returns:
        (N,) int64.
    Raises:
        UserError: a word is not in the vocabulary, which has no `<unk>`.
    """
    ids: list[int] = []
    for line, sentence in enumerate(sentences, start=1):
        ids += vocabulary.encode(sentence, f"{where}, line {line}")
        ids.append(vocabulary.end)
    return torch.tensor(ids)
