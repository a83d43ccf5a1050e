"""Log-probabilities of sentences under a language model.

The log-probability of w_1 … w_n is log P(w_1 … w_n, <eos> | <eos>), in nats: starting from a zero state, the
model reads `<eos>` and the words, and predicts each word and the final `<eos>`. The evaluations of Marvin and
Linzen and of ON-LSTM include a final period, but not the `<eos>` after it. For a model whose text has no
periods, `<eos>` takes the place of the period. For other models, both count, but the final `<eos>` can be
left out.

`word_log_probabilities` is the definition; `log_probabilities` computes the same for many sentences at once.

Axes: T time, B prefixes, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onlstm.language_model import LanguageModelBase
from onlstm.parameters import State
from ordered_memory.devices import copy_to
from tasks.language_model.vocabulary import EOS_ID
from tasks.runs.progress import progress_bar

Indices = NDArray[np.int64]

BLOCK_SIZE = 8_192
"""Number of sentences whose prefixes form one tree; at most twice as many states are kept in memory."""
CHUNK_SIZE = 512
"""Maximum number of prefixes in a batch, each with V logits."""


@torch.inference_mode()
def word_log_probabilities(model: LanguageModelBase, sentence: Sequence[int]) -> Tensor:
    """Compute the log-probability of each word of a sentence, and of its end.

    Args:
        model: model in evaluation mode.
        sentence: ids of its n words.
    Returns:
        Log-probabilities in nats, (n + 1,) float64 on the CPU; their sum is the log-probability of the
        sentence.
    """
    device = model.embedding.weight.device
    inputs = torch.tensor([EOS_ID, *sentence], device=device).unsqueeze(1)
    targets = torch.tensor([*sentence, EOS_ID]).unsqueeze(1)
    logits = model(inputs).logits.squeeze(1).cpu().double()
    log_probs: Tensor = logits.log_softmax(-1).gather(1, targets)
    return log_probs.squeeze(1)


@torch.inference_mode()
def log_probabilities(
    model: LanguageModelBase,
    sentences: Sequence[Sequence[int]],
    *,
    include_end: bool = True,
    block_size: int = BLOCK_SIZE,
    chunk_size: int = CHUNK_SIZE,
) -> NDArray[np.float64]:
    """Compute the log-probabilities of many sentences.

    Prefixes that sentences share are computed only once. The sentences are sorted, so that those with long
    common prefixes are neighbors, and cut into blocks. The prefixes of a block form a tree (a trie), which
    is computed level by level: all prefixes of the same length continue from the states of the level above.

    Args:
        model: model in evaluation mode.
        sentences: the word ids of each sentence.
        include_end: whether the final `<eos>` counts.
        block_size: number of sentences in a block.
        chunk_size: number of prefixes in a batch.
    Returns:
        (number of sentences,) in nats.
    Example:
        >>> from onlstm.language_model import LanguageModel
        >>> model = LanguageModel(10, 6, 8, num_layers=1, chunk_size=2).eval()
        >>> many = log_probabilities(model, [[3, 4], [3, 5, 6]])
        >>> one = word_log_probabilities(model, [3, 5, 6]).sum()
        >>> bool(abs(many[1] - one) < 1e-4)
        True
    """
    order = sorted(range(len(sentences)), key=lambda index: tuple(sentences[index]))
    totals = np.zeros(len(sentences))
    starts = range(0, len(order), block_size)
    for start in progress_bar(starts, desc="scoring", unit="block"):
        block = order[start : start + block_size]
        targets = [[*sentences[index], *([EOS_ID] if include_end else [])] for index in block]
        totals[block] = _score_block(model, targets, chunk_size)
    return totals


class _Level(NamedTuple):
    """All prefixes of one length.

    Args:
        words: the last word of each prefix, (B,).
        parents: the index of the prefix of the level above that each prefix continues, (B,).
        states: the model's states after the prefixes of the level above; None for zeros.
    """

    words: Indices
    parents: Indices
    states: list[State] | None


def _score_block(
    model: LanguageModelBase, sentences: list[list[int]], chunk_size: int
) -> NDArray[np.float64]:
    """Compute the log-probability of each sentence, given that it follows `<eos>`."""
    vocabulary_size = model.embedding.num_embeddings
    lengths = np.array([len(sentence) for sentence in sentences])
    words = np.zeros((len(sentences), lengths.max()), dtype=np.int64)
    for row, sentence in zip(words, sentences, strict=True):
        row[: len(sentence)] = sentence
    totals = np.zeros(len(sentences))
    level = _Level(np.array([EOS_ID]), np.array([0]), None)
    prefix = np.zeros(len(sentences), dtype=np.int64)  # index of each sentence's prefix in the level
    for t in range(words.shape[1]):
        active = np.flatnonzero(lengths > t)
        # Encode a prefix and the next word as one number.
        children, child_index = np.unique(
            prefix[active] * vocabulary_size + words[active, t], return_inverse=True
        )
        parents, targets = np.divmod(children, vocabulary_size)
        log_probs, states = _read_level(model, level, parents, targets, chunk_size)
        totals[active] += log_probs[child_index]
        longer = lengths[active] > t + 1
        kept, prefix[active[longer]] = np.unique(child_index[longer], return_inverse=True)
        level = _Level(targets[kept], parents[kept], states)
    return totals


def _read_level(
    model: LanguageModelBase, level: _Level, parents: Indices, targets: Indices, chunk_size: int
) -> tuple[NDArray[np.float64], list[State]]:
    """Compute the states after all prefixes of a level, and the log-probabilities of words after them.

    Args:
        parents: the index of the prefix before each word, (n,), in ascending order.
        targets: the words, (n,).
    Returns:
        (n,) log-probabilities, and the states after the prefixes.
    """
    device = model.embedding.weight.device
    words, origins, device_targets = (
        copy_to(torch.from_numpy(array), device) for array in (level.words, level.parents, targets)
    )
    log_probs = torch.empty(len(targets), dtype=torch.float64)
    chunks: list[list[State]] = []
    for start in range(0, len(words), chunk_size):
        stop = min(start + chunk_size, len(words))
        states = level.states and [
            (hidden[:, origins[start:stop]], cell[:, origins[start:stop]]) for hidden, cell in level.states
        ]
        output = model(words[start:stop].unsqueeze(0), states)
        logits = output.logits[0]
        first, last = np.searchsorted(parents, [start, stop])
        rows = copy_to(torch.from_numpy(parents[first:last] - start), device)
        log_probs[first:last] = logits[rows, device_targets[first:last]] - logits.logsumexp(-1)[rows]
        chunks.append(output.state)
    layers = zip(*chunks, strict=True)
    return log_probs.numpy(), [
        (torch.cat([hidden for hidden, _ in layer], 1), torch.cat([cell for _, cell in layer], 1))
        for layer in layers
    ]
