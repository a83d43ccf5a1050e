"""From sentences to distances, trees and scores: padding, every binary tree, examples by hand."""

import numpy as np
import pytest
import torch

from onlstm.language_model import LanguageModel
from ordered_memory import span_f1
from ordered_memory.baseline_trees import baselines, right_branching
from ordered_memory.span_f1 import read_spans
from ordered_memory.trace import nodes_of
from ordered_memory.tree_recovery import DECODINGS, GREEDY_DECODINGS, greedy
from ordered_memory.trees import depth, leaves, spans
from tasks.language_model.config import LanguageModelConfig
from tasks.language_model.corpus import encode_text, load_corpus
from tasks.language_model.model import Trained
from tasks.language_model.reading import batched_distances, distances_and_words, distances_of_sentences
from tasks.language_model.vocabulary import Vocabulary
from tasks.parsing.evaluation import (
    LABELS,
    TreeSource,
    decode,
    evaluate,
    frequent_labels,
    label_recall,
    score,
)
from tasks.parsing.gold import generated_gold
from tasks.parsing.report import F1, _best_f1, _best_text, _traces
from tasks.parsing.treebank import TreebankSentence
from tasks.runs.errors import UserError

WORDS = ["<eos>", "<unk>", "N", *"abcdefg"]


def small_model(**options):
    return LanguageModel(len(WORDS), 6, 8, num_layers=2, chunk_size=2, **options).eval()


def gold(tree, labeled_spans=()):
    words = [f"w{i}" for i in leaves(tree)]
    return TreebankSentence(words, tree, list(labeled_spans), "here")


# ---- distances


def test_distances_are_those_of_the_words_own_steps():
    model = small_model()
    sentence = [3, 4, 5, 6]
    (found,) = batched_distances(model, [sentence])
    with torch.no_grad():
        expected = model(torch.tensor([[0, *sentence]]).T, distances=True).distances.forget[:, 1:, 0]
    assert found.shape == (2, 4)
    torch.testing.assert_close(found, expected)


def test_distances_take_no_logits(monkeypatch):
    model = small_model()
    monkeypatch.setattr(model, "_logits", None)
    assert [len(distances) for distances in batched_distances(model, [[3, 4], [5]])] == [2, 2]


@pytest.mark.parametrize("max_tokens", [1, 12, 10_000])
def test_batch_mates_and_padding_have_no_influence(max_tokens):
    model = small_model()
    rng = np.random.default_rng(0)
    sentences = [rng.integers(0, len(WORDS), size).tolist() for size in (3, 1, 9, 4, 9, 2, 17, 5)]
    together = batched_distances(model, sentences, max_tokens=max_tokens)
    for sentence, found in zip(sentences, together, strict=True):
        (alone,) = batched_distances(model, [sentence])
        assert found.shape == (2, len(sentence))
        torch.testing.assert_close(found, alone)


def test_a_bar_shows_every_batch_and_the_model_is_read_without_dropout(monkeypatch):
    model = small_model(weight_dropout=0.9, input_dropout=0.9).train()
    counts = []
    monkeypatch.setattr(
        "tasks.language_model.reading.progress_bar",
        lambda batches, **_: counts.extend(map(len, batches)) or batches,
    )
    first = batched_distances(model, [[3, 4], [5]], max_tokens=1)
    assert counts == [1, 1]
    for one, other in zip(first, batched_distances(model, [[3, 4], [5]]), strict=True):
        torch.testing.assert_close(one, other)


def trained(model, words=WORDS):
    return Trained(model, Vocabulary(words), LanguageModelConfig())


def test_words_are_spelt_as_the_vocabulary_has_them():
    model = small_model()
    one, other = distances_of_sentences(trained(model), [["A", "1.5", "Q"], ["a", "N", "<unk>"]], ["x", "y"])
    torch.testing.assert_close(one, other)


def test_unknown_words_need_an_entry_for_them():
    words = [word for word in WORDS if word != "<unk>"]
    with pytest.raises(UserError, match=r"^f\.mrg, line 2: 'q' is not in the vocabulary"):
        distances_of_sentences(
            trained(small_model(), words), [["a"], ["Q"]], ["f.mrg, line 1", "f.mrg, line 2"]
        )


def test_distances_that_are_not_numbers():
    model = small_model()
    with torch.no_grad():
        model.embedding.weight[3] = torch.nan
    with pytest.raises(UserError, match="line 2: expected finite distances, got NaN or infinity"):
        distances_of_sentences(trained(model), [["b"], ["a"]], ["line 1", "line 2"])


