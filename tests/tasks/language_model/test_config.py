"""The options of language modeling: their bounds, and which of them have an effect."""

from dataclasses import replace
from pathlib import Path

import pytest

from tasks.language_model.config import LanguageModelConfig, presets_of
from tasks.runs.errors import UserError

SIZES = ("embedding_size", "hidden_size", "num_layers", "chunk_size", "num_slots", "look_back", "bptt")
SMALLEST = {
    **dict.fromkeys([*SIZES, "min_count", "evaluation_batch_size"], 1),
    **dict.fromkeys(["activation_regularization", "temporal_regularization", "patience"], 0),
    "sentences": 10,
}
TEXT = {"data_dir": Path("text")}


def test_the_smallest_values_are_accepted():
    LanguageModelConfig(**SMALLEST).check()
    LanguageModelConfig(**SMALLEST | TEXT | {"sentences": 0}).check()


@pytest.mark.parametrize("name", SMALLEST)
def test_what_is_less_is_refused(name):
    bound = f"at least {SMALLEST[name]}" if SMALLEST[name] else "not be negative"
    with pytest.raises(UserError, match=rf"--{name.replace('_', '-')} must (be )?{bound}, got "):
        LanguageModelConfig(**SMALLEST | {name: SMALLEST[name] - 1}).check()


DROPOUT = [f"{name}_dropout" for name in ("embedding", "input", "hidden", "output", "weight")]


@pytest.mark.parametrize("name", DROPOUT)
def test_dropout_is_a_probability(name):
    for value in (0.0, 1.0):
        LanguageModelConfig(**TEXT, **{name: value}).check()
    for value in (-0.1, 1.1):
        with pytest.raises(UserError, match=rf"--{name.replace('_', '-')} must lie in \[0, 1\], got {value}"):
            LanguageModelConfig(**TEXT, **{name: value}).check()


@pytest.mark.parametrize(
    ("options", "bad"),
    [
        ({}, None),
        ({"embedding_size": 7}, "embedding-size 7"),
        ({"hidden_size": 7}, "hidden-size 7"),
        ({"embedding_size": 7, "tied": False}, None),  # all layers have --hidden-size units
        ({"hidden_size": 7, "tied": False}, "hidden-size 7"),
        ({"hidden_size": 7, "num_layers": 1}, None),  # the only layer has --embedding-size units
        ({"embedding_size": 7, "num_layers": 1}, "embedding-size 7"),
        ({"embedding_size": 7, "num_layers": 1, "tied": False}, None),
        ({"hidden_size": 7, "num_layers": 1, "tied": False}, "hidden-size 7"),
        ({"embedding_size": 7, "hidden_size": 7, "model": "lstm"}, None),
        ({"embedding_size": 7, "hidden_size": 7, "model": "prpn"}, None),
    ],
)
def test_chunks_divide_every_layer_of_an_on_lstm(options, bad):
    sizes = {"embedding_size": 6, "hidden_size": 8, "num_layers": 2, "chunk_size": 2}
    config = LanguageModelConfig(**TEXT, **sizes | options)
    if bad is None:
        config.check()
    else:
        with pytest.raises(UserError, match=f"--{bad} must be divisible by --chunk-size 2"):
            config.check()


@pytest.mark.parametrize(
    ("options", "unused"),
    [
        (TEXT, {"num_slots", "look_back", "sentences"}),
        (TEXT | {"model": "lstm"}, {"num_slots", "look_back", "sentences", "chunk_size", "backend"}),
        (TEXT | {"model": "prpn"}, {"sentences", "chunk_size", "backend"}),
        (TEXT | {"initial_weights": Path("a")}, {"num_slots", "look_back", "sentences", "min_count"}),
        ({"sentences": 10}, {"num_slots", "look_back", "min_count"}),
        (
            TEXT | {"num_layers": 1},
            {"num_slots", "look_back", "sentences", "hidden_dropout", "hidden_size"},
        ),
        (
            TEXT | {"num_layers": 1, "tied": False},
            {"num_slots", "look_back", "sentences", "hidden_dropout"},
        ),
        (
            TEXT | {"num_layers": 1, "model": "prpn"},
            {"sentences", "chunk_size", "backend", "hidden_dropout"},
        ),
    ],
)
def test_model_and_text_decide_which_options_have_an_effect(options, unused):
    config = LanguageModelConfig(**options)
    sizes = {"embedding_size", "hidden_size", "num_layers", "chunk_size", "look_back"}
    names = sizes | {"num_slots", "backend", "sentences", "min_count", "tied", *DROPOUT}
    assert config.unused.keys() & names == unused
    assert config.architecture.keys() == (sizes | {"model", "tied", "min_count"}) - unused
    assert all(value == getattr(config, name) for name, value in config.architecture.items())
    assert config.draws_data == ("data_dir" not in options)


@pytest.mark.parametrize("model", ["onlstm", "lstm", "prpn"])
def test_the_presets_of_a_model_are_its_own(model):
    presets = presets_of(model)
    assert list(presets) == ["paper", "small", "demo"]  # the default first
    for name, preset in presets.items():
        assert (preset.preset, preset.model) == (name, model)
        replace(preset, data_dir=None if name == "demo" else Path("text")).check()
    assert presets_of(None) == presets_of("onlstm")
