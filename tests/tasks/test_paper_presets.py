"""The preset `paper` of each task: the hyperparameters of the papers and of their authors' code."""

import inspect

import pytest

from onlstm.language_model import LanguageModel
from tasks.language_model.config import presets_of as language_model
from tasks.language_model.optimization import RESTART_EPOCH
from tasks.language_model.prpn import PRPN
from tasks.listops.config import presets_of as listops
from tasks.logic.config import presets_of as logic
from tasks.sst.config import presets_of as sst

ADAM = {
    "optimizer": "adam",
    "learning_rate": 1e-3,
    "adam_betas": (0.0, 0.999),
    "adam_epsilon": 1e-9,
    "weight_decay": 1.2e-6,
    "gradient_clip": 1.0,
    "learning_rate_decay": 0.5,
    "patience": 2,
    "batch_size": 128,
    "epochs": 50,
    "average_decay": 0.0,
    "curriculum_epochs": 0,
    "restore_best": False,
}
"""Of Ordered Memory in every task."""
DROPOUTS = ("cell_dropout", "attention_dropout", "input_dropout", "output_dropout")


@pytest.mark.parametrize(
    ("presets_of", "sizes", "dropouts"),
    [
        (listops, {"slot_size": 128, "num_slots": 21, "embedding_size": 128}, (0.1, 0.3, 0.1, 0.2)),
        (
            logic,
            {"slot_size": 200, "num_slots": 12, "test_num_slots": 24, "embedding_size": 200},
            (0.2, 0.2, 0.1, 0.3),
        ),
        (sst, {"slot_size": 300, "num_slots": 15}, (0.2, 0.2, 0.3, 0.4)),
    ],
)
def test_ordered_memory(presets_of, sizes, dropouts):
    options = ADAM | sizes | dict(zip(DROPOUTS, dropouts, strict=True))
    paper = presets_of(None)["paper"]
    assert {name: getattr(paper, name) for name in options} == options
    assert (paper.model, paper.score, paper.cell) == ("ordered-memory", "normalized", "gated")


def test_long_expressions_are_not_trained_on():
    assert listops(None)["paper"].max_train_length == 100


def test_on_lstm_as_a_language_model():
    options = {
        "embedding_size": 400,
        "hidden_size": 1150,
        "num_layers": 3,
        "chunk_size": 10,
        "tied": True,
        "embedding_dropout": 0.1,
        "input_dropout": 0.5,
        "hidden_dropout": 0.3,
        "output_dropout": 0.45,
        "weight_dropout": 0.45,
        "activation_regularization": 2.0,
        "temporal_regularization": 1.0,
        "learning_rate": 30.0,
        "weight_decay": 1.2e-6,
        "gradient_clip": 0.25,
        "patience": 5,
        "batch_size": 20,
        "evaluation_batch_size": 10,
        "bptt": 70,
        "epochs": 1_000,
    }
    paper = language_model(None)["paper"]
    assert {name: getattr(paper, name) for name in options} == options
    assert RESTART_EPOCH == 500
    defaults = inspect.signature(LanguageModel.__init__).parameters
    assert len(options.keys() & defaults) == 10
    for name in options.keys() & defaults:
        assert defaults[name].default == options[name], name


def test_prpn():
    sizes = {"embedding_size": 800, "hidden_size": 1200, "num_layers": 2, "num_slots": 15, "look_back": 5}
    of_the_model = sizes | {
        "tied": True,
        "embedding_dropout": 0.0,
        "input_dropout": 0.7,
        "hidden_dropout": 0.5,
        "output_dropout": 0.7,
    }
    options = of_the_model | {
        "weight_dropout": 0.5,
        "activation_regularization": 0.0,
        "temporal_regularization": 0.0,
        "learning_rate": 0.003,
        "weight_decay": 1e-6,
        "gradient_clip": 1.0,
        "patience": 2,
        "batch_size": 64,
        "bptt": 35,
        "epochs": 100,
    }
    paper = language_model("prpn")["paper"]
    assert paper.model == "prpn"
    assert {name: getattr(paper, name) for name in options} == options
    defaults = inspect.signature(PRPN.__init__).parameters
    expected = of_the_model | {"recurrent_dropout": 0.5}
    assert {name: defaults[name].default for name in expected} == expected