@pytest.mark.parametrize("layers", [[1, 2], [2], [2, 1]])
def test_layers_are_those_that_are_named(layers):
    model = trained(small_model())
    (of_all,) = distances_of_sentences(model, [["a", "b", "c"]], ["here"])
    found, _ = distances_and_words(model, ["a", "b", "c"], layers)
    torch.testing.assert_close(found, of_all[[layer - 1 for layer in layers]])
    left, right = torch.tensor([0.0, 1, 2, 3, 4]), torch.tensor([0.0, 4, 3, 2, 1])
    trees = evaluate([gold(right_branching(5))], [torch.stack([left, right])], layers, temperature=1.0).trees
    expected = {1: greedy(left, "unbiased"), 2: greedy(right, "unbiased")}
    assert expected[1] != expected[2]
    for layer in layers:
        assert trees[TreeSource(f"layer {layer}, unbiased", layer, "unbiased")] == [expected[layer]]


# ---- decoding


def test_sentences_of_all_lengths_are_decoded_in_their_order():
    sentences = [torch.randn(n) for n in (1, 6, 3, 25, 6, 2, 11)]
    for decoding in DECODINGS:
        found = decode(sentences, decoding)
        assert found == [decode([d], decoding)[0] for d in sentences]
        if decoding != "cky":
            assert found == [greedy(d, decoding) for d in sentences]


CKY = TreeSource("layer 1, cky", 1, "cky")


def test_the_temperature_reaches_cky():
    distances = [torch.randn(1, 12) for _ in range(5)]
    hot, cold = (decode([d[0] for d in distances], "cky", temperature) for temperature in (10.0, 0.01))
    assert hot != cold
    for temperature, expected in ((10.0, hot), (0.01, cold)):
        evaluation = evaluate([gold(right_branching(12))] * 5, distances, [1], temperature)
        assert evaluation.trees[CKY] == expected


@pytest.mark.parametrize("temperature", [10.0, 0.01])
def test_the_trees_that_a_page_shows_are_those_that_are_scored(temperature):
    distances = [torch.randn(3, 12) for _ in range(5)]
    evaluation = evaluate([gold(right_branching(12))] * 5, distances, [2, 3], temperature)
    traces = _traces(evaluation, temperature)
    assert traces
    for trace in traces:
        for layer, shown in zip((2, 3), trace["layers"], strict=True):
            for decoding in DECODINGS:
                nodes = shown["trees"][decoding]
                for node in nodes:
                    del node["in_true_tree"]
                scored = evaluation.trees[TreeSource(f"layer {layer}, {decoding}", layer, decoding)]
                assert nodes in [nodes_of(tree) for tree in scored]


# ---- scores


def test_recall_by_label_by_hand():
    sentences = [
        gold(((0, 1), (2, (3, 4))), [("NP", 0, 1), ("PP", 3, 4), ("VP", 2, 4), ("S", 0, 4)]),
        gold((0, (1, 2)), [("NP", 1, 2), ("VP", 0, 2), ("NP", 0, 2)]),
    ]
    predicted = [((0, 1), ((2, 3), 4)), ((0, 1), 2)]
    recall = label_recall([spans(tree) for tree in predicted], sentences)
    assert recall == {
        "ADJP": None,
        "ADVP": None,
        "NP": 2 / 3,
        "PP": 0.0,
        "INTJ": None,
        "VP": 1.0,
        "SBAR": None,
    }


def score_trees(predicted, sentences):
    gold_spans = read_spans([sentence.tree for sentence in sentences])
    return score(read_spans(predicted), [depth(tree) for tree in predicted], gold_spans, sentences)


def test_depths_by_hand():
    found = score_trees([((0, 1), 2), 0], [gold(((0, 1), 2)), gold(0)])
    assert found["depth"] == (2 + 0) / 2
    assert found["depth_of_words"] == ((2 + 2 + 1) / 3 + 0) / 2
    assert found["f1_corpus"] == found["f1_sentence"] == 1.0


def test_precision_and_recall_of_every_convention_by_hand():
    """Of the first tree one of two inner constituents is right, of the second one none of one."""
    found = score_trees([((0, 1), (2, 3)), ((0, 1), 2)], [gold(((0, 1), 2, 3)), gold((0, (1, 2)))])
    expected = {
        "corpus": (3 / 5, 3 / 4, 2 * 3 / (5 + 4)),
        "corpus_inner": (1 / 3, 1 / 2, 2 * 1 / (3 + 2)),
        "sentence": ((1 / 2 + 0) / 2, (1 + 0) / 2, (2 / 3 + 0) / 2),
    }
    for convention, values in expected.items():
        names = [f"{measure}_{convention}" for measure in ("precision", "recall", "f1")]
        assert [found[name] for name in names] == pytest.approx(values)


