"""The language model and its recipe: dropout where it belongs, every word once, averaging as in ASGD."""

import gzip
import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.functional import cross_entropy
from torch.nn.utils import prune

from onlstm.language_model import LanguageModel
from ordered_memory.trees import spans
from tasks.language_model.__main__ import main
from tasks.language_model.config import LanguageModelConfig, presets_of
from tasks.language_model.corpus import (
    encode_text,
    generate_held_out,
    generate_splits,
    read_corpus,
    read_sentences,
    split_text,
)
from tasks.language_model.grammar import INTRANSITIVE, NOUNS, generate_pairs, generate_sentences
from tasks.language_model.model import build_model, load_model
from tasks.language_model.optimization import AveragedSGD, build_optimization
from tasks.language_model.prpn import PRPN
from tasks.language_model.report import results_text
from tasks.language_model.samples import LONGEST, sample_sentences
from tasks.language_model.task import (
    IGNORE_INDEX,
    LanguageModelingObjective,
    TextBatch,
    bptt_segments,
    perplexity,
    unigram_losses,
    validation_columns,
    word_losses,
)
from tasks.language_model.vocabulary import Vocabulary
from tasks.runs.checkpoints import read_checkpoint, read_state
from tasks.runs.errors import UserError
from tasks.runs.interfaces import Scores, Shard
from tests.outcome import outcome
from tests.tasks.reporting.pages import embedded

ROOT = Path(__file__).parents[3]
NO_DROPOUT = dict.fromkeys(
    [f"{name}_dropout" for name in ("embedding", "input", "hidden", "output", "weight")], 0.0
)
ON_LSTM = {"recurrent": "onlstm", "chunk_size": 2}
LSTM = {"recurrent": "lstm"}


def build(recurrent, **options):
    return LanguageModel(11, 6, 8, 2, **recurrent, **NO_DROPOUT | options)


# ---- the model


@pytest.mark.parametrize("recurrent", [ON_LSTM, LSTM])
def test_a_text_in_two_parts_is_the_text_in_one(recurrent):
    model = build(recurrent).double()
    tokens = torch.randint(11, (9, 3))
    whole = model(tokens)
    first = model(tokens[:4])
    second = model(tokens[4:], first.state)
    torch.testing.assert_close(torch.cat([first.logits, second.logits]), whole.logits)


@pytest.mark.parametrize("recurrent", [ON_LSTM, LSTM])
def test_outputs_do_not_depend_on_later_words_or_other_sequences(recurrent):
    model = build(recurrent).double()
    tokens = torch.randint(11, (9, 3))
    other = tokens.clone()
    other[5:, 0] = 0
    other[:, 1:] = 1
    torch.testing.assert_close(model(tokens).logits[:5, 0], model(other).logits[:5, 0])


def test_the_last_layer_has_the_size_of_the_embedding_whose_weights_the_output_shares():
    model = LanguageModel(11, 6, 8, 3, chunk_size=2)
    assert [layer.hidden_size for layer in model.layers] == [8, 8, 6]
    assert model.output_weight is None
    untied = LanguageModel(11, 6, 8, 3, chunk_size=2, tied=False)
    assert [layer.hidden_size for layer in untied.layers] == [8, 8, 8]
    extra = 11 * 8 + sum(p.numel() for p in untied.layers[2].parameters())
    extra -= sum(p.numel() for p in model.layers[2].parameters())
    count = [sum(p.numel() for p in one.parameters()) for one in (model, untied)]
    assert count[1] - count[0] == extra
    assert LanguageModel(11, 5, 8, chunk_size=2, tied=False)(torch.zeros(4, 1).long()).raw.shape == (4, 1, 8)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", [LanguageModel, PRPN])
def test_the_weights_of_words_begin_within_a_tenth(kind, tied):
    model = kind(200, 16, 8, tied=tied, **({"chunk_size": 2} if kind is LanguageModel else {}))
    weights = [model.embedding.weight, *([] if tied else [model.output_weight])]
    assert all(0.09 < weight.abs().max() <= 0.1 for weight in weights)
    assert not model.output_bias.any()


def test_the_paper_has_25_million_parameters():
    with torch.device("meta"):
        model = LanguageModel(10_000)
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6) == 25


@pytest.mark.parametrize(("preset", "words"), [("small", 10_000), ("demo", 70)])
@pytest.mark.parametrize("model", ["lstm", "prpn"])
def test_other_models_of_the_small_presets_have_as_many_parameters(model, preset, words):
    with torch.device("meta"):
        models = [build_model(presets_of(kind)[preset], words) for kind in ("onlstm", model)]
    ours, theirs = (sum(parameter.numel() for parameter in model.parameters()) for model in models)
    assert ours == pytest.approx(theirs, rel=0.01)


@pytest.mark.parametrize("kind", ["onlstm", "lstm", "prpn"])
def test_each_option_of_dropout_is_that_of_the_model(kind):
    dropouts = dict(zip(NO_DROPOUT, (0.1, 0.2, 0.3, 0.4, 0.5), strict=True))
    with torch.device("meta"):
        model = build_model(replace(presets_of(kind)["demo"], **dropouts), 70)
    names = {"weight_dropout": "recurrent_dropout"} if kind == "prpn" else {}
    assert {name: model.arguments[names.get(name, name)] for name in dropouts} == dropouts


def test_dropout_between_layers_has_one_mask_for_all_steps():
    model = build(ON_LSTM, output_dropout=0.5)
    out = model(torch.randint(11, (20, 4)))
    written = slice(0, 4)  # the last chunk of an ON-LSTM stays empty
    kept = (out.dropped != 0)[..., written]
    assert (kept == kept[0]).all()
    assert 0 < kept.float().mean() < 1
    torch.testing.assert_close(out.dropped[..., written][kept], 2 * out.raw[..., written][kept])


