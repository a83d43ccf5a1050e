"""Encoders are built from the options of a run, and their summaries are those of the sequences alone."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import elu

from ordered_memory import modes
from tasks.classifiers.config import EncoderConfig
from tasks.classifiers.encoders import MeanOfTokens, build_encoder, build_head, encode, summary_size

CONFIG = EncoderConfig(slot_size=4, num_slots=5, chunk_size=2, layers=3, heads=2)
SEQUENCES, LENGTHS = torch.randn(3, 6, 2, generator=torch.Generator().manual_seed(1)), torch.tensor([6, 1, 4])


def test_the_mean_leaves_padding_out():
    means = MeanOfTokens()(SEQUENCES, LENGTHS)
    for sequence, length, mean in zip(SEQUENCES, LENGTHS, means, strict=True):
        torch.testing.assert_close(mean, sequence[:length].mean(0))


def test_the_head_is_two_linear_layers_with_dropout_before_each():
    head = build_head(replace(CONFIG, output_dropout=1.0), 2, 3)
    first, second = (module for module in head if isinstance(module, torch.nn.Linear))
    x = torch.randn(5, 2)
    torch.testing.assert_close(head.eval()(x), second(elu(first(x))))
    torch.testing.assert_close(head.train()(x), second.bias.expand(5, -1))
    second.weight.data.zero_()
    assert not head[: list(head).index(first)](x).any()


@pytest.mark.parametrize("model", ["lstm", "onlstm"])
def test_a_summary_of_both_directions_is_what_each_of_them_ends_with(model):
    config = replace(CONFIG, model=model, bidirectional=True)
    encoder = build_encoder(config, 2).eval()
    summaries = encode(encoder, SEQUENCES, LENGTHS).summary
    assert summaries.shape == (3, summary_size(config, 2))
    for sequence, length, summary in zip(SEQUENCES, LENGTHS, summaries, strict=True):
        output = encoder(sequence[None, :length])[0][0]
        torch.testing.assert_close(summary, torch.cat([output[-1, :4], output[0, 4:]]))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("model", ["lstm", "onlstm"])
def test_the_summary_is_that_of_the_last_layer_and_distances_are_those_of_all(model, bidirectional):
    config = replace(CONFIG, model=model, num_layers=2, bidirectional=bidirectional)
    encoder = build_encoder(config, 2).eval()
    encoded = encode(encoder, SEQUENCES, LENGTHS)
    for row, (sequence, length) in enumerate(zip(SEQUENCES, LENGTHS, strict=True)):
        out = encoder(sequence[None, :length], **({"distances": True} if model == "onlstm" else {}))
        hidden = out[1][0][-2:] if bidirectional else out[1][0][-1:]
        torch.testing.assert_close(encoded.summary[row], hidden[:, 0].flatten())
        if model == "onlstm":
            forget = out[2].forget[:, 0]
            forward, backward = (forget[0::2], forget[1::2]) if bidirectional else (forget, None)
            torch.testing.assert_close(encoded.distances[:, row, :length], forward)
            if bidirectional:
                torch.testing.assert_close(encoded.backward_distances[:, row, :length], backward)


@pytest.mark.parametrize("model", ["lstm", "onlstm"])
def test_hidden_dropout_acts_between_layers_alone(model):
    config = replace(CONFIG, model=model, hidden_dropout=1.0)
    one, two = (build_encoder(replace(config, num_layers=number), 2).train() for number in (1, 2))
    of_one, of_two = (encode(encoder, SEQUENCES, LENGTHS).summary for encoder in (one, two))
    assert torch.equal(of_one, encode(one.eval(), SEQUENCES, LENGTHS).summary)
    torch.testing.assert_close(of_two[0], encode(two, torch.zeros_like(SEQUENCES), LENGTHS).summary[0])
    assert not torch.equal(of_two, encode(two.eval(), SEQUENCES, LENGTHS).summary)
    assert "hidden_dropout" in config.unused
    assert "hidden_dropout" not in replace(config, num_layers=2).unused


def test_weight_dropout_of_onlstm_acts_on_recurrent_weights_in_training():
    encoder = build_encoder(replace(CONFIG, model="onlstm", weight_dropout=1.0), 2).train()
    last = SEQUENCES[:, 5:]
    h, c = encoder(SEQUENCES[:, :5])[1]
    with_h = encoder(last, (h, c))[0]
    assert torch.equal(with_h, encoder(last, (torch.zeros_like(h), c))[0])  # no weight is left to read h
    assert not torch.equal(with_h, encoder.eval()(last, (h, c))[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_lstm_computes_without_autocast_where_it_does_not_run_under_it(dtype, monkeypatch):
    monkeypatch.setattr(modes, "_runs_lstm", lambda dtype: False)
    encoder, embedded = build_encoder(replace(CONFIG, model="lstm"), 2), SEQUENCES.to(dtype)
    with torch.autocast("cpu", torch.bfloat16):
        summary = encode(encoder, embedded, LENGTHS).summary
    assert torch.equal(summary, encode(encoder, embedded.float(), LENGTHS).summary)


def test_the_attention_of_both_directions_is_that_of_the_forward_one():
    encoder = build_encoder(replace(CONFIG, bidirectional=True), 2).eval()
    encoded = encode(encoder, SEQUENCES, LENGTHS)
    out = encoder(SEQUENCES, lengths=LENGTHS)
    assert torch.equal(encoded.attention, out.attention[0])
    assert not torch.equal(encoded.attention, out.attention[1])
    torch.testing.assert_close(encoded.summary, torch.cat(tuple(out.state.candidate[..., -1, :]), -1))


def test_the_options_of_ordered_memory_reach_it():
    options = {
        "score": "additive",
        "cell": "tree-rnn",
        "cell_dropout": 0.1,
        "attention_dropout": 0.2,
        "occupancy_threshold": 0.001,
        "recompute_every": 7,
        "backend": "reference",
    }
    encoder = build_encoder(replace(CONFIG, **options), 2)
    assert {name: getattr(encoder, name) for name in options} == options
    for num_slots in (5, 3):
        encoder.num_slots = num_slots
        assert encode(encoder, SEQUENCES, LENGTHS).attention.shape == (3, 6, num_slots)


def test_the_options_of_crvnn_reach_it():
    encoder = build_encoder(replace(CONFIG, model="crvnn", cell_dropout=0.3, recompute_every=2), 2)
    assert (encoder.dropout.p, encoder.recompute_every) == (0.3, 2)


def test_the_slots_are_the_depth_of_the_stack_of_rrnet():
    encoder = build_encoder(replace(CONFIG, model="rrnet"), 2).eval()
    torch.nn.init.zeros_(encoder.policy[-1].weight)
    encoder.policy[-1].bias.data.copy_(torch.tensor([2.0, 1.0, 0.0]))  # split while there is room
    for num_slots in (2, 3):
        encoder.num_slots = num_slots
        rollout = encode(encoder, SEQUENCES[:1], LENGTHS[:1]).rollout
        no_room = rollout.log_probabilities[0] != rollout.log_probabilities[0, 1]
        assert no_room.tolist() == [True] + [False] * (num_slots - 1) + [True] * (6 - num_slots)


@pytest.mark.parametrize("model", ["transformer", "universal-transformer"])
def test_the_layers_and_heads_of_a_transformer(model):
    encoder = build_encoder(replace(CONFIG, model=model), 2)
    assert (encoder.steps, len(encoder.layers)) == ((3, 3) if model == "transformer" else (3, 1))
    assert encoder.layers[0].self_attn.num_heads == 2


@pytest.mark.parametrize("model", ["crvnn", "gumbel-tree-lstm", "transformer", "universal-transformer"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_cell_dropout_acts_in_training_alone(model, dropout):
    encoder = build_encoder(replace(CONFIG, model=model, cell_dropout=dropout), 2)
    pairs = SEQUENCES[:, :2], torch.full((3,), 2)  # with one way to join them
    once, again = (encode(encoder.train(), *pairs).summary for _ in range(2))
    assert torch.equal(once, again) == (dropout == 0.0)
    assert torch.equal(encode(encoder.eval(), *pairs).summary, encode(encoder, *pairs).summary)
