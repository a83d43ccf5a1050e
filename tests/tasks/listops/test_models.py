"""The models of ListOps: nobody sees padding or batch-mates, true trees reach those that are given them."""

from dataclasses import replace
from typing import get_args

import pytest
import torch

from tasks.classifiers.config import GOLD_TREE_MODELS, ModelName
from tasks.listops.config import ListOpsConfig, presets_of
from tasks.listops.data import Dataset
from tasks.listops.expressions import parse
from tasks.listops.generator import generate
from tasks.listops.model import ListOpsModel
from tasks.runs.errors import UserError
from tests.tasks.classifiers.tiny import TINY, assert_batch_mates_change_nothing, assert_every_weight_learns

SMALL = ListOpsConfig(embedding_size=6, **TINY)
MODELS = get_args(ModelName)


@pytest.fixture(scope="module")
def data():
    return Dataset(generate(12, seed=3, max_length=30), include_trees=True)


@pytest.mark.parametrize("name", MODELS)
def test_neither_padding_nor_batch_mates_change_an_answer(name, data):
    assert_batch_mates_change_nothing(ListOpsModel(replace(SMALL, model=name)), data)


@pytest.mark.parametrize("name", MODELS)
def test_every_weight_learns(name, data):
    assert_every_weight_learns(ListOpsModel(replace(SMALL, model=name)), data)


@pytest.mark.parametrize("name", GOLD_TREE_MODELS)
def test_the_true_tree_is_composed_node_by_node(name, data):
    model = ListOpsModel(replace(SMALL, model=name)).double().eval()
    chosen = data.select([0, 5, 7])
    logits = model(chosen.batch(range(3))).logits

    def node(tree, embedded):
        if isinstance(tree, int):
            return model.encoder.leaf(embedded[tree : tree + 1])
        return model.encoder.compose(*(node(part, embedded) for part in tree))

    for index in range(3):
        tree = parse(chosen.tokens_of(index)).tree
        embedded = model.embedding(chosen.batch([index]).tokens[0])
        summary = model.encoder.summary(node(tree, embedded))
        assert torch.allclose(model.output(summary)[0], logits[index])


@pytest.mark.parametrize("preset", ["paper", "curriculum", "demo"])
@pytest.mark.parametrize("name", MODELS)
def test_presets_fit_every_model(name, preset):
    replace(presets_of(name)[preset], model=name).check()


def test_crvnn_has_the_preset_of_its_own_paper():
    ours, theirs = presets_of(None)["paper"], presets_of("crvnn")["paper"]
    assert (ours.input_dropout, ours.adam_betas) == (0.1, (0.0, 0.999))
    assert (theirs.input_dropout, theirs.adam_betas) == (0.3, (0.9, 0.999))
    assert (ours.optimizer, theirs.optimizer) == ("adam", "radam")
    assert presets_of("crvnn")["demo"] == presets_of(None)["demo"]


@pytest.mark.parametrize("name", [None, "crvnn"])
def test_the_preset_with_a_curriculum_is_otherwise_that_of_the_models_paper(name):
    presets = presets_of(name)
    curriculum = presets["curriculum"]
    assert (curriculum.preset, curriculum.curriculum_epochs, curriculum.curriculum_length) == (
        "curriculum",
        6,
        20,
    )
    assert (curriculum.average_decay, curriculum.restore_best) == (0.999, True)
    ours = {name for name, value in vars(curriculum).items() if value != vars(presets["paper"])[name]}
    assert ours == {"preset", "curriculum_epochs", "average_decay", "restore_best"}


def test_heads_that_do_not_divide_the_features_are_refused():
    with pytest.raises(UserError, match="a multiple of --heads for a transformer, got 8 and 3 heads"):
        replace(SMALL, model="transformer", heads=3).check()