def test_embedding_dropout_drops_whole_words_throughout():
    model = build(ON_LSTM, embedding_dropout=0.5)
    tokens = torch.randint(11, (30, 4))
    embedded = model._embed(tokens)
    for word in tokens.unique():
        of_word = embedded[tokens == word]
        assert (of_word == of_word[0]).all()
        expected = torch.stack([torch.zeros(6), 2 * model.embedding.weight[word]])
        assert (of_word[0] == expected).all(-1).any()
    assert {bool((embedded[tokens == word] == 0).all()) for word in tokens.unique()} == {True, False}


def test_dropconnect_of_an_lstm_is_an_lstm_with_fewer_weights():
    model = build(LSTM, weight_dropout=0.4)
    tokens = torch.randint(11, (6, 2))
    torch.manual_seed(3)
    dropped = model(tokens).logits
    torch.manual_seed(3)
    masked = build(LSTM)
    masked.load_state_dict(model.state_dict())
    with torch.no_grad():
        torch.manual_seed(3)
        for layer in masked.layers:
            layer.weight_hh_l0.copy_(torch.nn.functional.dropout(layer.weight_hh_l0, 0.4))
    torch.testing.assert_close(dropped, masked(tokens).logits)
    dropped.sum().backward()
    assert (model.layers[0].weight_hh_l0.grad == 0).float().mean() > 0.2
    torch.testing.assert_close(model.eval()(tokens).logits, model(tokens).logits)


@pytest.mark.parametrize("weight_dropout", [0.0, 0.5])
def test_hooks_of_a_layer_are_called_with_and_without_dropconnect(weight_dropout):
    model = build(LSTM, weight_dropout=weight_dropout)
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    outputs = []
    model.layers[-1].register_forward_hook(lambda _layer, _inputs, output: outputs.append(output[0]))
    raw = model(torch.randint(11, (6, 2))).raw
    assert len(outputs) == 1
    assert torch.equal(outputs[0], raw)
    torch.testing.assert_close(dict(model.state_dict()), weights, rtol=0, atol=0)


def test_dropconnect_refuses_an_lstm_whose_weights_are_computed():
    model, tokens = build(LSTM, weight_dropout=0.5), torch.randint(11, (6, 2))
    prune.l1_unstructured(model.layers[0], "weight_hh_l0", 0.5)
    with pytest.raises(ValueError, match=r"^weight_dropout=0.5 drops entries of weight_hh_l0, which .*_orig"):
        model(tokens)
    model.weight_dropout = 0
    model(tokens).logits.sum().backward()
    gradient = model.layers[0].weight_hh_l0_orig.grad
    assert torch.equal(gradient == 0, model.layers[0].weight_hh_l0_mask == 0)


