"""Traces of examples: what the model reads, what is known of the data, and nothing that is not."""

import numpy as np
import pytest
import torch

from ordered_memory.trace import induced_trees
from ordered_memory.tree_recovery import shift_reduce
from ordered_memory.trees import keep_leaves, spans
from tasks.classifiers.evaluation import evaluate, predict_example
from tasks.classifiers.traces import example_traces
from tasks.classifiers.word_embedding import WordEmbedding
from tasks.listops.config import ListOpsConfig
from tasks.listops.data import Dataset
from tasks.listops.model import ListOpsModel
from tasks.logic.config import LogicConfig
from tasks.logic.formulas import RELATIONS
from tasks.logic.model import LogicModel
from tasks.runs.errors import UserError
from tasks.sst.config import SentimentConfig
from tasks.sst.dataset import PhraseData
from tasks.sst.grammar import generate
from tasks.sst.model import SentimentModel
from tasks.sst.treebank import phrases, sentences
from tests.tasks.classifiers.tiny import TINY
from tests.traces import tree_of

EXPRESSION = "[MAX 2 9 [MIN 4 7 ] 0 ]"


def listops_model(name):
    return ListOpsModel(ListOpsConfig(embedding_size=6, **TINY | {"model": name}))


def test_the_tree_is_that_of_algorithm_2_and_the_answer_that_of_the_model():
    model, data = listops_model("ordered-memory"), Dataset.from_texts(["3", EXPRESSION])
    model.set_num_slots(7)
    [trace] = example_traces(model, data, 1, example=3)
    prediction = model.eval()(data.batch([1]))
    pointers = prediction.encoded.attention[0].argmax(-1).tolist()
    assert tree_of(trace["nodes"], 9) == shift_reduce(pointers, 7)
    assert trace["answer"]["true"] == 9
    expected = prediction.logits.softmax(-1)[0].tolist()
    assert trace["answer"]["probabilities"] == pytest.approx(expected, abs=1e-6)
    assert tree_of(trace["true_nodes"], 9) == data.sentences(1)[0].tree
    assert trace["example"] == 3


def test_a_tree_of_joined_neighbours_or_only_the_true_one():
    data = Dataset.from_texts([EXPRESSION], include_trees=True)
    for name in ("gumbel-tree-lstm", "crvnn"):
        [trace] = example_traces(listops_model(name), data, 0)
        assert len(trace["nodes"]) == 8
        assert "memory" not in trace
    for name in ("lstm", "gold-tree-cell"):
        [trace] = example_traces(listops_model(name), data, 0)
        assert "nodes" not in trace
        assert tree_of(trace["true_nodes"], 9) == data.sentences(0)[0].tree


@pytest.mark.parametrize(
    "options",
    [{}, {"bidirectional": True}, {"num_layers": 3}, {"bidirectional": True, "num_layers": 2}],
)
def test_on_lstm_has_the_distances_and_trees_of_all_layers_and_directions(options):
    model = ListOpsModel(ListOpsConfig(embedding_size=6, **TINY | {"model": "onlstm"} | options))
    data = Dataset.from_texts(["3", EXPRESSION], include_trees=True)
    traces = example_traces(model, data, 1)
    directions = ["forward", "backward"] if "bidirectional" in options else ["forward"]
    assert [trace["direction"] for trace in traces] == directions
    embedded = model.embedding(data.batch([1]).tokens)
    _, _, distances = model.encoder(embedded, distances=True)
    expected = distances.forget[:, 0].unflatten(0, (-1, len(directions)))
    evaluation = evaluate(model, data)
    unseen = {"": evaluation.trees, **evaluation.other_trees}
    for index, trace in enumerate(traces):
        last = trace["layers"][-1]["name"]
        assert trace["default_tree"] == {"layer": last, "decoding": "prpn"}
        assert [layer["name"] for layer in trace["layers"]] == [
            f"layer {number}" for number in range(1, model.config.num_layers + 1)
        ]
        for layer, row in zip(trace["layers"], expected[:, index], strict=True):
            assert layer["distances"] == pytest.approx(row.tolist(), abs=1e-6)
            assert list(layer["trees"]) == ["prpn", "unbiased"]
            for decoding, nodes in layer["trees"].items():
                parts = {"backward": index, layer["name"]: layer["name"] != last}
                parts["unbiased"] = decoding != "prpn"
                reading = ", ".join(part for part, is_named in parts.items() if is_named)
                assert tree_of(nodes, 9) == unseen.pop(reading)[1][0]
                assert {node["in_true_tree"] for node in nodes} <= {True, False}
    assert not unseen


