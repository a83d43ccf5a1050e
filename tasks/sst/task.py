"""Sentiment as a classification task: its data, its model, what its report groups by."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ordered_memory.trees import Span, Tree, spans
from tasks.classifiers.classification import LabelledData, Sentence, Splits, batches_of
from tasks.classifiers.encoders import GIVEN_TREES
from tasks.classifiers.evaluation import Evaluation, Masks, by_length
from tasks.classifiers.task import Accuracies, ClassifierTask
from tasks.runs.errors import UserError
from tasks.sst.config import SentimentConfig
from tasks.sst.contextual import ContextualEmbedding, undo_escapes
from tasks.sst.dataset import PhraseData, unlabelled_phrases
from tasks.sst.download import fetch
from tasks.sst.embedding import WORDS, WordEmbedding, describe
from tasks.sst.grammar import draw_treebank
from tasks.sst.model import CLASSES, SentimentModel, build_model
from tasks.sst.treebank import LabelledTree, Treebank, phrases, read_directory, read_trees, sentences
from tasks.sst.vectors import Vectors, coverage_text, load_vectors

PRETRAINED = {classes: WORDS.with_name(f"sst{classes}.safetensors") for classes in (2, 5)}
"""The trained models that come with the project, by number of classes: `SST.load_model(PRETRAINED[2])`."""
LENGTHS = (10, 20, 30)
"""The longest sentences of the groups that accuracy is reported of."""
NEGATIONS = frozenset(["not", "n't", "no", "never", "nothing", "none", "neither", "nor", "nobody", "without"])
PHRASE_LENGTHS = {"words": (1, 1), "2–5 words": (2, 5), "6–10 words": (6, 10), "over 10 words": (11, 10**9)}


def load_treebank(config: SentimentConfig) -> Treebank:
    """The sentences of a run: read from a directory, drawn, or fetched and read.

    Args:
        config: of the run; a directory comes before drawn sentences.
    Raises:
        UserError: a file is missing or bad.
    """
    if config.data_dir is None and config.generated:
        return draw_treebank(config.generated, config.seed)
    return read_directory(config.data_dir or fetch())


def _load_splits(config: SentimentConfig) -> Splits:
    treebank = load_treebank(config)
    if config.phrases == "sentences":
        learnt = sentences(treebank.train, config.classes)
    else:
        learnt = phrases(treebank.train, config.classes, merge=config.phrases == "distinct")
    train = PhraseData(treebank.train, learnt, given_trees=config.model in GIVEN_TREES)
    if treebank.test is None:
        print("there is no test.txt: the final test is on the validation data, which also chose the epoch")
    validation = _sentences(config, treebank.validation, "validation")
    return Splits(
        train, validation, validation if treebank.test is None else _sentences(config, treebank.test)
    )


def _sentences(config: SentimentConfig, trees: Sequence[LabelledTree], part: str = "test") -> PhraseData:
    roots = sentences(trees, config.classes)
    return PhraseData(trees, roots, given_trees=config.model in GIVEN_TREES, part=part)


def _initial_model(config: SentimentConfig, splits: Splits) -> SentimentModel:
    """A model that knows the words of the data; embeddings are for words that training has twice or more."""
    if config.encoder is not None:
        return SentimentModel(config, ContextualEmbedding(config.encoder, fine_tune=config.fine_tune))
    parts = [cast(PhraseData, part) for part in splits]
    if config.learns_embeddings:
        words = [word.lower() for tree in parts[0].trees for word in tree.words]
        found, counts = np.unique(words, return_counts=True)
        learned = WordEmbedding(found[counts > 1].tolist(), config.embedding_size, learned=True)
        return SentimentModel(config, learned)
    vocabulary = sorted({word.lower() for part in parts for tree in part.trees for word in tree.words})
    vectors = _vectors_of(config.vectors, vocabulary)
    print(coverage_text(vectors, vocabulary, config.vectors), flush=True)
    embedding = WordEmbedding(vocabulary, vectors.values.shape[1])
    embedding.weight.copy_(torch.from_numpy(vectors.values))
    return SentimentModel(config, embedding)


def _vectors_of(names: Sequence[str], vocabulary: Sequence[str]) -> Vectors:
    """The vectors of words as the treebank spells them, or else as plain text does: `-lrb-` or `(`."""
    count = len(vocabulary)
    values, found = load_vectors(names, [*vocabulary, *map(undo_escapes, vocabulary)], seed=0)
    written = found[:count].any(axis=1, keepdims=True)
    return Vectors(
        np.where(written, values[:count], values[count:]), np.where(written, found[:count], found[count:])
    )


def _learn_words(config: SentimentConfig, model: SentimentModel, data: LabelledData) -> None:
    """Look up the words of other data than the run had, where the files of its vectors still are."""
    embedding = model.embedding
    if not isinstance(embedding, WordEmbedding) or embedding.learned:
        return
    words = embedding.unknown(word for tree in cast(PhraseData, data).trees for word in tree.words)
    if not words:
        return
    try:
        vectors = _vectors_of(config.vectors, words)
    except UserError as error:
        shown = " ".join(words[:10])
        print(f"words without a vector, which get a drawn one ({error}): {shown}", file=sys.stderr)
        return
    print(coverage_text(vectors, words, config.vectors), file=sys.stderr)
    embedding.extend(words, torch.from_numpy(vectors.values))


def _groups(config: SentimentConfig, data: LabelledData) -> Mapping[str, Masks]:
    """Sentences by length, and those with a negation or with "but"."""
    dataset = cast(PhraseData, data)
    words = [{word.lower() for word in dataset.words_of(index)} for index in range(len(dataset.lengths))]
    return {
        "length": by_length(dataset.lengths, LENGTHS),
        "sentences with": {
            "a negation": np.array([bool(found & NEGATIONS) for found in words]),
            "but": np.array(["but" in found for found in words]),
        },
    }


def _node_accuracies(
    config: SentimentConfig, data: LabelledData, answers: Callable[[LabelledData], Evaluation]
) -> Accuracies:
    """Accuracy on every labelled node; the same phrase is read once and counts as often as it occurs."""
    trees = cast(PhraseData, data).trees
    nodes = PhraseData(
        trees, phrases(trees, config.classes, merge=True), given_trees=config.model in GIVEN_TREES
    )
    correct = answers(nodes).correct
    masks: dict[str, NDArray[np.bool_]] = {"all": nodes.lengths > 0}
    for name, (low, high) in PHRASE_LENGTHS.items():
        masks[name] = (nodes.lengths >= low) & (nodes.lengths <= high)
    return {
        "nodes": {
            name: [
                float(np.average(correct[mask], weights=nodes.counts[mask])),
                int(nodes.counts[mask].sum()),
            ]
            for name, mask in masks.items()
            if mask.any()
        }
    }


@torch.inference_mode()
def node_values(model: nn.Module, sentence: Sentence, tree: Tree) -> dict[Span, float]:
    """The sentiment that a model reads in every node of a tree, which it reads as a phrase by itself.

    Args:
        model: on the CPU.
        sentence: its words.
        tree: over them.
    Returns:
        The mean under the model's probabilities, from -1 (very) negative to 1 (very) positive, by first and
        last word of each node, words (i, i) among them.
    """
    nodes = [(position, position) for position in range(len(sentence.words))] + spans(tree)
    data = unlabelled_phrases(sentence.words, tree, nodes)
    values = np.zeros(len(nodes))
    for indices, batch in batches_of(data, 256):
        probabilities = model.eval()(batch).logits.float().softmax(-1)
        values[indices] = probabilities @ torch.linspace(-1, 1, probabilities.shape[1])
    return {node: float(value) for node, value in zip(nodes, values, strict=True)}


SST = ClassifierTask(
    title=lambda config: f"SST-{config.classes}: {config.model_name}",
    about=(
        "The model reads a sentence about a film and says how positive it is. The colour of a node is the "
        "sentiment of its words by themselves."
    ),
    unit="sentences",
    classes=lambda config: CLASSES[config.classes],
    config=SentimentConfig,
    build=build_model,
    load=_load_splits,
    groups=_groups,
    read_file=lambda config, path: _sentences(config, read_trees(path)),
    pretrained=PRETRAINED[5],
    punctuation="every token counts, punctuation included",
    shortest_tree=2,
    confusion=True,
    initial=_initial_model,
    describe_embedding=lambda model: describe(model.embedding),
    rates=lambda config: {"embedding": config.encoder_learning_rate} if config.fine_tune else {},
    adapt=_learn_words,
    more_accuracies=_node_accuracies,
    node_values=node_values,
)
