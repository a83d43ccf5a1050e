"""Dropout of the language model."""

from dataclasses import replace

import pytest
import torch
from torch.nn.utils import prune

from tasks.language_model.config import presets_of
from tasks.language_model.model import build_model
from tests.tasks.language_model.tiny import LSTM, NO_DROPOUT, ON_LSTM, build


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


@pytest.mark.parametrize(
    "name", ["embedding_dropout", "input_dropout", "hidden_dropout", "output_dropout", "weight_dropout"]
)
def test_a_probability_is_checked_when_it_is_set(name):
    model = build(ON_LSTM)
    setattr(model, name, 0.25)
    assert getattr(model, name) == 0.25
    with pytest.raises(ValueError, match=rf"{name} must lie in \[0, 1\], got 2"):
        setattr(model, name, 2)
