"""Compare induced trees with true trees: span F1, recall by label, depth; with baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ordered_memory.brackets import to_brackets
from ordered_memory.span_f1 import (
    CORPUS_LEVEL,
    SENTENCE_LEVEL,
    Convention,
    TreeSpans,
    baselines,
    read_spans,
    score_spans,
)
from ordered_memory.tree_recovery import DECODINGS, GREEDY_DECODINGS, Decoding, from_distances, to_distances
from ordered_memory.trees import Span, Tree, depth
from tasks.parsing.treebank import TreebankSentence

LABELS = ("ADJP", "ADVP", "NP", "PP", "INTJ", "VP", "SBAR")
"""The labels of the Penn Treebank whose recall is shown."""
F1_CONVENTIONS = {
    "corpus": CORPUS_LEVEL,
    "corpus_inner": Convention("corpus", whole_sentence=False),
    "sentence": SENTENCE_LEVEL,
}
"""Three ways to compute F1. `corpus`: as in the other tasks. `corpus_inner`: the same, without the
whole-sentence span. `sentence`: as in ON-LSTM's paper."""
MEASURES = ("f1", "precision", "recall")
SHORT = 10
"""Maximum number of words of a short sentence, as in WSJ10."""


class TreeSource(NamedTuple):
    """Where a tree comes from.

    Args:
        name: shown in tables.
        layer: layer of the model, counted from 1; None if the tree is not the model's.
        decoding: how distances were decoded, the name of the baseline, "true tree" for distances computed
            from the true trees, or "file" for the trees of a file.
    """

    name: str
    layer: int | None
    decoding: str


@dataclass
class Evaluation:
    """The trees of the model and of the baselines.

    Args:
        sentences: sentences with the true trees.
        trees: one tree per sentence, for each source.
        distances: syntactic distances of each sentence, (L, words); empty if the trees are from a file.
        labels: the labels whose recall is computed.
    """

    sentences: Sequence[TreebankSentence]
    trees: dict[TreeSource, list[Tree]]
    distances: Sequence[Tensor]
    labels: Sequence[str] = LABELS

    def groups(self) -> dict[str, list[int]]:
        """Indices of the sentences in each group: all, and the short ones if there are any."""
        all_indices = list(range(len(self.sentences)))
        short_indices = [i for i in all_indices if len(self.sentences[i].words) <= SHORT]
        return {"all": all_indices, "short": short_indices} if short_indices else {"all": all_indices}

    def rows(self) -> Iterator[dict[str, Any]]:
        """For each sentence its words, true tree, distances of all layers and trees, as JSON values."""
        model_trees = {source: trees for source, trees in self.trees.items() if source.layer is not None}
        for i, sentence in enumerate(self.sentences):
            yield {
                "where": sentence.where,
                "words": sentence.words,
                "true_tree": to_brackets(sentence.tree, sentence.words),
                "distances": [[round(d, 6) for d in row] for row in self.distances[i].tolist()],
                "trees": {
                    source.name: to_brackets(trees[i], sentence.words)
                    for source, trees in model_trees.items()
                },
            }

    def summary(self) -> dict[str, Any]:
        """All results as JSON values: the groups, and one row for each source."""
        groups = self.groups()
        gold = read_spans([sentence.tree for sentence in self.sentences], "true trees")
        rows = []
        for source, trees in self.trees.items():
            predicted = read_spans(trees, source.name)  # once for all groups and measures
            depths = [depth(tree) for tree in trees]
            scores = {
                name: score(
                    [predicted[i] for i in indices],
                    [depths[i] for i in indices],
                    [gold[i] for i in indices],
                    [self.sentences[i] for i in indices],
                    self.labels,
                )
                for name, indices in groups.items()
            }
            rows.append({"name": source.name, "layer": source.layer, "decoding": source.decoding} | scores)
        descriptions = {
            name: describe([self.sentences[i] for i in indices], self.labels)
            for name, indices in groups.items()
        }
        return {"groups": descriptions, "rows": rows}


def evaluate(
    sentences: Sequence[TreebankSentence],
    distances: Sequence[Tensor],
    layers: Sequence[int],
    temperature: float,
    labels: Sequence[str] = LABELS,
) -> Evaluation:
    """Decode the distances with all algorithms.

    Args:
        sentences: sentences with the true trees.
        distances: distances of each sentence, (L, words).
        layers: the layers to evaluate, counted from 1.
        temperature: temperature of CKY, in the unit of the distances.
        labels: the labels whose recall is computed.
    Returns:
        The trees of each layer and algorithm, of distances computed from the true trees, and of the
        baselines.
    """
    trees: dict[TreeSource, list[Tree]] = {}
    for layer in layers:
        layer_distances = [d[layer - 1] for d in distances]
        for decoding in DECODINGS:
            source = TreeSource(f"layer {layer}, {decoding}", layer, decoding)
            trees[source] = decode(layer_distances, decoding, temperature)
    true_distances = [to_distances(sentence.tree) for sentence in sentences]
    for decoding in GREEDY_DECODINGS:
        trees[TreeSource(f"true tree, {decoding}", None, "true tree")] = decode(true_distances, decoding)
    return Evaluation(sentences, trees | baseline_trees(sentences), distances, labels)


