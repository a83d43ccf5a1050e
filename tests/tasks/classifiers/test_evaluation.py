"""What is counted of the predictions and of the trees of a classifier."""

import numpy as np
import pytest
import torch

from ordered_memory.baseline_trees import left_branching, right_branching
from ordered_memory.brackets import from_brackets
from ordered_memory.span_f1 import CONVENTIONS, span_f1
from ordered_memory.tree_recovery import from_attention, from_distances
from ordered_memory.trees import keep_leaves
from tasks.classifiers.encoded import Encoded
from tasks.classifiers.evaluation import Evaluation, by_length, evaluate
from tasks.classifiers.tree_reading import read_other_trees, read_trees
from tasks.listops.config import ListOpsConfig
from tasks.listops.data import Dataset as Expressions
from tasks.listops.model import ListOpsModel
from tasks.logic.config import LogicConfig
from tasks.logic.data import Dataset as Pairs
from tasks.logic.model import LogicModel
from tasks.logic.valid_trees import valid_spans
from tasks.reporting.induced_trees import MODEL, score_trees, with_reading
from tests.tasks.classifiers.tiny import TINY


def test_a_model_is_evaluated_without_dropout_in_the_order_of_the_data():
    data = Expressions.from_texts(["[MIN 1 2 3 ]", "4", "[MAX 5 [MIN 6 7 ] ]", "[SM 8 9 ]"])
    config = ListOpsConfig(embedding_size=4, slot_size=4, num_slots=3, input_dropout=0.9, output_dropout=0.9)
    model = ListOpsModel(config).train()
    probabilities = evaluate(model, data, batch_size=2).probabilities
    assert not model.training
    for index, row in enumerate(probabilities):
        alone = model(data.batch([index])).logits.detach().double().softmax(-1)
        np.testing.assert_allclose(row, alone[0], rtol=1e-4)


def test_each_length_is_in_one_group():
    lengths = np.arange(1, 26)
    groups = by_length(lengths, [10, 20])
    bounds = {name: (lengths[mask].min(), lengths[mask].max()) for name, mask in groups.items()}
    assert bounds == {"1–10": (1, 10), "11–20": (11, 20), "≥ 21": (21, 25)}
    assert sum(mask.astype(int) for mask in groups.values()).tolist() == [1] * 25


def test_true_classes_are_the_rows_of_a_confusion_matrix():
    data = Expressions.from_texts(["0", "1", "1", "2"])
    evaluation = Evaluation(data, np.eye(3)[[0, 2, 2, 1]], None)
    assert evaluation.confusion(3) == [[1, 0, 0], [0, 0, 2], [0, 1, 0]]
    assert evaluation.correct.tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("name", "make"), [("left-branching", left_branching), ("right-branching", right_branching)]
)
def test_trees_and_baselines_are_compared_with_the_true_trees(name, make):
    texts = [("( a ( or b ) )", "( ( not a ) ( and ( not b ) ) )"), ("( ( a ( or b ) ) ( and c ) )", "a")]
    data = Pairs.from_texts(texts)
    trees = [
        tuple(make(len(sentence.words)) for sentence in data.sentences(index)) for index in range(len(texts))
    ]
    for scores in Evaluation(data, np.eye(7)[data.labels], trees).tree_scores(2)["span_f1"].values():
        assert scores["model"] == pytest.approx(scores[name])
        assert scores["left-branching"] < scores["right-branching"] < 1


def test_sentences_of_as_many_words_as_are_needed_are_scored_and_counted():
    data = Pairs.from_texts([("( not a )", "( not b )"), ("( not a )", "c")])
    evaluation = Evaluation(data, np.eye(7)[data.labels], [((0, 1), (0, 1)), ((0, 1), 0)])
    assert [evaluation.tree_scores(words)["scored_trees"] for words in (1, 2, 3)] == [4, 3, 0]
    assert evaluation.tree_scores(2)["span_f1"]
    assert evaluation.tree_scores(3)["span_f1"] == {}


READINGS = [
    ("onlstm", {}, {"": 0, "unbiased": 0}),
    ("onlstm", {"num_layers": 2}, {"": 1, "unbiased": 1, "layer 1": 0, "layer 1, unbiased": 0}),
    ("onlstm", {"bidirectional": True}, {"": 0, "unbiased": 0, "backward": 1, "backward, unbiased": 1}),
    (
        "onlstm",
        {"bidirectional": True, "num_layers": 2},
        {
            "": 2,
            "unbiased": 2,
            "layer 1": 0,
            "layer 1, unbiased": 0,
            "backward": 3,
            "backward, unbiased": 3,
            "backward, layer 1": 1,
            "backward, layer 1, unbiased": 1,
        },
    ),
    ("ordered-memory", {}, {"": 0}),
    ("ordered-memory", {"bidirectional": True}, {"": 0, "backward": 1}),
]
"""The model, its options, and for each way to read trees the row of the layer's distances or attention."""