def test_labels_of_whole_sentences_are_not_among_the_frequent_ones():
    sentences = [
        gold(((0, 1), 2), [("NP", 0, 1), ("S", 0, 2), ("VP", 0, 2)]),
        gold((0, (1, 2)), [("NP", 1, 2), ("S", 0, 2)]),
        gold((0, (1, (2, 3))), [("PP", 2, 3), ("NP", 1, 3), ("S", 0, 3)]),
        gold((0, 1), [("FRAG", 0, 1)]),
    ]
    assert frequent_labels(sentences) == ["NP", "PP"]
    assert frequent_labels(sentences[1:2]) == ["NP"]


def test_every_layer_decoding_and_baseline_is_scored_on_all_and_on_short_sentences():
    sizes = (3, 12, 1, 10, 11)
    sentences = [gold(right_branching(n), [("NP", 0, n - 1)] if n > 1 else []) for n in sizes]
    distances = [torch.stack([torch.arange(n, 0, -1.0), torch.randn(n)]) for n in sizes]
    summary = evaluate(sentences, distances, [1, 2], 1.0).summary()
    assert summary["groups"]["all"]["sentences"] == 5
    assert summary["groups"]["short"] == {
        "sentences": 3,
        "of_one_word": 1,
        "words": 14,
        "labels": {label: 2 * (label == "NP") for label in LABELS},
    }
    rows = {row["name"]: row for row in summary["rows"]}
    assert len(rows) == 2 * len(DECODINGS) + 2 + 4
    for name in ("layer 1, prpn", "layer 1, unbiased", "right-branching"):
        assert rows[name]["all"]["f1_corpus"] == rows[name]["short"]["f1_sentence"] == 1.0
    assert rows["left-branching"]["all"]["f1_corpus"] < rows["balanced"]["all"]["f1_corpus"] < 1
    assert all(row["all"]["label_recall"]["NP"] == 1.0 for row in summary["rows"])
    not_of_the_model = {f"true tree, {decoding}" for decoding in GREEDY_DECODINGS} | baselines([]).keys()
    assert {name for name, row in rows.items() if row["layer"] is None} == not_of_the_model


def test_every_tree_is_read_once_for_all_groups_and_measures(monkeypatch):
    sentences = [gold(right_branching(n)) for n in (3, 12, 1)]
    evaluation = evaluate(
        sentences, [torch.randn(1, len(sentence.words)) for sentence in sentences], [1], 1.0
    )
    read = []
    monkeypatch.setattr(span_f1, "spans", lambda tree, name: read.append(name) or spans(tree, name))
    evaluation.summary()
    assert len(read) == len(set(read)) == len(sentences) * (1 + len(evaluation.trees))


def test_without_short_sentences_there_is_one_group():
    summary = evaluate([gold(right_branching(11))], [torch.randn(1, 11)], [1], 1.0).summary()
    assert list(summary["groups"]) == ["all"]


def test_the_page_names_the_best_trees_of_the_model_and_the_best_baseline():
    f1 = {
        ("layer 1, cky", 1, "cky"): (0.5, 0.1),
        ("layer 2, cky", 2, "cky"): (0.4, 0.9),
        ("true tree, prpn", None, "true tree"): (1.0, 1.0),
        ("left-branching", None, "left-branching"): (0.3, 0.2),
        ("balanced", None, "balanced"): (0.2, 0.3),
    }
    rows = [
        {"name": name, "layer": layer, "decoding": decoding, "all": {"f1_corpus": one, "f1_sentence": other}}
        for (name, layer, decoding), (one, other) in f1.items()
    ]
    text = _best_text({"rows": rows})
    assert text.startswith("F1 corpus 0.5000 with layer 1, cky: ")
    assert text.endswith(" Left-branching, the best baseline, has 0.3000.")


def test_the_best_f1_of_each_group_of_sentences_is_marked_without_the_true_trees():
    rows = [
        {"name": name, "decoding": decoding, "all": dict.fromkeys(F1, one), "short": dict.fromkeys(F1, other)}
        for name, decoding, one, other in (
            ("layer 1, cky", "cky", 0.5, 0.6),
            ("balanced", "balanced", 0.4, 0.7),
            ("true tree, prpn", "true tree", 1.0, 1.0),
        )
    ]
    assert _best_f1(rows, "all") == {(0, 1), (0, 2), (0, 3)}
    assert _best_f1(rows, "short") == {(1, 1), (1, 2), (1, 3)}


# ---- sentences to score


def test_a_model_of_drawn_sentences_is_tested_on_its_own_test_part():
    config = LanguageModelConfig(sentences=200, seed=3)
    corpus = load_corpus(config)
    generated = generated_gold(config)
    assert len(generated.sentences) == 20
    assert not generated.published
    text = encode_text([sentence.words for sentence in generated.sentences], corpus.vocabulary, "drawn")
    assert text.tolist() == corpus.test.tolist()
    for sentence in generated.sentences:
        assert leaves(sentence.tree) == list(range(len(sentence.words)))
        assert ("S", 0, len(sentence.words) - 1) in sentence.labeled_spans