def baseline_trees(sentences: Sequence[TreebankSentence]) -> dict[TreeSource, list[Tree]]:
    """The baselines.

    Args:
        sentences: whose lengths they have.
    Returns:
        For each baseline one tree per sentence.
    """
    trees_by_name = baselines([len(sentence.words) for sentence in sentences])
    return {TreeSource(name, None, name): trees for name, trees in trees_by_name.items()}


def decode(distances: Sequence[Tensor], decoding: Decoding, temperature: float = 1.0) -> list[Tree]:
    """Apply `tree_recovery.from_distances` to sentences that are not padded.

    Args:
        distances: d of each sentence, (words,).
        decoding: the algorithm.
        temperature: temperature of CKY, in the unit of the distances.
    Returns:
        A binary tree for each sentence.
    """
    padded = pad_sequence(list(distances), batch_first=True)
    lengths = [len(d) for d in distances]
    return from_distances(padded, lengths, decoding=decoding, temperature=temperature, batch_first=True)


def frequent_labels(sentences: Sequence[TreebankSentence]) -> list[str]:
    """List the most frequent labels of constituents below the whole sentence, as many as `LABELS`.

    Args:
        sentences: sentences with labeled spans, each of two or more words.
    """
    counts = Counter(
        label
        for sentence in sentences
        for label, first, last in sentence.labeled_spans
        if last - first + 1 < len(sentence.words)
    )
    return [label for label, _ in counts.most_common(len(LABELS))]


def describe(sentences: Sequence[TreebankSentence], labels: Sequence[str] = LABELS) -> dict[str, Any]:
    """Count sentences, words and labeled constituents, as JSON values.

    Args:
        sentences: the scored sentences.
        labels: the labels to count.
    """
    lengths = [len(sentence.words) for sentence in sentences]
    counts = Counter(label for sentence in sentences for label, _, _ in sentence.labeled_spans)
    return {
        "sentences": len(sentences),
        "of_one_word": lengths.count(1),
        "words": sum(lengths),
        "labels": {label: counts[label] for label in labels},
    }


def score(
    predicted: Sequence[TreeSpans],
    depths: Sequence[int],
    gold: Sequence[TreeSpans],
    sentences: Sequence[TreebankSentence],
    labels: Sequence[str] = LABELS,
) -> dict[str, Any]:
    """Compute the scores of trees, as JSON values.

    Args:
        predicted: the spans of one tree for each sentence.
        depths: the depths of these trees.
        gold: the spans of the true trees.
        sentences: the sentences, with labeled spans.
        labels: the labels whose recall is computed.
    Returns:
        F1, precision and recall under each of `F1_CONVENTIONS`, recall by label, the mean depth of the trees,
        and the mean over sentences of the mean depth of their words, as in the authors' evaluation.
    """
    scores = {name: score_spans(predicted, gold, convention) for name, convention in F1_CONVENTIONS.items()}
    return {
        **{f"{measure}_{name}": getattr(scores[name], measure) for measure in MEASURES for name in scores},
        "label_recall": label_recall([tree.spans for tree in predicted], sentences, labels),
        "depth": sum(depths) / len(depths),
        "depth_of_words": sum(map(_word_depth, predicted)) / len(predicted),
    }


def label_recall(
    predicted: Sequence[Collection[Span]],
    sentences: Sequence[TreebankSentence],
    labels: Sequence[str] = LABELS,
) -> dict[str, float | None]:
    """Compute the fraction of labeled constituents whose span is predicted.

    Constituents of at least two words count, the whole sentence included, but duplicates with the same label
    and span count once.

    Args:
        predicted: the spans of a tree for each sentence.
        sentences: sentences with labeled spans.
        labels: the labels that are counted.
    Returns:
        A fraction for each of `labels`; None if no constituent has the label.
    """
    recalled: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for spans, sentence in zip(predicted, sentences, strict=True):
        for label, first, last in sentence.labeled_spans:
            total[label] += 1
            recalled[label] += (first, last) in spans
    return {label: recalled[label] / total[label] if total[label] else None for label in labels}


def _word_depth(tree: TreeSpans) -> float:
    """The mean number of constituents above a word."""
    return sum(last - first + 1 for first, last in tree.spans) / tree.size
