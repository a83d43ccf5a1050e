"""Text corpora: each split is a single sequence of word ids."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from tasks.language_model.config import LanguageModelConfig
from tasks.language_model.grammar import GeneratedSentence, generate_sentences
from tasks.language_model.vocabulary import EOS_ID, UNKNOWN, Vocabulary, check_no_end, split_at_spaces
from tasks.runs.errors import UserError
from tasks.runs.text_files import find_files, read_text

FILES = ("train.txt", "valid.txt", "test.txt")


class Corpus(NamedTuple):
    """A text corpus.

    Args:
        vocabulary: the words of the training split, or those of the model that training starts from.
        train, validation, test: word ids of each split, (N,) int64; every sentence is followed by `<eos>`.
    """

    vocabulary: Vocabulary
    train: Tensor
    validation: Tensor
    test: Tensor


def load_corpus(config: LanguageModelConfig, vocabulary: Vocabulary | None = None) -> Corpus:
    """Read or generate the text of a run.

    Args:
        config: configuration of the run.
        vocabulary: vocabulary of the corpus; by default the words of the training split.
    Raises:
        UserError: a file is missing or empty, or has unknown words and the vocabulary has no `<unk>`.
    """
    if config.data_dir is not None:
        return read_corpus(config.data_dir, vocabulary, config.min_count)
    splits = [[sentence.words for sentence in split] for split in generate_splits(config)]
    try:
        return _encode(dict(zip(FILES, splits, strict=True)), vocabulary)
    except UserError as error:
        if vocabulary is not None:
            raise UserError(f"generated {error}; --data-dir names another text") from None
        raise UserError(f"--sentences {config.sentences} are too few: generated {error}") from None


def generate_splits(
    config: LanguageModelConfig,
) -> tuple[list[GeneratedSentence], list[GeneratedSentence], list[GeneratedSentence]]:
    """Generate the sentences of a run without `data_dir`, with their trees.

    Args:
        config: number of sentences and seed.
    Returns:
        Training, validation and test sentences.
    """
    sentences = generate_sentences(config.sentences, config.seed_of_data)
    held_out = config.sentences // 10
    return sentences[2 * held_out :], sentences[held_out : 2 * held_out], sentences[:held_out]


def generate_held_out(
    config: LanguageModelConfig,
) -> tuple[list[GeneratedSentence], list[GeneratedSentence]]:
    """Generate the validation and test sentences of `generate_splits`, without those for training.

    Args:
        config: number of sentences and seed.
    Returns:
        Validation and test sentences.
    """
    held_out = config.sentences // 10
    sentences = generate_sentences(2 * held_out, config.seed_of_data)
    return sentences[held_out:], sentences[:held_out]


def read_corpus(directory: Path, vocabulary: Vocabulary | None = None, min_count: int = 1) -> Corpus:
    """Read train.txt, valid.txt and test.txt, each as it is or compressed.

    Args:
        directory: contains the three files, with one sentence per line.
        vocabulary: the same as for `load_corpus`.
        min_count: words that occur fewer times in train.txt become `<unk>`; not used if the vocabulary is
            given.
    Raises:
        UserError: see `load_corpus`.
    """
    splits = {str(path): read_sentences(path) for path in find_files(directory, FILES)}
    try:
        return _encode(splits, vocabulary, min_count)
    except UserError as error:
        if vocabulary is not None:
            raise
        raise UserError(f"{error}; --min-count 2 reads rare words of train.txt as {UNKNOWN}") from None


def _encode(splits: dict[str, list[list[str]]], vocabulary: Vocabulary | None, min_count: int = 1) -> Corpus:
    """Encode the splits, given by name, the training split first."""
    if vocabulary is None:
        vocabulary = Vocabulary.from_sentences(next(iter(splits.values())), min_count)
    return Corpus(vocabulary, *(encode_text(text, vocabulary, name) for name, text in splits.items()))


def read_sentences(path: Path) -> list[list[str]]:
    """Read the words of each line; an empty line is a sentence without words.

    Args:
        path: path of a UTF-8 text file, possibly compressed, with words separated by ASCII white space.
    Raises:
        UserError: the file does not exist, has no words, has `<eos>`, or is not UTF-8.
    """
    # A word that occurs often is one object: this is a third of the memory of a large text.
    sentences = [
        [sys.intern(word) for word in split_at_spaces(line)]
        for line in read_text(path).removesuffix("\n").split("\n")
    ]
    for line, sentence in enumerate(sentences, start=1):
        check_no_end(sentence, f"{path}, line {line}")
    if not any(sentences):
        raise UserError(f"{path}: has no words")
    return sentences


def split_text(text: Tensor, vocabulary: Vocabulary) -> list[list[str]]:
    """Decode a text to sentences; the inverse of `encode_text` for known words.

    Args:
        text: word ids, (N,) int64; every sentence is followed by `<eos>`.
        vocabulary: vocabulary of the model.
    """
    sentences: list[list[str]] = [[]]
    for i in text.tolist():
        if i == EOS_ID:
            sentences.append([])
        else:
            sentences[-1].append(vocabulary.words[i])
    return sentences[:-1]


def encode_text(sentences: Iterable[Sequence[str]], vocabulary: Vocabulary, where: str) -> Tensor:
    """Convert sentences to word ids; every sentence is followed by `<eos>`.

    Args:
        sentences: the words of each sentence.
        vocabulary: vocabulary of the model.
        where: name of the text, for error messages.
    Returns:
        (N,) int64.
    Raises:
        UserError: a word is `<eos>`, or not in the vocabulary, which has no `<unk>`.
    """
    ids: list[int] = []
    for line, sentence in enumerate(sentences, start=1):
        ids += vocabulary.encode(sentence, f"{where}, line {line}")
        ids.append(EOS_ID)
    return torch.tensor(ids, dtype=torch.int64)
