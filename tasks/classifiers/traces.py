"""Traces of a classifier: what it does with an example, step by step, for the viewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ordered_memory.trace import (
    Answer,
    Trace,
    add_true_tree,
    add_values,
    empty_trace,
    induced_trees,
    read_attention,
    read_distances,
    read_tree,
)
from ordered_memory.trace_nodes import DIGITS
from ordered_memory.tree_recovery import DIRECTIONS, GREEDY_DECODINGS, ReadingDirection
from ordered_memory.trees import Span, Tree
from tasks.classifiers.classification import LabeledData, Sentence
from tasks.classifiers.classifier import Classifier
from tasks.classifiers.evaluation import ExamplePrediction, predict_example
from tasks.classifiers.tree_reading import DECODING


def example_traces(
    model: Classifier,
    data: LabeledData,
    index: int,
    *,
    model_name: str = "",
    example: int = 0,
) -> list[Trace]:
    """Make the traces of an example.

    Args:
        model: model on the CPU.
        data: contains the example.
        index: index of the example.
        model_name: the caption; by default the name of the sentence. If the model reads in both directions,
            the caption says which one.
        example: traces with the same number are shown together.
    Returns:
        One trace for each sentence, or two if the model reads in both directions: its attention or, for a
        model without slots, its distances or the tree that it induces, if any. Labels and true trees are left
        out if they are not known.
    """
    prediction = predict_example(model, data, index)
    sentences = data.sentences(index)
    is_bidirectional = any(
        part is not None for part in (prediction.backward_attention, prediction.backward_distances)
    )
    traces = []
    directions = DIRECTIONS if is_bidirectional else DIRECTIONS[:1]
    for place, sentence in enumerate(sentences):
        model_values = _model_values(model, sentence, prediction, place)
        for direction in directions:
            trace = _model_trace(prediction, place, sentence, direction)
            caption = [model_name or sentence.name, f"{direction} direction" if is_bidirectional else ""]
            trace["caption"] = ", ".join(filter(None, caption))
            trace["example"] = example
            trace["words"] = list(sentence.positions)
            trace["answer"] = answer_of(prediction, data, index, model.classes)
            if sentence.tree is not None:
                add_true_tree(trace, sentence.tree, sentence.positions)
            if sentence.tree is not None and sentence.values is not None:
                add_values(trace["true_nodes"], sentence.values, sentence.positions)
                trace["true_token_values"] = _values_of_tokens(sentence.values, sentence)
            if model_values:
                _add_model_values(trace, sentence, model_values)
            traces.append(trace)
    return traces


def answer_of(prediction: ExamplePrediction, data: LabeledData, index: int, classes: Sequence[str]) -> Answer:
    """The predicted probabilities of an example, and its true class if it is known.

    Args:
        prediction: prediction for the example.
        data: contains the example.
        index: index of the example.
        classes: names of the classes.
    """
    return {
        "classes": list(classes),
        "probabilities": [round(probability, 9) for probability in prediction.probabilities.tolist()],
        "true": int(data.labels[index]) if data.labeled else None,
    }


def _model_values(
    model: Classifier, sentence: Sentence, prediction: ExamplePrediction, place: int
) -> dict[Span, float]:
    """The model's values of all nodes of the induced trees or, if there are none, of the true one."""
    readings = [prediction.trees, *prediction.other_trees.values()]
    induced: set[Tree | None] = {trees[place] for trees in readings if trees is not None}
    values: dict[Span, float] = {}
    for tree in induced or {sentence.tree}:
        values |= model.node_values(sentence, tree) or {}
    return values


def _add_model_values(trace: Trace, sentence: Sentence, values: Mapping[Span, float]) -> None:
    """Add the model's values to the nodes of the induced trees or, if there are none, of the true one."""
    induced = induced_trees(trace)
    for nodes in induced:
        add_values(nodes, values, sentence.positions)
    if not induced:
        add_values(trace.get("true_nodes", []), values, sentence.positions, "model_value")
    trace["token_values"] = _values_of_tokens(values, sentence)


def _model_trace(
    prediction: ExamplePrediction, place: int, sentence: Sentence, direction: ReadingDirection
) -> Trace:
    """What a model did with a sentence in one direction."""
    is_forward = direction == "forward"
    attention = prediction.attention if is_forward else prediction.backward_attention
    if attention is not None:
        return read_attention(attention[place], sentence.tokens, direction=direction)
    distances = prediction.distances if is_forward else prediction.backward_distances
    if distances is not None:
        trace = read_distances(
            distances[place], sentence.tokens, decodings=GREEDY_DECODINGS, direction=direction
        )
        trace["default_tree"] = {"layer": trace["layers"][-1]["name"], "decoding": DECODING}
        return trace
    if prediction.token_trees is not None:
        return read_tree(prediction.token_trees[place], sentence.tokens)
    return empty_trace(sentence.tokens)


def _values_of_tokens(values: Mapping[Span, float], sentence: Sentence) -> list[float]:
    """The values of single tokens; in tasks with values, every token is a word."""
    return [round(values[position, position], DIGITS) for position in range(len(sentence.tokens))]
