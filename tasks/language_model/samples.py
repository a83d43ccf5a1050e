"""Sample sentences from a language model."""

from __future__ import annotations

import torch

from tasks.language_model.model import Trained

COUNT, LONGEST = 12, 40
"""Number of sentences, and the maximum number of words of a sentence."""
EMPTY = "(a sentence without words)"


@torch.inference_mode()
def sample_sentences(trained: Trained, seed: int = 1) -> list[str]:
    """Sample sentences word by word from the model's distribution.

    Args:
        trained: the model, on any device, and its vocabulary.
        seed: random seed.
    Returns:
        Sentences of at most `LONGEST` words; a truncated sentence ends with "…".
    """
    model, vocabulary = trained.model.eval(), trained.vocabulary
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    tokens, state = torch.full((1, COUNT), vocabulary.end), None
    drawn = []
    for _ in range(LONGEST + 1):
        out = model(tokens.to(device), state)
        state = out.state
        probabilities = out.logits[-1].float().softmax(-1).cpu()
        tokens = torch.multinomial(probabilities, 1, generator=generator).T
        drawn.append(tokens[0])
    return [_sentence(ids, trained) for ids in torch.stack(drawn, dim=1).tolist()]


def _sentence(ids: list[int], trained: Trained) -> str:
    vocabulary = trained.vocabulary
    ended = vocabulary.end in ids
    words = [vocabulary.words[i] for i in ids[: ids.index(vocabulary.end) if ended else LONGEST]]
    return " ".join(words if ended else [*words, "…"]) or EMPTY