@pytest.mark.parametrize(("name", "options", "readings"), READINGS)
def test_trees_are_read_in_each_way_and_from_each_direction(name, options, readings):
    data = Pairs.from_texts(
        [
            ("( ( not a ) ( or ( b ( and c ) ) ) )", "( a ( or b ) )"),
            ("d", "( ( e ( and ( not f ) ) ) ( or a ) )"),
        ]
    )
    model = LogicModel(LogicConfig(embedding_size=6, **TINY | {"model": name} | options))
    evaluation = evaluate(model, data, batch_size=1)
    outputs = []
    model.encoder.register_forward_hook(lambda layer, inputs, output: outputs.append(output))
    for index in range(2):
        model(data.batch([index]))
    assert ["", *evaluation.other_trees] == list(readings)
    results = evaluation.tree_scores(2, valid_spans)
    for reading, number in readings.items():
        direction = "backward" if "backward" in reading else "forward"
        decoding = "unbiased" if "unbiased" in reading else "prpn"
        found = evaluation.other_trees[reading] if reading else evaluation.trees
        scored, true = [], []
        for index, output in enumerate(outputs):
            for place, sentence in enumerate(data.sentences(index)):
                entries = slice(place, place + 1), slice(len(sentence.tokens))
                if name == "ordered-memory":
                    attention = output.attention if "bidirectional" in options else output.attention[None]
                    attention = attention[number, *entries]
                    [tree] = from_attention(attention, batch_first=True, direction=direction)
                else:
                    distances = output[2].forget[number][entries]
                    [tree] = from_distances(
                        distances, decoding=decoding, batch_first=True, direction=direction
                    )
                assert found[index][place] == keep_leaves(tree, sentence.positions)
                if len(sentence.words) > 1:
                    scored.append(found[index][place])
                    true.append(sentence.tree)
        for convention in CONVENTIONS:
            score = span_f1(scored, true, **convention._asdict())
            assert results["span_f1"][str(convention)][with_reading(MODEL, reading)] == score.f1
        assert with_reading(MODEL, reading) in results["valid_trees"]
        for row, trees in zip(evaluation.rows(model.classes), found, strict=True):
            texts = row["other_trees"][reading] if reading else row["trees"]
            assert tuple(from_brackets(text)[0] for text in texts) == trees


@pytest.mark.parametrize(
    ("other", "tree"),
    [({"merges": torch.tensor([[1, 0]])}, (0, (1, 2))), ({"attention": torch.eye(3)[None]}, ((0, 1), 2))],
)
@pytest.mark.parametrize("distances", [[9.0, 5.0, 1.0], [9.0, 1.0, 5.0]])
def test_trees_are_read_from_merges_or_attention_before_distances(other, tree, distances):
    encoded = Encoded(torch.zeros(1, 2), distances=torch.tensor([distances]), **other)
    assert encoded.distances_of_trees == {}
    assert read_trees(encoded, torch.tensor([3])) == [tree]
    both = encoded._replace(backward_distances=encoded.distances)
    assert read_other_trees(both, torch.tensor([3])) == {}


def test_true_trees_need_not_be_binary():
    """Of two spans one is right; without the whole sentence there is nothing to find."""
    corpus_level, sentence_level = score_trees({"model": [((0, 1), 2)]}, [(0, 1, 2)]).values()
    assert (corpus_level["model"], sentence_level["model"]) == (pytest.approx(2 / 3), 0.0)


def test_valid_trees_of_a_model_and_of_baselines_by_hand():
    """Trees over `a and b or c` are valid from the left, trees over `a or b and c` from the right."""
    left, right, negation = "( ( a ( and b ) ) ( or c ) )", "( a ( or ( b ( and c ) ) ) )", "( not a )"
    data = Pairs.from_texts([(left, right), (left, negation), ("a", "b")])
    wrong = right_branching(5), left_branching(5)
    trees = [wrong, (wrong[0], (0, 1)), (0, 0)]
    scores = Evaluation(data, np.eye(7)[data.labels], trees).tree_scores(2, valid_spans)
    expected = {"model": 1 / 4, "left-branching": 3 / 4, "right-branching": 2 / 4, "balanced": 3 / 4}
    assert {name: scores["valid_trees"][name] for name in expected} == expected