def test_two_directions_have_a_trace_each_of_each_formula():
    options = {"model": "ordered-memory", "bidirectional": True}
    model = LogicModel(LogicConfig(embedding_size=6, **TINY | options))
    data = LogicModel.read_text("( ( not a ) ( or b ) )", "( c ( and a ) )")
    traces = example_traces(model, data, 0)
    assert [(trace["caption"], trace["direction"]) for trace in traces] == [
        ("left formula, forward direction", "forward"),
        ("left formula, backward direction", "backward"),
        ("right formula, forward direction", "forward"),
        ("right formula, backward direction", "backward"),
    ]
    evaluation = evaluate(model, data)
    forward, backward = evaluation.trees[0], evaluation.other_trees["backward"][0]
    trees = [forward[0], backward[0], forward[1], backward[1]]
    for trace, tree in zip(traces, trees, strict=True):
        [nodes] = induced_trees(trace)
        assert keep_leaves(tree_of(nodes, len(trace["tokens"])), trace["words"]) == tree
        assert "true_nodes" in trace


@pytest.mark.parametrize("name", ["ordered-memory", "gumbel-tree-lstm", "onlstm"])
def test_the_two_formulas_of_a_pair_have_words_between_their_parentheses(name):
    model = LogicModel(LogicConfig(embedding_size=6, **TINY | {"model": name}))
    data = LogicModel.read_text("( ( not a ) ( or b ) )", "( c ( and a ) )")
    traces = example_traces(model, data, 0)
    trees = predict_example(model, data, 0).trees
    assert [trace["caption"] for trace in traces] == ["left formula", "right formula"]
    for trace, sentence, tree in zip(traces, data.sentences(0), trees, strict=True):
        words = trace["words"]
        assert [trace["tokens"][word] for word in words] == sentence.words
        assert not {"(", ")"} & set(sentence.words)
        nodes = induced_trees(trace)[0]
        assert len(induced_trees(trace)) == (2 if name == "onlstm" else 1)
        assert keep_leaves(tree_of(nodes, len(trace["tokens"])), words) == tree
        true = {(words[first], words[last]) for first, last in spans(sentence.tree)}
        assert {(node["first"], node["last"]) for node in trace["true_nodes"]} == true
        found = any(node["in_true_tree"] is False for node in nodes)
        assert found == (set(spans(tree)) != set(spans(sentence.tree)))
        assert RELATIONS[trace["answer"]["true"]] == "#"


def sentiment_model(name="ordered-memory", **options):
    trees = generate(3, seed=1)
    words = sorted({word.lower() for tree in trees for word in tree.words})
    config = SentimentConfig(vectors=("none",), classes=5, **TINY | {"model": name} | options)
    return SentimentModel(config, WordEmbedding(words, 6, learned=True)), trees


