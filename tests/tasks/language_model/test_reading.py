"""How a text is read, in training and in validation: columns, stretches, the loss of each word."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from tasks.language_model.task import (
    IGNORE_INDEX,
    LanguageModelingObjective,
    TextBatch,
    bptt_segments,
    word_losses,
)
from tasks.runs.errors import UserError
from tasks.runs.interfaces import Scores
from tests.tasks.language_model.tiny import ON_LSTM, build, options


def test_every_word_is_a_target_once_and_follows_its_predecessor():
    text = torch.arange(1, 48)
    task = LanguageModelingObjective(options(bptt=5), text, text)
    batches = task.training_batches(1, 3)
    assert batches == task.training_batches(1, 3) != task.training_batches(2, 3)
    seen = []
    for number, batch in enumerate(batches):
        read, examples, has_examples = task.shard(batch, 0, 1)
        assert has_examples
        assert examples == read.tokens.numel()
        assert read.first == (number == 0)
        assert (read.targets == read.tokens + 1).all()
        seen += read.targets.flatten().tolist()
    # 47 words make 3 columns of 15; the first word of a column has nothing before it.
    assert sorted(seen) == [word for word in range(1, 46) if (word - 1) % 15]


def test_two_processes_share_the_columns():
    text = torch.arange(100)
    task = LanguageModelingObjective(options(batch_size=2), text, text)
    batch = task.training_batches(1, 4)[1]
    whole = task.shard(batch, 0, 1)
    parts = [task.shard(batch, rank, 2) for rank in range(2)]
    assert all(part.global_batch_size == whole.global_batch_size for part in parts)
    columns = torch.stack([part.batch.tokens for part in parts], dim=2).flatten(1)
    assert (columns == whole.batch.tokens).all()


def test_lengths_vary_around_bptt():
    text = torch.zeros(60_000, dtype=torch.int64)
    task = LanguageModelingObjective(options(bptt=40), text, text)
    lengths = np.array([batch.stop - batch.start for batch in task.training_batches(1, 3)])
    assert 38 < lengths.mean() < 41
    assert 0.02 < (lengths < 28).mean() < 0.1
    assert lengths[lengths >= 28].std() == pytest.approx(5, rel=0.1)


def test_short_stretches_have_five_words_or_more_and_another_seed_has_other_ones():
    text = torch.zeros(3_000, dtype=torch.int64)
    cuts = []
    for seed in (1, 2):
        batches = LanguageModelingObjective(options(bptt=6, seed=seed), text, text).training_batches(1, 3)
        cuts.append([batch.stop for batch in batches])
        assert min(batch.stop - batch.start for batch in batches[:-1]) == 5
    assert cuts[0] != cuts[1]


@pytest.mark.parametrize("columns", [1, 3, 4, 50])
@pytest.mark.parametrize("length", [1, 6, 100])
def test_evaluation_reads_every_word_once_after_the_one_before(columns, length):
    text = torch.arange(100, 147)
    pairs = []
    for number, part in enumerate(bptt_segments(text, columns, length)):
        assert part.first == (number == 0)
        there = part.targets != IGNORE_INDEX
        pairs += zip(part.tokens[there].tolist(), part.targets[there].tolist(), strict=True)
    assert sorted(pairs) == [(0, 100), *((word, word + 1) for word in range(100, 146))]


def test_perplexity_does_not_depend_on_the_length_of_stretches():
    torch.manual_seed(0)
    model, text = build(ON_LSTM).double().eval(), torch.randint(11, (50,))
    tokens = torch.cat([torch.tensor([0]), text[:-1]]).unsqueeze(1)
    expected = cross_entropy(model(tokens).logits.squeeze(1), text)
    task = LanguageModelingObjective(options(), text, text)
    for length in (1, 7, 100):
        losses = torch.cat([task.losses(model, part).loss for part in bptt_segments(text, 1, length)])
        torch.testing.assert_close(losses.mean(), expected)


@pytest.mark.parametrize("columns", [1, 4])
def test_the_loss_of_each_word_is_that_after_all_words_before_in_its_column(columns):
    model, text = build(ON_LSTM, input_dropout=0.5).double().train(), torch.randint(1, 11, (24,))
    losses = word_losses(model, text, options(bptt=5), columns)
    inputs = torch.cat([torch.tensor([0]), text[:-1]]).view(columns, -1).t()
    logits = model.eval()(inputs).logits.transpose(0, 1).flatten(0, 1)
    torch.testing.assert_close(losses, cross_entropy(logits, text, reduction="none").detach())


def test_validation_of_two_processes_is_that_of_one():
    text = torch.arange(1, 30)
    one, two = (list(LanguageModelingObjective(options(), text, text).validation_batches(n)) for n in (1, 2))
    for number, whole in enumerate(one):
        parts = two[2 * number : 2 * number + 2]
        assert (torch.stack([part.targets for part in parts], 2).flatten(1) == whole.targets).all()
        assert all(part.first == whole.first for part in parts)


def test_the_epoch_with_the_lowest_loss_is_the_best_one():
    task = LanguageModelingObjective(options(), torch.arange(9), torch.arange(9))
    assert task.selection_score(Scores(1.0, 0.0)) > task.selection_score(Scores(2.0, 0.0))


@pytest.mark.parametrize("processes", [1, 3, 7])
def test_every_process_validates_as_many_columns(processes):
    task = LanguageModelingObjective(options(), torch.arange(1, 30), torch.arange(1, 30))
    first, *others = list(task.validation_batches(processes))[:processes]
    assert first.tokens.numel() > 0
    assert all(part.tokens.shape == first.tokens.shape for part in others)


def test_the_penalty_is_that_of_awd_lstm():
    torch.manual_seed(0)
    model = build(ON_LSTM, output_dropout=0.5)
    config = options(activation_regularization=2.0, temporal_regularization=0.5)
    text = torch.randint(11, (30,))
    task = LanguageModelingObjective(config, text, text)
    batch = TextBatch(text[:20].view(10, 2), text[1:21].view(10, 2), True)
    torch.manual_seed(1)
    out = model(batch.tokens)
    torch.manual_seed(1)
    penalty = task.losses(model, batch).penalty
    differences = (out.raw[1:] - out.raw[:-1]) ** 2
    torch.testing.assert_close(penalty, 2 * (out.dropped**2).mean() + 0.5 * differences.mean())
    assert torch.isfinite(task.losses(model, TextBatch(batch.tokens[:1], batch.targets[:1], True)).penalty)
    assert task.losses(model.eval(), batch).penalty is None


def test_too_little_text():
    with pytest.raises(UserError, match="5 training tokens"):
        LanguageModelingObjective(options(), torch.arange(5), torch.arange(5)).training_batches(1, 3)
