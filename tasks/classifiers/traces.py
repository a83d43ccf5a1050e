"""The traces of a classifier's examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import nn

from ordered_memory.trace import (
    DIGITS,
    Answer,
    Trace,
    add_true_tree,
    add_values,
    empty_trace,
    read_attention,
    read_tree,
)
from ordered_memory.trees import Span, Tree
from tasks.classifiers.classification import LabelledData, Sentence
from tasks.classifiers.evaluation import Reading, read

NodeValues = Callable[[nn.Module, Sentence, Tree], Mapping[Span, float]]
"""What a model makes of each node of a tree over a sentence, in [-1, 1], words (i, i) among them."""


def traces_of(
    model: nn.Module,
    data: LabelledData,
    index: int,
    classes: Sequence[str],
    num_slots: int | None = None,
    node_values: NodeValues | None = None,
    *,
    model_name: str = "",
    example: int = 0,
) -> list[Trace]:
    """What a model does with an example.

    Args:
        model: on the CPU.
        data: has the example.
        index: of the example.
        classes: names of the answers.
        num_slots: for this call; None for the model's own.
        node_values: see `ClassifierTask`.
        model_name: the caption, in place of the name of the sentence.
        example: number that the traces have in common.
    Returns:
        A trace of each sentence: its attention, or else the tree that the
        model induces, if any. What is not known of the data, such as the label of a typed sentence, is
        missing.
    """
    reading = read(model, data, index, num_slots)
    traces = []
    for place, sentence in enumerate(data.sentences(index)):
        trace = _induced(reading, place, sentence)
        trace["caption"] = model_name or sentence.name
        trace["example"] = example
        trace["words"] = list(sentence.positions)
        trace["answer"] = answer_of(reading, data, index, classes)
        if data.labelled:
            add_true_tree(trace, sentence.tree, sentence.positions)
        if sentence.values is not None:
            add_values(trace["true_nodes"], sentence.values, sentence.positions)
            trace["true_token_values"] = _values_of_tokens(sentence.values, sentence)
        if node_values is not None:
            if reading.trees is None:
                values = node_values(model, sentence, sentence.tree)
                add_values(trace.get("true_nodes", []), values, sentence.positions, "model_value")
            else:
                values = node_values(model, sentence, reading.trees[place])
                add_values(trace["nodes"], values, sentence.positions)
            trace["token_values"] = _values_of_tokens(values, sentence)
        traces.append(trace)
    return traces


def answer_of(reading: Reading, data: LabelledData, index: int, classes: Sequence[str]) -> Answer:
    """What a model answers, and the true answer where it is known.

    Args:
        reading: of the example.
        data: has the example.
        index: of the example.
        classes: names of the answers.
    """
    return {
        "classes": list(classes),
        "probabilities": [round(probability, 6) for probability in reading.probabilities.tolist()],
        "true": int(data.labels[index]) if data.labelled else None,
    }


def _induced(reading: Reading, place: int, sentence: Sentence) -> Trace:
    if reading.attention is not None:
        return read_attention(reading.attention[place], sentence.tokens)
    if reading.token_trees is not None:
        return read_tree(reading.token_trees[place], sentence.tokens)
    return empty_trace(sentence.tokens)


def _values_of_tokens(values: Mapping[Span, float], sentence: Sentence) -> list[float]:
    """Every token is a word where nodes have values."""
    return [round(values[place, place], DIGITS) for place in range(len(sentence.tokens))]
