"""Sentiment as a task: its splits, first models, learning rates and groups of examples."""

from dataclasses import replace

import numpy as np
import pytest

from ordered_memory.baseline_trees import right_branching
from tasks.classifiers.evaluation import Evaluation
from tasks.runs.errors import UserError
from tasks.sst.config import SentimentConfig
from tasks.sst.dataset import PhraseData
from tasks.sst.grammar import generate_treebank
from tasks.sst.task import SST, load_treebank
from tasks.sst.treebank import LabeledTree, Treebank, sentences

FIVE = SentimentConfig(classes=5)


def data_of(*texts):
    """Sentences of one or two words, all with the same label."""
    trees = []
    for text in texts:
        words = tuple(text.split())
        tree = (0, 1) if len(words) > 1 else 0
        trees.append(LabeledTree(words, tree, {(0, len(words) - 1): 3}))
    return PhraseData(trees, sentences(trees, 5))


def right_on_good_alone(nodes):
    predicted = [3 if nodes.words_of(i) == ["good"] else 0 for i in range(len(nodes.labels))]
    return Evaluation(nodes, np.eye(5)[predicted], None)


def test_the_accuracy_on_nodes_counts_equal_phrases_as_often_as_they_occur():
    data = data_of("good", "good", "good", "fine")
    assert SST.extra_accuracies(FIVE, data, right_on_good_alone)["nodes"]["all"] == [0.75, 4]


def test_an_encoder_reads_words_that_differ_in_case_as_two():
    config = replace(FIVE, encoder="bert")
    nodes = SST.extra_accuracies(config, data_of("Good", "good"), right_on_good_alone)["nodes"]
    assert nodes["all"] == [0.5, 2]


@pytest.mark.parametrize(
    ("options", "count"), [({}, 6), ({"encoder": "bert"}, 11), ({"model": "gold-tree-lstm"}, 7)]
)
def test_equal_phrases_are_one_example_unless_the_model_can_tell_them_apart(monkeypatch, options, count):
    """In the three sentences, two have equal trees and two equal words, but for the case."""
    left = ((0, 1), 2), dict.fromkeys([(0, 0), (1, 1), (0, 1), (2, 2), (0, 2)], 3)
    right = (0, (1, 2)), dict.fromkeys([(0, 0), (1, 1), (2, 2), (1, 2), (0, 2)], 3)
    trees = [
        LabeledTree(tuple(words), *tree) for words, tree in (("abc", left), ("ABC", left), ("ABC", right))
    ]
    monkeypatch.setattr("tasks.sst.task.load_treebank", lambda config: Treebank(trees, trees, trees))
    config = replace(FIVE, phrases="distinct", **options)
    splits = SST.load_splits(config)
    evaluated = []

    def evaluate_on(data):
        evaluated.append(data)
        return right_on_good_alone(data)

    assert SST.extra_accuracies(config, splits.test, evaluate_on)["nodes"]["all"][1] == 15
    assert len(splits.train.examples) == len(evaluated[0].examples) == count


def test_the_accuracy_on_nodes_is_told_by_their_number_of_words():
    lengths = (1, 1, 2, 5, 6, 10, 11, 30)
    trees = [
        LabeledTree(tuple("w" * i for i in range(1, n + 1)), right_branching(n), {(0, n - 1): 3})
        for n in lengths
    ]
    data = PhraseData(trees, sentences(trees, 5))
    nodes = SST.extra_accuracies(FIVE, data, right_on_good_alone)["nodes"]
    counts = {name: count for name, (_, count) in nodes.items()}
    assert counts == {"all": 8, "words": 2, "2–5 words": 2, "6–10 words": 2, "over 10 words": 2}


def test_trees_over_one_word_are_not_scored():
    data = data_of("good", "fine film")
    evaluation = Evaluation(data, np.eye(5)[data.labels], [(0,), ((0, 1),)])
    assert evaluation.tree_scores(SST.min_words)["scored_trees"] == 1


def test_a_word_that_occurs_once_has_the_vector_of_unknown_ones():
    data = data_of("good film", "Good")
    config = replace(FIVE, vectors=("none",), embedding_size=4, slot_size=4, num_slots=2)
    other = data_of("film film")
    assert SST.build_initial_model(config, (data, other, other)).embedding.vocabulary == ["good"]


def test_each_part_of_the_treebank_has_its_own_use(monkeypatch):
    treebank = generate_treebank(60, seed=1)
    monkeypatch.setattr("tasks.sst.task.load_treebank", lambda config: treebank)
    counts = {}
    for which in ("sentences", "all", "distinct"):
        splits = SST.load_splits(replace(FIVE, phrases=which))
        assert tuple(part.trees for part in splits) == tuple(treebank)
        assert [part.split for part in splits[1:]] == ["validation", "test"]
        for part in splits[1:]:
            assert part.examples == sentences(part.trees, 5)
        counts[which] = len(splits.train.examples)
    nodes = sum(len(tree.labels) for tree in treebank.train)
    assert counts["sentences"] == len(treebank.train) < counts["distinct"] < counts["all"] == nodes


def test_a_negation_may_have_a_capital_letter():
    groups = SST.accuracy_groups(FIVE, data_of("Not good", "fine", "But why"))["sentences with"]
    assert groups["a negation"].tolist() == [True, False, False]
    assert groups["but"].tolist() == [False, False, True]


def test_only_an_encoder_that_is_trained_has_a_rate_of_its_own():
    config = SentimentConfig(encoder="bert", fine_tune=True, encoder_learning_rate=1e-5)
    assert SST.learning_rates(config) == {"embedding": 1e-5}
    assert SST.learning_rates(replace(config, fine_tune=False)) == {}


def test_without_test_data_the_results_are_said_to_be_of_validation(monkeypatch, capsys):
    treebank = generate_treebank(20, seed=1)._replace(test=None)
    monkeypatch.setattr("tasks.sst.task.load_treebank", lambda config: treebank)
    assert SST.load_splits(FIVE).test.split == "validation"
    assert "the test is on the validation data" in capsys.readouterr().out


@pytest.mark.parametrize("given", [False, True])
def test_the_treebank_is_downloaded_unless_a_directory_is_given(given, monkeypatch, tmp_path):
    fetched, own = tmp_path / "fetched", tmp_path / "own"
    monkeypatch.setattr("tasks.sst.task.fetch", lambda: fetched)
    with pytest.raises(UserError, match=str(own if given else fetched)):
        load_treebank(SentimentConfig(data_dir=own if given else None))
