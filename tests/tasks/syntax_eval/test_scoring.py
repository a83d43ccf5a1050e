"""Log-probabilities of sentences: shared prefixes change nothing."""

import numpy as np
import pytest
import torch

from onlstm.language_model import LanguageModel
from tasks.language_model.vocabulary import Vocabulary
from tasks.syntax_eval.scoring import log_probabilities, word_log_probabilities
from tests.tasks.syntax_eval.tiny import tiny_model

SENTENCES = [
    [int(word) for word in np.random.default_rng(length).integers(1, 5, length)]
    for length in [3, 5, 1, 4, 4, 7, 2, 3, 3, 6, 4, 2]
] + [[2, 3, 4], [2, 3], [2, 3, 0, 1], [2, 3, 4]]


@pytest.mark.parametrize("recurrent", ["onlstm", "lstm", "prpn"])
@pytest.mark.parametrize("include_end", [True, False])
def test_shared_prefixes_change_nothing(recurrent, include_end):
    model = tiny_model(recurrent=recurrent).model.double()
    words = [word_log_probabilities(model, sentence) for sentence in SENTENCES]
    expected = np.array([float(each.sum() if include_end else each[:-1].sum()) for each in words])
    for sizes in ({}, {"block_size": 3, "chunk_size": 2}, {"block_size": 1}, {"chunk_size": 1}):
        found = log_probabilities(model, SENTENCES, include_end=include_end, **sizes)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_definition():
    model = tiny_model().model.double()
    found = word_log_probabilities(model, [2, 3])
    state, expected = None, []
    for word, target in ((0, 2), (2, 3), (3, 0)):
        output = model(torch.tensor([[word]]), state)
        state = output.state
        expected.append(float(output.logits[0, 0].detach().softmax(-1)[target].log()))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_every_prefix_is_read_once(monkeypatch):
    model = tiny_model().model
    read = 0
    forward = LanguageModel.forward

    def counting(self, tokens, state=None):
        nonlocal read
        read += tokens.numel()
        return forward(self, tokens, state)

    monkeypatch.setattr(LanguageModel, "forward", counting)
    log_probabilities(model, SENTENCES)
    prefixes = {tuple(sentence[:i]) for sentence in SENTENCES for i in range(len(sentence) + 1)}
    assert read == len(prefixes)
    read = 0
    log_probabilities(model, SENTENCES, include_end=False)
    assert read == len({tuple(s[:i]) for s in SENTENCES for i in range(len(s))})
    read = 0
    # Sentences that begin alike are read together, also where they are far from each other.
    log_probabilities(model, [[2, 3], [4, 5], [2, 3, 3], [4, 5, 5]], block_size=2)
    assert read == 8


def test_probabilities_of_all_sentences_sum_to_one():
    model = tiny_model(Vocabulary(["<eos>", "a", "b"])).model.double()
    short = [[], *([i] for i in (1, 2)), *([i, j] for i in (1, 2) for j in (1, 2))]
    ended = np.exp(log_probabilities(model, short)).sum()
    going_on = np.exp(
        log_probabilities(model, [[*s, i] for s in short[3:] for i in (1, 2)], include_end=False)
    )
    assert ended + going_on.sum() == pytest.approx(1, abs=1e-12)


def test_nothing_to_score():
    assert log_probabilities(tiny_model().model, []).shape == (0,)
    assert log_probabilities(tiny_model().model, [[]], include_end=False).tolist() == [0.0]
