"""Log-probabilities of sentences under a language model.

The log-probability of w_1 … w_n is log P(w_1 … w_n, <eos> | <eos>), in nats: the model reads `<eos>` with a
state of zeros, then the words, and predicts each word and the `<eos>` after the last. The evaluations of
Marvin and Linzen and of ON-LSTM include a final period. The text that models learn from here has none:
`<eos>` takes its place. It can be left out.

`word_log_probabilities` is the definition, `log_probabilities` the same for many sentences at once.

Axes: T time, B prefixes, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from onlstm.language_model import LanguageModelBase
from onlstm.layer import State

Indices = NDArray[np.int64]

BLOCK_SIZE = 8_192
"""Maximum number of sentences whose prefixes are read together; at most twice as many states are kept."""
CHUNK_SIZE = 512
"""Maximum number of prefixes in a batch, each with V logits."""


@torch.inference_mode()
def word_log_probabilities(model: LanguageModelBase, sentence: Sequence[int], end: int) -> Tensor:
    """The log-probability of each word of one sentence, and of its end.

    Args:
        model: in evaluation mode.
        sentence: ids of its n words.
        end: id of `<eos>`.
    Returns:
        (n + 1,) float64 on the CPU, in nats; their sum is that of the sentence.
    """
    device = model.embedding.weight.device
    read = torch.tensor([end, *sentence], device=device).unsqueeze(1)
    targets = torch.tensor([*sentence, end], device=device).unsqueeze(1)
    logits = model(read).logits.squeeze(1).double()
    found: Tensor = logits.log_softmax(-1).gather(1, targets)
    return found.squeeze(1).cpu()


@torch.inference_mode()
def log_probabilities(
    model: LanguageModelBase,
    sentences: Sequence[Sequence[int]],
    end: int,
    *,
    include_end: bool = True,
    block_size: int = BLOCK_SIZE,
    chunk_size: int = CHUNK_SIZE,
) -> NDArray[np.float64]:
    """The log-probability of each of many sentences.

    Every prefix is read once, however many sentences share it. Sentences are sorted, so that those with long
    common prefixes are neighbours, and cut into blocks. The prefixes of a block form a tree, which is read
    level by level: a batch of prefixes of one length continues from the states of the level above.

    Args:
        model: in evaluation mode.
        sentences: ids of the words of each.
        end: id of `<eos>`.
        include_end: whether the `<eos>` after the last word counts.
        block_size: sentences in a block.
        chunk_size: prefixes in a batch.
    Returns:
        (number of sentences,) in nats.
    Example:
        >>> from onlstm.language_model import LanguageModel
        >>> model = LanguageModel(10, 6, 8, num_layers=1, chunk_size=2).eval()
        >>> many = log_probabilities(model, [[3, 4], [3, 5, 6]], 0)
        >>> one = word_log_probabilities(model, [3, 5, 6], 0).sum()
        >>> bool(abs(many[1] - one) < 1e-4)
        True
    """
    order = sorted(range(len(sentences)), key=lambda number: tuple(sentences[number]))
    totals = np.zeros(len(sentences))
    starts = range(0, len(order), block_size)
    for start in tqdm(starts, desc="scoring", unit="block", leave=False, disable=None):
        block = order[start : start + block_size]
        predicted = [[*sentences[number], *([end] if include_end else [])] for number in block]
        totals[block] = _score_block(model, predicted, end, chunk_size)
    return totals


class _Level(NamedTuple):
    """All prefixes of one length.

    Args:
        words: the last word of each, (B,).
        parents: which prefix of the level above each continues, (B,).
        states: the model's after every prefix of the level above; None for zeros.
    """

    words: Indices
    parents: Indices
    states: list[State] | None


def _score_block(
    model: LanguageModelBase, sentences: list[list[int]], end: int, chunk_size: int
) -> NDArray[np.float64]:
    """The log-probability of each sentence after `end`: the sum over its words."""
    size = model.embedding.num_embeddings
    lengths = np.array([len(sentence) for sentence in sentences])
    words = np.zeros((len(sentences), lengths.max()), dtype=np.int64)
    for row, sentence in zip(words, sentences, strict=True):
        row[: len(sentence)] = sentence
    totals = np.zeros(len(sentences))
    level = _Level(np.array([end]), np.array([0]), None)
    place = np.zeros(len(sentences), dtype=np.int64)  # of each sentence's prefix in the level
    for t in range(words.shape[1]):
        going_on = np.flatnonzero(lengths > t)
        # A prefix and the word after it, as one number.
        children, child = np.unique(place[going_on] * size + words[going_on, t], return_inverse=True)
        parents, targets = np.divmod(children, size)
        found, states = _read(model, level, parents, targets, chunk_size)
        totals[going_on] += found[child]
        longer = lengths[going_on] > t + 1
        read_next, place[going_on[longer]] = np.unique(child[longer], return_inverse=True)
        level = _Level(targets[read_next], parents[read_next], states)
    return totals


def _read(
    model: LanguageModelBase, level: _Level, parents: Indices, targets: Indices, chunk_size: int
) -> tuple[NDArray[np.float64], list[State]]:
    """Read the last word of every prefix of a level, and look up the log-probabilities of words after them.

    Args:
        parents: which prefix each word to look up follows, (n,), in ascending order.
        targets: these words, (n,).
    Returns:
        (n,) log-probabilities, and the states after every prefix.
    """
    device = model.embedding.weight.device
    words, origins, targets_there = (
        torch.from_numpy(array).to(device) for array in (level.words, level.parents, targets)
    )
    found = torch.empty(len(targets), dtype=torch.float64)
    chunks: list[list[State]] = []
    for start in range(0, len(words), chunk_size):
        stop = min(start + chunk_size, len(words))
        states = level.states and [
            (hidden[:, origins[start:stop]], cell[:, origins[start:stop]]) for hidden, cell in level.states
        ]
        output = model(words[start:stop].unsqueeze(0), states)
        logits = output.logits[0]
        first, last = np.searchsorted(parents, [start, stop])
        rows = torch.from_numpy(parents[first:last] - start).to(device)
        found[first:last] = logits[rows, targets_there[first:last]] - logits.logsumexp(-1)[rows]
        chunks.append(output.state)
    layers = zip(*chunks, strict=True)
    return found.numpy(), [
        (torch.cat([hidden for hidden, _ in layer], 1), torch.cat([cell for _, cell in layer], 1))
        for layer in layers
    ]