class Wrapper(torch.nn.Module):
    """A wrapper around a layer, as torch.compile and libraries for training put one in its place."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *arguments, **options):
        return self.layer(*arguments, **options)


@pytest.mark.parametrize("wrap", [Wrapper, checkpoint_wrapper])
@pytest.mark.parametrize("recurrent", [ON_LSTM, LSTM])
def test_layers_may_be_wrapped(recurrent, wrap):
    model, tokens = build(recurrent), torch.randint(11, (6, 2))
    expected = model(tokens).logits
    for index, layer in enumerate(model.layers):
        model.layers[index] = wrap(layer)
    torch.testing.assert_close(model(tokens).logits, expected)
    model.weight_dropout = 0.5
    if recurrent is LSTM:
        with pytest.raises(ValueError, match=r"^weight_dropout=0.5 drops entries of weight_hh_l0, which "):
            model(tokens)
    else:
        assert not torch.equal(model(tokens).logits, expected)
    model.reset_parameters()
    model.weight_dropout = 0
    assert not torch.equal(model(tokens).logits, expected)


class LowRankEmbedding(torch.nn.Module):
    """An embedding with a correction, as low-rank adaptation makes it."""

    def __init__(self, base):
        super().__init__()
        self.base, self.weight = base, base.weight
        self.correction = torch.nn.Embedding(*base.weight.shape)

    def forward(self, tokens):
        return self.base(tokens) + self.correction(tokens)


def test_the_embedding_may_be_replaced():
    model, tokens = build(ON_LSTM, embedding_dropout=0.5), torch.randint(11, (6, 2))
    model.embedding = LowRankEmbedding(model.embedding)
    model(tokens).logits.sum().backward()
    assert model.embedding.correction.weight.grad.any()


@pytest.mark.parametrize("recurrent", [ON_LSTM, LSTM])
def test_probabilities_of_dropout_that_are_set_later_act(recurrent):
    tokens = torch.randint(11, (6, 2))
    model = build(recurrent)
    before = model(tokens).logits
    for name in NO_DROPOUT:
        setattr(model, name, 0.5)
        assert getattr(model, name) == 0.5
        assert not torch.equal(model(tokens).logits, before), name
        setattr(model, name, 0.0)
        assert torch.equal(model(tokens).logits, before), name


def test_distances_are_of_every_layer_and_of_on_lstm_only():
    model, tokens = build(ON_LSTM), torch.randint(11, (5, 2))
    found, x = model(tokens, distances=True).distances, model.embedding(tokens)
    assert found.forget.shape == found.input.shape == (2, 5, 2)
    for number, layer in enumerate(model.layers):
        x, _, of_layer = layer(x, distances=True)
        assert torch.equal(found.forget[number], of_layer.forget[0])
        assert torch.equal(found.input[number], of_layer.input[0])
    with pytest.raises(ValueError, match="LSTM has no distances"):
        build(LSTM)(torch.zeros(1, 1, dtype=torch.int64), distances=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"chunk_size": 5},
            "embedding_size=6, the units of the last layer, must be divisible by chunk_size=5",
        ),
        ({"chunk_size": 3}, "hidden_size=8 must be divisible by chunk_size=3"),
        ({"recurrent": "gru"}, "'gru'"),
        ({"num_layers": 0}, "num_layers"),
        ({"chunk_size": 0}, "chunk_size must be an integer of at least 1, got 0"),
        ({"num_layers": 2.0}, "num_layers must be an integer of at least 1, got 2.0"),
        ({"weight_dropout": 1.5}, "weight_dropout"),
        ({"input_dropout": -1}, "input_dropout"),
        ({"recurrent": "lstm", "backend": "magic"}, "backend must be one of"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        LanguageModel(11, **{"embedding_size": 6, "hidden_size": 8, "chunk_size": 2} | options)


@pytest.mark.parametrize(
    "name", ["embedding_dropout", "input_dropout", "hidden_dropout", "output_dropout", "weight_dropout"]
)
def test_a_probability_is_checked_when_it_is_set(name):
    model = build(ON_LSTM)
    setattr(model, name, 0.25)
    assert getattr(model, name) == 0.25
    with pytest.raises(ValueError, match=rf"{name} must lie in \[0, 1\], got 2"):
        setattr(model, name, 2)


def test_the_code_of_a_model_card_runs_with_and_without_a_vocabulary(capsys):
    for vocabulary in (None, list("abcdefghijk")):
        model = build(ON_LSTM, vocabulary=vocabulary)
        exec(model.usage, {"model": model})
    assert capsys.readouterr().out.count("tensor(") == 2


def test_bad_calls():
    model = build(ON_LSTM)
    with pytest.raises(TypeError, match="expected tokens to be a tensor, got list"):
        model([[1, 2]])
    with pytest.raises(ValueError, match=r"\(T, B\)"):
        model(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="2 layers, got 1"):
        model(torch.zeros(1, 1, dtype=torch.int64), [(torch.zeros(1, 1, 8), torch.zeros(1, 1, 8))])
    with pytest.raises(TypeError, match=r"^state\[1\] must be a pair of tensors .*, got a tuple of 0$"):
        model(torch.zeros(1, 1, dtype=torch.int64), [None, ()])


# ---- batches and losses


def options(**changes):
    sizes = {"embedding_size": 6, "hidden_size": 8, "num_layers": 2, "chunk_size": 2, "bptt": 10}
    return LanguageModelConfig(**sizes | {"batch_size": 3, "evaluation_batch_size": 4} | NO_DROPOUT | changes)


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


# ---- the optimizer


def test_the_learning_rate_goes_with_the_tokens_of_a_step():
    model = build(ON_LSTM)
    optimization = AveragedSGD(model, options(learning_rate=8.0))
    optimization.begin_step(Shard(TextBatch(torch.zeros(5, 1), torch.zeros(5, 1), True), 5))
    assert optimization.optimizer.param_groups[0]["lr"] == 4.0
    optimization.end_step()
    assert optimization.optimizer.param_groups[0]["lr"] == 8.0


@pytest.mark.parametrize("model", ["onlstm", "lstm"])
def test_the_models_of_awd_lstm_are_trained_with_its_optimizer(model):
    config = LanguageModelConfig(model=model, learning_rate=0.5, weight_decay=0.25)
    optimization = build_optimization(torch.nn.Linear(2, 1), config)
    assert isinstance(optimization, AveragedSGD)
    (group,) = optimization.optimizer.param_groups
    assert (group["lr"], group["weight_decay"], group["momentum"]) == (0.5, 0.25, 0)


# The fourth and fifth are compared with the first one and two only. The last is above the third, or above the
# first but not the second.
@pytest.mark.parametrize(
    "losses", [(5.0, 4.0, 3.0, 3.5, 3.9, 3.1), (1.0, 3.0, 2.9, 0.5, 2.0), (1.0, 1.0, 1.0, 1.0, 1.5)]
)
def test_averaging_begins_where_the_loss_is_above_the_best_of_long_before(losses):
    optimization = AveragedSGD(build(ON_LSTM), options(patience=2))
    for loss in losses:
        assert optimization.average.averaged is None
        assert not optimization.end_epoch(loss, -loss)  # training goes on from the weights themselves
    assert optimization.average.averaged is not None


def test_after_half_the_papers_epochs_an_average_forgets_what_came_before(monkeypatch):
    monkeypatch.setattr("tasks.language_model.optimization.RESTART_EPOCH", 4)
    model = build(ON_LSTM)
    ours = AveragedSGD(model, options(patience=0))
    averages = []
    for epoch, loss in enumerate((1.0, 2.0, 2.0, 2.0, 2.0), start=1):  # averages after the second
        with torch.no_grad():
            model.output_bias.fill_(epoch)
        ours.end_step()
        averages.append(ours.evaluated_model.output_bias[0].item())
        ours.end_epoch(loss, -loss)
    assert averages == [1.0, 2.0, 3.0, 3.5, 5.0]


def test_before_it_has_begun_an_average_does_not_start_afresh(monkeypatch):
    monkeypatch.setattr("tasks.language_model.optimization.RESTART_EPOCH", 1)
    model = build(ON_LSTM)
    ours = AveragedSGD(model, options())
    ours.end_epoch(1.0, -1.0)
    assert ours.evaluated_model is model


def test_a_resumed_run_compares_with_the_losses_before():
    model = build(ON_LSTM)
    ours, resumed = (AveragedSGD(model, options(patience=2)) for _ in range(2))
    for loss in (1.0, 2.0, 2.0):
        ours.end_epoch(loss, -loss)
    resumed.load_state_dict(ours.state_dict())
    assert resumed.average.averaged is None
    resumed.end_epoch(3.0, -3.0)
    assert resumed.average.averaged is not None


def test_of_the_options_of_sgd_the_weight_decay_alone_is_that_of_the_checkpoint():
    first, again = (
        AveragedSGD(build(ON_LSTM), options(weight_decay=decay, learning_rate=rate))
        for decay, rate in ((0.25, 8.0), (0.5, 4.0))
    )
    again.optimizer.load_state_dict(first.optimizer.state_dict())
    again.begin_step(Shard(TextBatch(torch.zeros(10, 1), torch.zeros(10, 1), True), 10))
    (group,) = again.optimizer.param_groups
    assert (group["weight_decay"], group["lr"]) == (0.25, 4.0)
    assert again.restored_options == ("weight_decay",)


def test_what_is_averaged_is_every_step_from_then_on_and_the_steps_are_those_of_asgd():
    torch.manual_seed(0)
    model, other = build(ON_LSTM).double(), build(ON_LSTM).double()
    other.load_state_dict(model.state_dict())
    config = options(learning_rate=0.5, weight_decay=0.01)
    ours = AveragedSGD(model, config)
    ours.end_epoch(1.0, -1.0)
    for _ in range(config.patience):
        ours.end_epoch(1.0, -1.0)
    ours.end_epoch(2.0, -2.0)
    asgd = torch.optim.ASGD(other.parameters(), lr=0.5, lambd=0.0, t0=0, weight_decay=0.01)
    tokens = torch.randint(11, (10, 2))
    visited = []
    for _ in range(4):
        for one, optimizer in ((model, ours.optimizer), (other, asgd)):
            one.zero_grad()
            cross_entropy(one(tokens).logits.flatten(0, 1), tokens.flatten()).backward()
            if one is model:
                ours.begin_step(Shard(TextBatch(tokens, tokens, True), 20))
            optimizer.step()
            if one is model:
                ours.end_step()
        visited.append({name: parameter.detach().clone() for name, parameter in model.named_parameters()})
    torch.testing.assert_close(dict(model.named_parameters()), dict(other.named_parameters()))
    averaged = dict(ours.evaluated_model.named_parameters())
    for name, parameter in averaged.items():
        torch.testing.assert_close(parameter, sum(weights[name] for weights in visited) / 4)


# ---- words and sentences


def test_words_without_unk(tmp_path):
    for name, text in (("train", "a b\nb c\n"), ("valid", "a\n\n"), ("test", "a\nb d\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    with pytest.raises(
        UserError, match=r"test\.txt, line 2: 'd' is not in the vocabulary, which has no <unk>; --min-count 2"
    ):
        read_corpus(tmp_path)
    (tmp_path / "train.txt").write_text("a b\nb <unk>\n")
    for path in tmp_path.iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # a byte order mark is no part of a word
    corpus = read_corpus(tmp_path)
    assert corpus.vocabulary.words == ["<eos>", "a", "b", "<unk>"]
    assert corpus.train.tolist() == [1, 2, 0, 2, 3, 0]
    assert corpus.validation.tolist() == [1, 0, 0]
    assert corpus.test.tolist() == [1, 0, 2, 3, 0]
    (tmp_path / "test.txt.gz").write_bytes(gzip.compress((tmp_path / "test.txt").read_bytes()))
    (tmp_path / "test.txt").unlink()
    assert read_corpus(tmp_path).test.tolist() == corpus.test.tolist()


def test_rare_words_of_the_training_text_become_unk(tmp_path):
    for name, text in (("train", "a b\nb c a\n"), ("valid", "c b\n"), ("test", "a d\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    corpus = read_corpus(tmp_path, min_count=2)
    assert corpus.vocabulary.words == ["<eos>", "a", "b", "<unk>"]
    assert corpus.train.tolist() == [1, 2, 0, 2, 3, 1, 0]
    assert corpus.validation.tolist() == [3, 2, 0]
    assert corpus.test.tolist() == [1, 3, 0]
    (tmp_path / "train.txt").write_text("<unk> a b\nb c a\n")
    assert read_corpus(tmp_path, min_count=2).vocabulary.words == ["<eos>", "<unk>", "a", "b"]
    assert read_corpus(tmp_path, Vocabulary(["<eos>", "<unk>"]), 2).train.tolist() == [1, 1, 1, 0, 1, 1, 1, 0]


def test_a_text_with_eos_is_refused(tmp_path):
    (tmp_path / "text.txt").write_text("a b\nc <eos>\n")
    with pytest.raises(UserError, match=r"text\.txt, line 2: expected no <eos>, which is added"):
        read_sentences(tmp_path / "text.txt")


def test_lines_end_at_line_ends_only(tmp_path):
    (tmp_path / "text.txt").write_bytes("a\u2028b \x0c c\r\n\nd\te\u00a0f".encode())
    assert read_sentences(tmp_path / "text.txt") == [["a\u2028b", "c"], [], ["d", "e\u00a0f"]]


def test_the_end_of_a_sentence_is_no_word_of_it():
    with pytest.raises(UserError, match=r"^here: expected no <eos>, which is added at the end of each sent"):
        Vocabulary(["<eos>", "a"]).encode(["a", "<eos>"], "here")


def test_coverage_counts_words_each_time():
    found = Vocabulary(["<eos>", "<unk>", "a"]).coverage([["a", "a", "b"], ["c", "<unk>", "b"]])
    assert (found.words, found.written, found.missing, found.unknown) == (6, 1, 3, 4)
    assert found.known_fraction == 2 / 6
    assert str(found) == ("4 of 6 words are read as <unk>: 1 is written so, 3 are not in the vocabulary")
    assert str(Vocabulary(["<eos>", "a"]).coverage([["a"]])) == "none of 1 word is read as <unk>"


@pytest.mark.parametrize("model", ["onlstm", "lstm", "prpn"])
def test_options_that_have_no_effect(model):
    config = LanguageModelConfig(model=model, data_dir=Path("text"), num_layers=1)
    assert config.unused["sentences"] == "with --data-dir"
    assert config.unused["hidden_dropout"] == "with --num-layers 1"
    config = LanguageModelConfig(model=model, sentences=10, num_layers=2)
    assert not {"sentences", "hidden_dropout"} & config.unused.keys()


def test_an_empty_part(tmp_path):
    for name, text in (("train", "a b\n"), ("valid", "a\n"), ("test", " \n\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    with pytest.raises(UserError, match=r"test\.txt: has no words"):
        read_corpus(tmp_path)
    (tmp_path / "test.txt").unlink()
    with pytest.raises(UserError, match=r": no test\.txt in this directory"):
        read_corpus(tmp_path)


def test_drawn_sentences_are_the_same_for_a_seed_and_their_trees_fit():
    sentences = generate_sentences(300, 1)
    assert sentences == generate_sentences(300, 1) != generate_sentences(300, 2)
    for sentence in sentences:
        assert ("S", 0, len(sentence.words) - 1) in sentence.labeled_spans
    assert max(len(sentence.words) for sentence in sentences) > 15
    vocabulary = Vocabulary.from_sentences(sentence.words for sentence in sentences)
    assert len(encode_text([sentences[0].words], vocabulary, "")) == len(sentences[0].words) + 1


def test_no_drawn_sentence_is_in_two_parts():
    parts = generate_splits(options(sentences=59, seed=3))
    assert [len(part) for part in parts] == [49, 5, 5]
    drawn = generate_sentences(59, 3)
    assert sorted(sentence for part in parts for sentence in part) == sorted(drawn)


def test_held_out_sentences_are_generated_without_the_others(monkeypatch):
    config, counts = options(sentences=59, seed=3), []
    expected = generate_splits(config)[1:]

    def counted(count, seed):
        counts.append(count)
        return generate_sentences(count, seed)

    monkeypatch.setattr("tasks.language_model.corpus.generate_sentences", counted)
    assert generate_held_out(config) == expected
    assert counts == [10]


def test_drawn_pairs_differ_in_the_number_of_their_verb():
    number = {word: n for words in (NOUNS, INTRANSITIVE) for n in (0, 1) for word in words[n]}
    pairs = generate_pairs(20, 1)
    assert len({pair.construction for pair in pairs}) == 4
    for pair in pairs:
        assert pair.good[:-1] == pair.bad[:-1]
        assert number[pair.good[1]] == number[pair.good[-1]] != number[pair.bad[-1]]


# ---- the command line

TINY = [
    *("--sentences", "200", "--embedding-size", "6", "--hidden-size", "8", "--num-layers", "2"),
    *("--chunk-size", "2", "--bptt", "8", "--batch-size", "4", "--epochs", "4", "--save-every", "3"),
    *("--patience", "0", "--learning-rate", "40"),
]


def train(directory, *words):
    return main(["train", "--run-dir", str(directory), *TINY, *words])


@pytest.mark.parametrize("model", ["onlstm", pytest.param("lstm", marks=pytest.mark.slow), "prpn"])
def test_interrupted_in_the_middle_of_epochs_a_run_ends_in_the_same_perplexity(
    tmp_path, monkeypatch, capsys, model
):
    options = ["--model", model]
    if model == "prpn":
        options += ["--learning-rate", "0.01", "--batch-size", "12", "--num-layers", "1"]
    assert train(tmp_path / "whole", *options) == 0
    expected = outcome(tmp_path / "whole")
    steps = [row["step"] for row in expected[0]]
    shard, calls = LanguageModelingObjective.shard, 0

    def interrupting(self, *arguments):
        nonlocal calls
        calls += 1
        # In the middle of the first epoch, and of the last, when weights are averaged.
        if calls in (steps[0] // 2, steps[2] + 5):
            os.kill(os.getpid(), signal.SIGTERM)
        return shard(self, *arguments)

    monkeypatch.setattr(LanguageModelingObjective, "shard", interrupting)
    assert train(tmp_path / "run", *options) == 130
    if model == "prpn":  # the state that is carried over has as many slots
        assert train(tmp_path / "run", *options, "--resume", "--num-slots", "9") == 2
        assert "--num-slots 9: must stay 15 until the end of the epoch" in capsys.readouterr().err
    assert train(tmp_path / "run", *options, "--resume") == 130
    assert train(tmp_path / "run", *options, "--resume") == 0
    assert calls == steps[-1]
    assert outcome(tmp_path / "run") == expected
    assert train(tmp_path / "run", *options, "--resume", "--sentences", "210") == 2  # another text
    assert "this run was started with other training or validation data" in capsys.readouterr().err
    assert train(tmp_path / "run", *options, "--resume", "--seed", "2") == 2
    assert "--seed 2: " in capsys.readouterr().err


def test_a_run_learns_averages_and_its_checkpoint_says_what_it_says(tmp_path, capsys):
    plain = [word for name in ("input", "hidden", "output", "weight") for word in (f"--{name}-dropout", "0")]
    sizes = ["--num-layers", "1", "--embedding-size", "16", "--activation-regularization", "0"]
    options = ["--learning-rate", "10", "--epochs", "8", "--patience", "0"]
    assert train(tmp_path / "run", *plain, *sizes, *options) == 0
    rows, results, _ = outcome(tmp_path / "run")
    assert rows[-1]["validation_perplexity"] < 0.7 * rows[0]["validation_perplexity"]
    average = read_state(tmp_path / "run" / "last.safetensors")["optimization"]["average"]
    best, _ = read_checkpoint(tmp_path / "run" / "best.safetensors")  # of the last epoch
    assert all(torch.equal(weight, average[f"module.{name}"]) for name, weight in best.items())
    assert results["test_perplexity"] == pytest.approx(math.exp(results["test_loss"]))
    capsys.readouterr()
    checkpoint = tmp_path / "run" / "best.safetensors"
    out = tmp_path / "out.json"
    assert main(["evaluate", "--checkpoint", str(checkpoint), "--json", str(out)]) == 0
    assert json.loads(out.read_text())["loss"] == pytest.approx(results["test_loss"])
    text = tmp_path / "some.txt"
    text.write_text("the dog sleeps\n")
    assert main(["evaluate", "--checkpoint", str(checkpoint), "--text", str(text), "--json", str(out)]) == 0
    model, vocabulary, _ = load_model(checkpoint)
    model.cpu()
    words = torch.tensor([0, *vocabulary.encode(["the", "dog", "sleeps"], ""), 0]).unsqueeze(1)
    with torch.no_grad():
        expected = cross_entropy(model(words[:-1]).logits.squeeze(1), words[1:, 0])
    assert json.loads(out.read_text())["loss"] == pytest.approx(float(expected), rel=1e-5)
    text.write_text("the dog barks\n")
    assert main(["evaluate", "--checkpoint", str(checkpoint), "--text", str(text)]) == 2
    assert "line 1: 'barks' is not in the vocabulary" in capsys.readouterr().err


def test_seeds_give_mean_and_deviation_of_the_perplexity_and_may_share_their_sentences(tmp_path, capsys):
    options = ["--seeds", "2", "--seed", "3", "--data-seed", "5", "--epochs", "2", "--learning-rate", "5"]
    assert train(tmp_path, *options) == 0
    out = capsys.readouterr().out
    summary = json.loads((tmp_path / "seed-3-to-4.json").read_text())["results"]["test perplexity"]
    one, other = (
        json.loads((tmp_path / f"seed-{seed}" / "results.json").read_text())["test_perplexity"]
        for seed in (3, 4)
    )
    assert summary["values"] == {"3": one, "4": other}
    assert one != other
    assert summary["mean"] == pytest.approx((one + other) / 2)
    assert summary["deviation"] == pytest.approx(abs(one - other) / 2**0.5)
    text = f"test perplexity  {summary['mean']:.2f} ± {summary['deviation']:.2f}  ({one:.2f} {other:.2f})"
    assert text in out
    assert "2 seeds: mean ± sample standard deviation\n" in out
    models = [load_model(tmp_path / f"seed-{seed}" / "best.safetensors") for seed in (3, 4)]
    first, second = (generate_splits(trained.config)[2] for trained in models)
    assert [sentence.words for sentence in first] == [sentence.words for sentence in second]
    drawn = generate_splits(replace(models[0].config, data_seed=None))[2]
    assert [sentence.words for sentence in drawn] != [sentence.words for sentence in first]
    assert train(tmp_path, *options, "--resume") == 0  # nothing is left to train
    assert capsys.readouterr().out == out[out.index("2 seeds") :]


def test_the_seed_of_the_data_has_no_effect_on_a_text():
    assert "data_seed" in LanguageModelConfig(data_dir=Path("ptb"), data_seed=1).unused
    assert "data_seed" not in LanguageModelConfig(sentences=20, data_seed=1).unused


@pytest.mark.slow
def test_two_processes_equal_one_with_the_doubled_batch(tmp_path):
    plain = ["--epochs", "2", "--learning-rate", "5"]
    for name in ("embedding", "input", "hidden", "output", "weight"):
        plain += [f"--{name}-dropout", "0"]
    assert train(tmp_path / "one", *plain) == 0
    command = [sys.executable, "-m", "tasks.language_model", "train", "--run-dir", str(tmp_path / "two")]
    options = ["--devices", "2", "--strategy", "ddp", "--accelerator", "cpu", "--batch-size", "2"]
    subprocess.run([*command, *TINY, *plain, *options], cwd=ROOT, check=True, capture_output=True)
    for one, two in zip(outcome(tmp_path / "one")[0], outcome(tmp_path / "two")[0], strict=True):
        assert two == pytest.approx(one, rel=1e-4)


def test_evaluation_has_the_words_of_the_checkpoint_whatever_the_training_text_is_now(tmp_path, capsys):
    data = tmp_path / "data"
    data.mkdir()
    for name, text in (("train", "a b\nb c <unk>\n" * 20), ("valid", "a b\n"), ("test", "c b\nd a\n")):
        (data / f"{name}.txt").write_text(text)
    options = ["--epochs", "1", "--evaluation-batch-size", "1"]
    assert train(tmp_path / "run", "--data-dir", str(data), *options) == 0
    (data / "train.txt").write_text("c d b a\n")
    out, checkpoint = tmp_path / "out.json", tmp_path / "run" / "best.safetensors"
    assert main(["evaluate", "--checkpoint", str(checkpoint), "--json", str(out)]) == 0
    found, (rows, results, _) = json.loads(out.read_text()), outcome(tmp_path / "run")
    assert found["loss"] == pytest.approx(results["test_loss"])
    assert rows[0]["validation_loss"] == pytest.approx(results["validation_loss"])
    assert results["validation_loss"] != pytest.approx(results["test_loss"], rel=1e-3)
    assert (found["coverage"], found["unknown"]) == (0.75, 1)  # d is read as <unk>
    assert (
        "on 6 words, ends of sentences included; "
        "1 of 4 words is read as <unk>: 0 are written so, 1 is not in the vocabulary\n"
    ) in capsys.readouterr().out
    generate = ["generate", "--checkpoint", str(checkpoint), "--count", "1", "--start"]
    assert main([*generate, "a d <unk> e d"]) == 0
    assert capsys.readouterr().err == "warning: --start: the model reads d e as <unk>\n"
    assert main([*generate, "a b"]) == 0
    assert not capsys.readouterr().err
    assert (results["validation_unknown"], results["test_unknown"]) == (0, 1)
    assert results_text(results).splitlines()[3].split()[-2:] == ["6", "1"]
    # Of 140 words and ends of sentences for training, and one more of each of 5: 21 a, 41 b, 21 c, 21 <unk>.
    for part, counts in (("validation", (21, 41, 41)), ("test", (21, 41, 41, 21, 21, 41))):
        assert results[f"{part}_unigram_perplexity"] == pytest.approx(
            145 / math.prod(counts) ** (1 / len(counts))
        )
    capsys.readouterr()
    (data / "train.txt").write_text("a b\nb c <unk>\n" * 20)
    (data / "valid.txt").write_text("b a\n")
    assert train(tmp_path / "run", "--data-dir", str(data), *options, "--resume") == 2
    assert "this run was started with other training or validation data" in capsys.readouterr().err
    (data / "valid.txt").write_text("a b\n")
    (data / "train.txt").write_text("a b\nb c <unk>\n" * 20 + "d\n")  # a word more, a larger model
    assert train(tmp_path / "run", "--data-dir", str(data), *options, "--resume") == 2
    assert "this run was started with other training or validation data" in capsys.readouterr().err
    moved = data.rename(tmp_path / "moved")
    assert main(["evaluate", "--checkpoint", str(checkpoint)]) == 2
    assert "the text of the run is not here; --data-dir names its directory" in capsys.readouterr().err
    assert (
        main(["evaluate", "--checkpoint", str(checkpoint), "--data-dir", str(moved), "--columns", "2"]) == 0
    )
    assert "in 2 columns that start without context" in capsys.readouterr().out
    options = ["--data-dir", str(moved), "--columns", "100", "--json", str(out)]
    assert main(["evaluate", "--checkpoint", str(checkpoint), *options]) == 0
    assert "in 6 columns that start without context" in capsys.readouterr().out
    assert json.loads(out.read_text())["columns"] == 6
    options = ["--data-dir", str(moved), "--columns", "4", "--json", str(out)]
    assert main(["evaluate", "--checkpoint", str(checkpoint), *options]) == 0
    assert json.loads(out.read_text())["columns"] == 3  # of two words each


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sentences", "30"], "--sentences 30 are too few: generated"),
        (["--embedding-size", "7"], "--embedding-size 7 must be divisible by --chunk-size 2"),
        (["--hidden-size", "9"], "--hidden-size 9 must be divisible by --chunk-size 2"),
        (["--input-dropout", "2"], "--input-dropout must lie in [0, 1], got 2"),
        (["--sentences", "3"], "or --sentences must be at least 10, got 3"),
        (["--batch-size", "5000"], "--batch-size 5000 columns are too many"),
        (["--data-dir", "/nowhere"], "/nowhere: no such directory; it should hold train.txt"),
        (["--patience", "-1"], "--patience must not be negative, got -1"),
    ],
)
def test_bad_options_are_one_line(tmp_path, capsys, words, message):
    assert train(tmp_path / "run", *words) == 2
    *warnings, error = capsys.readouterr().err.splitlines()
    assert message in error
    unused = "warning: --sentences 200 has no effect with --data-dir"
    assert warnings == ([unused] if "--data-dir" in words else [])


def test_another_kind_of_checkpoint(capsys):
    path = ROOT / "tasks" / "listops" / "pretrained.safetensors"
    assert main(["evaluate", "--checkpoint", str(path)]) == 2
    assert "not a checkpoint of a language model" in capsys.readouterr().err


def test_the_perplexity_of_word_frequencies_by_hand():
    losses = unigram_losses(torch.tensor([0, 0, 1]), torch.tensor([1, 2, 0]), 3)
    assert torch.allclose(losses.exp(), torch.tensor([6 / 2, 6 / 1, 6 / 3]).double())


@pytest.mark.parametrize(("reached", "warned"), [(40.0, False), (47.0, True), (48.0, True)])
def test_a_model_that_is_no_better_than_word_frequencies_is_said_to_be(reached, warned):
    results = {"parameters": 1} | {
        f"{part}_{name}": value
        for part in ("validation", "test")
        for name, value in {
            "perplexity": reached,
            "unigram_perplexity": 47.0,
            "loss": 3.8,
            "tokens": 9,
            "unknown": 0,
        }.items()
    }
    results["validation_perplexity"] = 40.0  # the test alone is looked at
    text = results_text(results)
    assert ("not below the unigram perplexity" in text) == ("--learning-rate" in text) == warned
    assert ("its trees, if it has any," in " ".join(text.split())) == warned  # an LSTM has none
    assert "47.00" in text


def test_perplexity_stays_finite():
    assert math.isfinite(perplexity(1e9))


def test_a_text_is_split_into_the_sentences_it_was_made_of():
    sentences = [["a", "b"], [], ["b"]]
    vocabulary = Vocabulary.from_sentences(sentences)
    assert split_text(encode_text(sentences, vocabulary, ""), vocabulary) == sentences
    assert encode_text([], vocabulary, "").dtype == torch.int64


def test_nothing_is_drawn_after_the_sentences_of_a_batch_have_ended(small_runs, monkeypatch):
    monkeypatch.setattr("tasks.language_model.samples.BATCH_SIZE", 2)
    trained = load_model(Path(small_runs["language_model"]))
    read: list[int] = []
    trained.model.register_forward_hook(lambda model, inputs, output: read.append(len(inputs[0])))
    drawn = sample_sentences(trained, count=3, max_words=10**15)
    assert len(read) == 1 + max(map(len, drawn[:2])) + 1 + len(drawn[2])
    assert all(words[-1:] != ["…"] for words in drawn)
    assert drawn == sample_sentences(trained, count=3, max_words=max(map(len, drawn)))


def test_samples_are_drawn_with_the_probabilities_of_the_model(small_runs):
    trained = load_model(Path(small_runs["language_model"]))
    drawn = sample_sentences(trained, seed=3)
    assert drawn == sample_sentences(trained, seed=3) != sample_sentences(trained, seed=4)
    words = {word for sentence in drawn for word in sentence}
    assert words <= {*trained.vocabulary.words, "…"} - {"<eos>"}
    short = sample_sentences(trained, seed=3, count=40, max_words=8)
    truncated = [sentence for sentence in short if sentence[-1:] == ["…"]]
    assert 0 < len(truncated) < 40
    assert {len(sentence) for sentence in truncated} == {9}
    assert all(len(sentence) <= 8 for sentence in short if sentence not in truncated)
    never = trained.vocabulary.words.index("the")
    always = trained.vocabulary.words.index("dog")
    with torch.no_grad():
        trained.model.output_bias[always] = 1e4
        trained.model.output_bias[never] = -1e4
    assert sample_sentences(trained) == [["dog"] * LONGEST + ["…"]] * 12


def test_sampled_words_have_the_probabilities_of_the_model_after_the_start(small_runs):
    trained = load_model(Path(small_runs["language_model"]))
    start, temperature, count = trained.vocabulary.words[3:5], 0.5, 4_000
    drawn = sample_sentences(trained, count=count, max_words=1, temperature=temperature, start=start)
    assert all(sentence[:2] == start and len(sentence) <= 4 for sentence in drawn)
    ids = torch.tensor([0, *trained.vocabulary.encode(start, "")]).unsqueeze(1)
    with torch.no_grad():
        expected = (trained.model(ids).logits[-1, 0].double() / temperature).softmax(-1)
    third = [sentence[2] if len(sentence) > 2 else "<eos>" for sentence in drawn]
    found = torch.tensor([third.count(word) / count for word in trained.vocabulary.words])
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=0.03)


def test_a_temperature_near_zero_takes_the_most_probable_word(small_runs):
    trained = load_model(Path(small_runs["language_model"]))
    sentences = sample_sentences(trained, count=3, max_words=5, temperature=1e-300)
    assert sentences == [sentences[0]] * 3
    with torch.no_grad():
        best = trained.model(torch.zeros(1, 1, dtype=torch.long)).logits.argmax().item()
    assert (sentences[0] or ["<eos>"])[0] == trained.vocabulary.words[best]


def test_generated_sentences_are_printed_or_written(small_runs, tmp_path, capsys):
    options = ["generate", "--checkpoint", small_runs["language_model"], "--count", "130", "--seed", "2"]
    assert main(options) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 130
    assert main([*options, "--output", str(tmp_path / "text.txt")]) == 0
    assert (tmp_path / "text.txt").read_text() == printed
    given = {"seed": 2, "count": 130, "start": ["the"], "temperature": 0.5, "max_words": 3}
    assert main([*options, "--start", "the", "--temperature", "0.5", "--max-words", "3"]) == 0
    sentences = sample_sentences(load_model(Path(small_runs["language_model"])), **given)
    assert capsys.readouterr().out.splitlines() == [" ".join(words) for words in sentences]
    for bad in (["--temperature", "0"], ["--count", "0"], ["--start", "zebra"], ["--output", "no/file"]):
        assert main([*options, *bad]) == 2
    assert "'zebra' is not in the vocabulary" in capsys.readouterr().err
    assert main([*options, "--start", "the <eos>"]) == 2
    assert "the start: expected no <eos>, which is added at the end" in capsys.readouterr().err


def test_the_report_has_trees_of_validation_sentences_and_the_true_ones(small_runs):
    text = (Path(small_runs["language_model_run"]) / "report.html").read_text()
    config = load_model(Path(small_runs["language_model"])).config
    trees = {tuple(sentence.words): sentence.tree for sentence in generate_splits(config)[1]}
    traces = embedded(text)
    assert len(traces) == 4
    for trace in traces:
        tree = trees[tuple(trace["tokens"])]
        assert {(node["first"], node["last"]) for node in trace["true_nodes"]} == set(spans(tree))
        assert [layer["name"] for layer in trace["layers"]] == ["layer 1", "layer 2"]


def test_the_report_of_an_lstm_has_samples_but_no_trees(tmp_path):
    options = ["--model", "lstm", "--run-dir", str(tmp_path)]
    assert main(["train", *TINY, *options]) == 0
    text = (tmp_path / "report.html").read_text()
    assert embedded(text) == []
    assert text.count("<li>") == 12


def test_the_report_says_into_how_many_parts_the_validation_text_was_split(tmp_path):
    options_of_run = ["--model", "lstm", "--evaluation-batch-size", "10000", "--run-dir", str(tmp_path)]
    assert main(["train", *TINY, *options_of_run]) == 0
    words = json.loads((tmp_path / "results.json").read_text())["validation_tokens"]
    assert f"is split into {words} parts, each" in (tmp_path / "report.html").read_text()
    config = options(evaluation_batch_size=5)
    assert [validation_columns(config, 100, processes) for processes in (1, 2, 7)] == [5, 4, 7]
