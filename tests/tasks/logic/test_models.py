"""The models of the logic task: nobody sees padding or batch-mates, and every weight learns."""

from dataclasses import replace
from typing import get_args

import pytest
import torch

from tasks.classifiers.config import GOLD_TREE_MODELS, TRANSFORMERS, ModelName
from tasks.classifiers.evaluation import Evaluation, evaluate, predict_example
from tasks.classifiers.transformers import sinusoids
from tasks.logic.config import PRESETS, LogicConfig
from tasks.logic.data import Dataset
from tasks.logic.generator import generate, longer
from tasks.logic.model import LogicModel
from tasks.logic.task import LEFT_OUT, LOGIC
from tests.tasks.classifiers.tiny import TINY, assert_batch_mates_change_nothing, assert_every_weight_learns

SMALL = LogicConfig(embedding_size=6, test_num_slots=6, **TINY)
MODELS = get_args(ModelName)


@pytest.fixture(scope="module")
def pairs():
    train, _ = generate(400, seed=5)
    return [pair for group in train for pair in group][::7]


def test_no_formula_is_too_deep():
    negations = 2000
    nested = "( not " * negations + "a" + " )" * negations
    trees = Dataset.from_texts([(nested, "a")], include_trees=True).batch([0]).trees
    assert len(trees.children) == negations  # one level each
    assert trees.roots.tolist() == [1, 0]  # the second root is a word


@pytest.mark.parametrize("name", MODELS)
def test_neither_padding_nor_batch_mates_change_an_answer(name, pairs):
    torch.manual_seed(0)
    data = Dataset(pairs, include_trees=name in GOLD_TREE_MODELS)
    assert_batch_mates_change_nothing(LogicModel(replace(SMALL, model=name)), data)


@pytest.mark.parametrize("name", MODELS)
def test_every_weight_learns(name, pairs):
    data = Dataset(pairs, include_trees=name in GOLD_TREE_MODELS)
    assert_every_weight_learns(LogicModel(replace(SMALL, model=name)), data)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_words_and_sides_are_as_loud_as_positions_in_an_untrained_transformer(name):
    model = LogicModel(replace(PRESETS["paper"], model=name))
    positions = sinusoids(torch.arange(50), 200).square().mean().sqrt()
    for vectors in (model.embedding.weight[1:], model.encoder.formulas):
        assert 0.5 < vectors.detach().square().mean().sqrt() / positions < 2


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_transformer_tells_left_from_right_and_order(name, pairs):
    model = LogicModel(replace(SMALL, model=name)).eval()
    batch = Dataset(pairs).batch([len(pairs) - 1])
    swapped = batch._replace(tokens=batch.tokens.flip(0), lengths=batch.lengths.flip(0))
    assert not torch.allclose(model(batch).logits, model(swapped).logits)
    length = int(batch.lengths[0])
    reversed_left = batch.tokens.clone()
    reversed_left[0, :length] = reversed_left[0, :length].flip(0)
    assert not torch.allclose(model(batch).logits, model(batch._replace(tokens=reversed_left)).logits)


def test_evaluation_puts_everything_in_its_place(pairs):
    model = LogicModel(replace(SMALL, split="C"))
    model.set_num_slots()
    data = Dataset(pairs)
    whole = evaluate(model, data, batch_size=7)
    for index in (0, 3, len(pairs) - 1):
        alone = predict_example(model, data, index)
        assert whole.predicted[index] == alone.probabilities.argmax()
        assert whole.trees[index] == alone.trees
        for sentence, attention in zip(data.sentences(index), alone.attention, strict=True):
            assert attention.shape == (len(sentence.tokens), 6)
    results = LOGIC.summary(model, whole)
    counts = [count for _, count in results["accuracy_by"]["operations"].values()]
    assert sum(counts) == len(pairs) == sum(map(sum, results["confusion"]))
    right = sum(results["confusion"][k][k] for k in range(7))
    assert results["accuracy"] == right / len(pairs)
    assert all(0 <= f1 <= 1 for scores in results["span_f1"].values() for f1 in scores.values())
    assert set(results["accuracy_by"][LEFT_OUT.format("C")]) <= {"0–6", "7–12", "0–12"}


def test_true_trees_score_one(pairs):
    data = Dataset(pairs)
    trees = [tuple(sentence.tree for sentence in data.sentences(index)) for index in range(len(pairs))]
    evaluation = Evaluation(data, torch.eye(7)[data.labels].numpy(), trees)
    for scores in evaluation.tree_scores(2)["span_f1"].values():
        assert scores["model"] == 1
    assert list(LOGIC.accuracy_groups(SMALL, data)) == ["operations"]


def test_pairs_beyond_the_official_files_are_told_apart(pairs):
    deep = [pair for operations in (13, 14) for pair in longer(operations, 2, seed=1)]
    assert LOGIC.accuracy_groups(SMALL, Dataset(deep))["operations"].keys() == {"13", "14"}
    assert LOGIC.accuracy_groups(SMALL, Dataset([*pairs, *deep]))["operations"]["12"].sum() >= 4
    left_out = LOGIC.accuracy_groups(replace(SMALL, split="A"), Dataset(deep))[LEFT_OUT.format("A")]
    assert left_out.keys() == {"13–14"}


def test_only_what_a_split_leaves_out_is_counted_as_left_out():
    groups = LOGIC.accuracy_groups(replace(SMALL, split="A"), Dataset(longer(7, 20, seed=1)))
    left_out = groups[LEFT_OUT.format("A")]
    assert left_out["7–12"].tolist() == left_out["0–12"].tolist()
    assert not left_out["7–12"].all()


def test_pairs_left_out_are_short_up_to_the_six_operations_of_training():
    data = Dataset([*longer(6, 20, seed=1), *longer(7, 20, seed=1)])
    groups = LOGIC.accuracy_groups(replace(SMALL, split="C"), data)[LEFT_OUT.format("C")]
    assert groups["0–6"].tolist() == [*groups["0–12"][:20], *[False] * 20]
    assert groups["7–12"].tolist() == [*[False] * 20, *groups["0–12"][20:]]
    assert 0 < groups["0–6"].sum() < groups["0–12"].sum()


def test_a_run_is_tested_on_all_test_pairs_whatever_its_split():
    config = replace(SMALL, split="C", generated=400, seed=3)
    tests = [pair for group in generate(400, seed=3)[1] for pair in group]
    assert LOGIC.load_splits(config).test.pairs == tests
