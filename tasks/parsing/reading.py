"""The syntactic distances of a language model, word by word."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from onlstm.language_model import LanguageModelBase
from tasks.classifiers.batching import evaluation_batches
from tasks.language_model.model import Trained
from tasks.language_model.ptb_spelling import spell
from tasks.runs.errors import UserError

SENTENCES_PER_BATCH, TOKENS_PER_BATCH = 128, 2_048


def read_sentences(
    trained: Trained,
    sentences: Sequence[Sequence[str]],
    where: Sequence[str],
    on_batch: Callable[[int], None] = lambda sentences: None,
) -> list[Tensor]:
    """The distances of sentences given as words.

    Args:
        trained: the model, on any device, and its vocabulary.
        sentences: words as a treebank has them, one or more each.
        where: file and line of each sentence, for errors.
        on_batch: called with the number of sentences after each batch.
    Returns:
        For each sentence, in the order given, its distances (L, words) on the CPU.
    Raises:
        UserError: a word is unknown and the vocabulary has no `<unk>`, or a distance is not finite.
    """
    vocabulary = trained.vocabulary
    ids = [
        vocabulary.encode(spell(words, vocabulary), place)
        for words, place in zip(sentences, where, strict=True)
    ]
    found = syntactic_distances(trained.model, ids, vocabulary.end, on_batch=on_batch)
    for distances, place in zip(found, where, strict=True):
        if not bool(distances.isfinite().all()):
            raise UserError(f"{place}: expected finite distances, got NaN or infinity: training has diverged")
    return found


@torch.inference_mode()
def syntactic_distances(
    model: LanguageModelBase,
    sentences: Sequence[Sequence[int]],
    end: int,
    *,
    max_tokens: int = TOKENS_PER_BATCH,
    on_batch: Callable[[int], None] = lambda sentences: None,
) -> list[Tensor]:
    """The syntactic distance of each word, in every layer that has distances.

    A sentence is read after `<eos>`, from a state of zeros, in evaluation mode. The distance of a word is
    that of the step which reads it: ON-LSTM's forget distance d̂_t, §5.2, or PRPN's d_t. Sentences of similar
    lengths are batched, longest first, and padded on the right: a position depends only on those before it,
    so the batch has no influence.

    Args:
        model: of ON-LSTM layers, or PRPN.
        sentences: ids of words, one or more each.
        end: id of `<eos>`.
        max_tokens: maximum number of tokens in a batch, padding included; a longer sentence is alone.
        on_batch: called with the number of sentences after each batch.
    Returns:
        For each sentence (L, words) on the CPU: ON-LSTM's in master-gate entries, PRPN's in (0, 1).
    Raises:
        ValueError: the model is an LSTM.
    """
    model.eval()
    device = next(model.parameters()).device
    found: dict[int, Tensor] = {}
    lengths = [len(sentence) + 1 for sentence in sentences]
    for batch in evaluation_batches(lengths, SENTENCES_PER_BATCH, max_tokens):
        indices = batch.tolist()
        tokens = pad_sequence([torch.tensor([end, *sentences[i]]) for i in indices], padding_value=end)
        distances = model.syntactic_distances(tokens.to(device)).float().cpu()
        for column, i in enumerate(indices):
            found[i] = distances[:, 1 : lengths[i], column].clone()
        on_batch(len(indices))
    return [found[i] for i in range(len(sentences))]
