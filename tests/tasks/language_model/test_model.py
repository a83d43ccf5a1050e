"""`onlstm.LanguageModel` and the models of the task."""

import pytest
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from onlstm.language_model import LanguageModel
from tasks.language_model.config import presets_of
from tasks.language_model.model import build_model
from tasks.language_model.prpn import PRPN
from tests.tasks.language_model.tiny import LSTM, ON_LSTM, build


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
