"""Compute the syntactic distances of words with a language model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from onlstm.language_model import LanguageModelBase
from ordered_memory.devices import copy_to
from ordered_memory.trace import Trace, read_distances
from tasks.language_model.model import Trained, load_model
from tasks.language_model.ptb_spelling import spell
from tasks.language_model.tokenization import Tokenizer
from tasks.language_model.vocabulary import EOS_ID, UNKNOWN, Vocabulary
from tasks.runs.batching import evaluation_batches
from tasks.runs.errors import UserError
from tasks.runs.options import check_sentences, check_text
from tasks.runs.progress import progress_bar

SENTENCES_PER_BATCH, TOKENS_PER_BATCH = 128, 2_048
LONGEST_TRACED = 300
"""Maximum number of words of a traced sentence: time and memory of CKY are cubic."""
ABOUT = (
    "The model reads a text word by word and predicts the probability of each next word. It is never shown a "
    "tree."
)


class DistanceKind(NamedTuple):
    """The distances of a kind of model.

    Args:
        name: name of the model.
        unit: unit of the distances.
        temperature: default temperature of the "cky" decoding, in this unit.
    """

    name: str
    unit: str
    temperature: float


DISTANCES = {
    "onlstm": DistanceKind("ON-LSTM", "in master-gate entries", 1.0),
    "prpn": DistanceKind("PRPN", "in (0, 1)", 0.01),
}
"""By `--model`; an LSTM has no distances."""


def load_with_distances(path: Path) -> Trained:
    """Load a trained language model that has distances; see `tasks.language_model.model.load_model`.

    Args:
        path: path of its checkpoint.
    Raises:
        UserError: not a checkpoint of a language model, or the model is an LSTM.
    """
    trained = load_model(path)
    if trained.config.model not in DISTANCES:
        raise UserError(f"{path}: an LSTM has no distances; expected an ON-LSTM or PRPN")
    return trained


def layers_of(trained: Trained) -> list[int]:
    """List the layers that have distances, numbered from 1; PRPN's parsing network counts as one layer.

    Args:
        trained: the model and its configuration.
    """
    count = 1 if trained.config.model == "prpn" else trained.config.num_layers
    return list(range(1, count + 1))


def split_sentence(text: str, tokenizer: Tokenizer, max_words: int) -> list[str]:
    """Split a sentence that a user typed into words.

    Args:
        text: the sentence.
        tokenizer: how the model reads sentences.
        max_words: maximum number of words.
    Returns:
        The words as they were typed (`The 3`), if the model reads them as it reads those that the tokenizer
        makes of them (`the N`); otherwise the latter.
    Raises:
        UserError: there are no words or too many, or it is not Unicode text.
    """
    check_text(text, "the sentence")
    words = list(tokenizer(text))
    if not 1 <= len(words) <= max_words:
        raise UserError(f"the sentence must have 1 to {max_words:,} words, got {len(words):,}")
    typed, vocabulary = text.split(), tokenizer.vocabulary
    return typed if _as_read(typed, vocabulary) == _as_read(words, vocabulary) else words


def distances_and_words(
    trained: Trained, words: Sequence[str], layers: Sequence[int]
) -> tuple[Tensor, list[str]]:
    """Compute the distances of one sentence, and its words as the model reads them.

    Args:
        trained: the model and its vocabulary.
        words: one or more words.
        layers: numbered from 1.
    Returns:
        Distances of these layers, (layers, words), and the words: spelled as in the vocabulary, or `<unk>`.
    Raises:
        UserError: see `distances_of_sentences`.
    """
    (distances,) = distances_of_sentences(trained, [words], ["the sentence"])
    return distances[[layer - 1 for layer in layers]], _as_read(words, trained.vocabulary)


def _as_read(words: Sequence[str], vocabulary: Vocabulary) -> list[str]:
    """The words as the model reads them: spelled as in the vocabulary, or `<unk>`."""
    return [word if word in vocabulary else UNKNOWN for word in spell(words, vocabulary)]


def trace_sentence(
    trained: Trained, words: Sequence[str], layers: Sequence[int], temperature: float | None = None
) -> Trace:
    """Make the trace of one sentence.

    Args:
        trained, words, layers: see `distances_and_words`.
        temperature: temperature of the "cky" decoding, in the unit of the distances; None for the model's.
    Returns:
        A trace of the words; its caption shows the words as the model reads them, if they differ.
    Raises:
        UserError: see `distances_of_sentences`.
    """
    distances, words_read = distances_and_words(trained, words, layers)
    names = [f"layer {layer}" for layer in layers]
    temperature = temperature or DISTANCES[trained.config.model].temperature
    trace = read_distances(distances, words, names=names, temperature=temperature)
    trace["caption"] = "" if words_read == list(words) else f"read as: {' '.join(words_read)}"
    return trace


def distances_of_sentences(
    trained: Trained,
    sentences: Sequence[Sequence[str]],
    where: Sequence[str],
) -> list[Tensor]:
    """Compute the distances of sentences, given as words.

    Args:
        trained: the model, on any device, and its vocabulary.
        sentences: words as in a treebank, one or more each.
        where: file and line of each sentence, for error messages.
    Returns:
        For each sentence its distances (L, words) on the CPU.
    Raises:
        UserError: a word is `<eos>`, a word is unknown and the vocabulary has no `<unk>`, or a distance is
            not finite.
        TypeError: a sentence is a text instead of a list of words.
    """
    check_sentences(sentences)
    vocabulary = trained.vocabulary
    ids = [
        vocabulary.encode(spell(words, vocabulary), location)
        for words, location in zip(sentences, where, strict=True)
    ]
    distances = batched_distances(trained.model, ids)
    for sentence_distances, location in zip(distances, where, strict=True):
        if not bool(sentence_distances.isfinite().all()):
            raise UserError(
                f"{location}: expected finite distances, got NaN or infinity: training has diverged"
            )
    return distances


@torch.inference_mode()
def batched_distances(
    model: LanguageModelBase,
    sentences: Sequence[Sequence[int]],
    *,
    max_tokens: int = TOKENS_PER_BATCH,
) -> list[Tensor]:
    """Compute the distances of sentences, given as word ids: of each word in every layer that has distances.

    Each sentence is read after `<eos>`, from a zero state, in evaluation mode. The distance of a word is that
    of the time step that reads it: ON-LSTM's forget distance d̂_t, §5.2, or PRPN's d_t. Batches contain
    sentences of similar length, padded on the right, and do not change the result.

    Args:
        model: an ON-LSTM or PRPN.
        sentences: word ids, one or more each.
        max_tokens: maximum number of tokens in a batch, padding included; a longer sentence has its own
            batch.
    Returns:
        For each sentence its distances (L, words) on the CPU: in master-gate entries for ON-LSTM, in (0, 1)
        for PRPN.
    Raises:
        ValueError: the model is an LSTM.
    """
    model.eval()
    device = next(model.parameters()).device
    distances: dict[int, Tensor] = {}
    lengths = [len(sentence) + 1 for sentence in sentences]
    batches = evaluation_batches(lengths, SENTENCES_PER_BATCH, max_tokens)
    for batch in progress_bar(batches, desc="reading", unit="batch", delay=1):  # none for a few sentences
        indices = batch.tolist()
        tokens = pad_sequence([torch.tensor([EOS_ID, *sentences[i]]) for i in indices], padding_value=EOS_ID)
        batch_distances = model.syntactic_distances(copy_to(tokens, device)).float().cpu()
        for column, i in enumerate(indices):
            distances[i] = batch_distances[:, 1 : lengths[i], column].clone()
    return [distances[i] for i in range(len(sentences))]