@pytest.mark.parametrize("num_slots", [None, 1, 2])
def test_the_root_has_the_value_of_the_answer_with_any_number_of_slots(num_slots):
    model, trees = sentiment_model()
    data = PhraseData(trees, sentences(trees, 5))
    model.set_num_slots(num_slots)
    [trace] = example_traces(model, data, 2)
    root = next(
        node for node in trace["nodes"] if (node["first"], node["last"]) == (0, len(trees[2].words) - 1)
    )
    expected = np.linspace(-1, 1, 5) @ trace["answer"]["probabilities"]
    assert root["value"] == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize(
    ("name", "options", "directions", "readings"),
    [
        ("ordered-memory", {}, 1, 1),
        ("ordered-memory", {"bidirectional": True}, 2, 1),
        ("onlstm", {}, 1, 2),
        ("onlstm", {"bidirectional": True, "num_layers": 2}, 2, 4),
    ],
)
def test_every_node_has_the_value_of_its_words(name, options, directions, readings):
    model, trees = sentiment_model(name, **options)
    data = PhraseData(trees, sentences(trees, 5))
    traces = example_traces(model, data, 2)
    [sentence] = data.sentences(2)
    size = len(sentence.words)
    assert len(traces) == directions
    for trace in traces:
        induced = induced_trees(trace)
        assert len(induced) == readings
        for nodes in induced:
            values = model.node_values(sentence, tree_of(nodes, size))
            for node in nodes:
                assert node["value"] == pytest.approx(values[node["first"], node["last"]], abs=6e-4)
        for node in trace["true_nodes"]:
            assert node["value"] == (trees[2].labels[node["first"], node["last"]] - 2) / 2
        for place in range(size):
            assert trace["token_values"][place] == pytest.approx(values[place, place], abs=6e-4)
            assert trace["true_token_values"][place] == (trees[2].labels[place, place] - 2) / 2
        assert trace["answer"]["true"] == trees[2].label


@pytest.mark.parametrize("name", ["lstm", "gold-tree-lstm"])
def test_without_an_induced_tree_the_true_one_has_the_values_of_the_model(name):
    model, trees = sentiment_model(name)
    data = PhraseData(trees, sentences(trees, 5), include_trees=name != "lstm")
    [trace] = example_traces(model, data, 2)
    nodes = PhraseData(trees, phrases(trees, 5), include_trees=name != "lstm")
    index_of = {(one.first, one.last): i for i, one in enumerate(nodes.examples) if one.sentence == 2}
    for node in trace["true_nodes"]:
        span = node["first"], node["last"]
        assert node["value"] == (trees[2].labels[span] - 2) / 2
        alone = predict_example(model, nodes, index_of[span]).probabilities
        assert node["model_value"] == pytest.approx(float(alone @ torch.linspace(-1, 1, 5)), abs=6e-4)
    probabilities = torch.tensor(trace["answer"]["probabilities"])
    root = float(probabilities @ torch.linspace(-1, 1, 5))
    assert trace["true_nodes"][-1]["model_value"] == pytest.approx(root, abs=6e-4)


@pytest.mark.parametrize("name", ["ordered-memory", "onlstm", "lstm"])
def test_of_a_typed_sentence_neither_tree_nor_answer_is_made_up(name):
    model, _ = sentiment_model(name)
    data = SentimentModel.read_text("neither bad nor dull")
    [trace] = example_traces(model, data, 0)
    assert trace["answer"]["true"] is None
    assert not {"true_nodes", "true_token_values"} & trace.keys()
    assert all("in_true_tree" not in node for nodes in induced_trees(trace) for node in nodes)
    assert len(trace["token_values"]) == 4


def test_a_model_along_true_trees_does_not_read_a_sentence_without_one():
    model, _ = sentiment_model("gold-tree-cell")
    with pytest.raises(UserError, match="needs the true tree of its input, which is not known here"):
        model.answer("neither bad nor dull")


def test_more_slots_than_the_model_has_are_traced():
    model = listops_model("ordered-memory")
    model.set_num_slots(9)
    [trace] = example_traces(model, Dataset.from_texts([EXPRESSION]), 0)
    assert trace["memory"]["num_slots"] == 9
    assert torch.tensor(trace["memory"]["attention"]).shape == (9, 9)
