"""Sample sentences from a language model."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tasks.language_model.model import Trained
from tasks.language_model.vocabulary import EOS_ID

COUNT, LONGEST = 12, 40
"""Defaults: number of sentences, and the maximum number of words of a sentence."""
EMPTY = "(a sentence without words)"
BATCH_SIZE = 128


@torch.inference_mode()
def sample_sentences(
    trained: Trained,
    seed: int = 1,
    *,
    count: int = COUNT,
    max_words: int = LONGEST,
    temperature: float = 1.0,
    start: Sequence[str] = (),
) -> list[list[str]]:
    """Sample sentences word by word from the model's distribution.

    Args:
        trained: the model, on any device, and its vocabulary.
        seed: random seed.
        count: number of sentences.
        max_words: maximum number of words that are sampled.
        temperature: divisor of the logits, above 0; below 1, probable words become more probable.
        start: words that every sentence begins with.
    Returns:
        The words of each sentence; a truncated sentence ends with "…".
    Raises:
        UserError: a word of `start` is `<eos>`, or unknown and the vocabulary has no `<unk>`.
    """
    model, vocabulary = trained.model.eval(), trained.vocabulary
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    first = torch.tensor([EOS_ID, *vocabulary.encode(start, "the start")])
    sentences: list[list[str]] = []
    while len(sentences) < count:
        batch_size = min(BATCH_SIZE, count - len(sentences))
        has_ended = torch.zeros(batch_size, dtype=torch.bool)
        tokens, state, sampled = first.unsqueeze(1).expand(-1, batch_size), None, []
        for _ in range(max_words + 1):
            out = model(tokens.to(device), state)
            state, logits = out.state, out.logits[-1].cpu().double()
            probabilities = ((logits - logits.amax(-1, keepdim=True)) / temperature).softmax(-1)
            tokens = torch.multinomial(probabilities, 1, generator=generator).T
            sampled.append(tokens[0])
            has_ended |= tokens[0] == EOS_ID
            if has_ended.all():
                break
        sentences += [[*start, *_decode(ids, trained)] for ids in torch.stack(sampled, dim=1).tolist()]
    return sentences


def _decode(ids: list[int], trained: Trained) -> list[str]:
    """The words before `<eos>`, or all except the last and "…"."""
    vocabulary = trained.vocabulary
    is_complete = EOS_ID in ids
    words = [vocabulary.words[i] for i in ids[: ids.index(EOS_ID) if is_complete else -1]]
    return words if is_complete else [*words, "…"]
