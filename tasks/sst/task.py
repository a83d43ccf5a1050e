"""Sentiment as a classification task: data, model and the groups of its report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
import torch

from tasks.classifiers.classification import LabeledData, Splits
from tasks.classifiers.evaluation import Evaluation, Groups, by_length
from tasks.classifiers.task import Accuracies, ClassifierTask
from tasks.classifiers.word_embedding import WordEmbedding
from tasks.sst.config import PAPER_DIMENSIONS, SentimentConfig, presets_of
from tasks.sst.contextual import ContextualEmbedding
from tasks.sst.dataset import PhraseData
from tasks.sst.download import fetch
from tasks.sst.embedding import WORDS
from tasks.sst.grammar import generate_treebank
from tasks.sst.model import SentimentModel
from tasks.sst.treebank import LabeledTree, Treebank, phrases, read_directory, read_trees, sentences
from tasks.sst.vectors import coverage_text, load_vectors

PRETRAINED = {classes: WORDS.with_name(f"sst{classes}.safetensors") for classes in (2, 5)}
"""The trained models that come with the project, by number of classes."""
LENGTHS = (10, 20, 30)
"""Upper bounds of the groups of lengths whose accuracy is reported."""
NEGATIONS = frozenset(["not", "n't", "no", "never", "nothing", "none", "neither", "nor", "nobody", "without"])
PHRASE_LENGTHS = {
    "all": (1, sys.maxsize),
    "words": (1, 1),
    "2–5 words": (2, 5),
    "6–10 words": (6, 10),
    "over 10 words": (11, sys.maxsize),
}
"""Minimum and maximum number of words of the groups of nodes whose accuracy is reported."""


def load_treebank(config: SentimentConfig) -> Treebank:
    """Read, generate or download the sentences of a run.

    Args:
        config: configuration of the run; `data_dir` takes precedence over `generated`.
    Raises:
        UserError: a file is missing or bad.
    """
    if config.draws_data:
        return generate_treebank(config.generated, config.seed_of_data)
    return read_directory(config.data_dir or fetch())


def _load_splits(config: SentimentConfig) -> Splits[PhraseData]:
    treebank = load_treebank(config)
    if config.phrases == "sentences":
        train_phrases = sentences(treebank.train, config.classes)
    else:
        train_phrases = phrases(
            treebank.train,
            config.classes,
            merge=config.phrases == "distinct",
            cased=config.encoder is not None,
            by_tree=config.needs_trees,
        )
    train = PhraseData(treebank.train, train_phrases, include_trees=config.needs_trees)
    if treebank.test is None:
        print("there is no test.txt: the test is on the validation data, on which training selects the epoch")
    validation = _sentences(config, treebank.validation, "validation")
    return Splits(
        train, validation, validation if treebank.test is None else _sentences(config, treebank.test)
    )


def _sentences(config: SentimentConfig, trees: Sequence[LabeledTree], split: str = "test") -> PhraseData:
    roots = sentences(trees, config.classes)
    return PhraseData(trees, roots, include_trees=config.needs_trees, split=split)


def _initial_model(config: SentimentConfig, splits: Splits[LabeledData]) -> SentimentModel:
    """Build a model whose vocabulary depends on the data.

    Learned embeddings are for words that occur at least twice in the training data.
    """
    if config.encoder is not None:
        return SentimentModel(config, ContextualEmbedding(config.encoder, fine_tune=config.fine_tune))
    datasets = [cast(PhraseData, dataset) for dataset in splits]
    if config.learns_embeddings:
        words = [word.lower() for tree in datasets[0].trees for word in tree.words]
        distinct_words, counts = np.unique(words, return_counts=True)
        embedding = WordEmbedding(distinct_words[counts > 1].tolist(), config.embedding_size, learned=True)
        return SentimentModel(config, embedding)
    vocabulary = sorted(
        {word.lower() for dataset in datasets for tree in dataset.trees for word in tree.words}
    )
    vectors = load_vectors(config.vectors, vocabulary)
    print(coverage_text(vectors, vocabulary, config.vectors), flush=True)
    dimensions = vectors.values.shape[1]
    if config.preset == "paper" and dimensions != PAPER_DIMENSIONS:
        print(
            f"warning: --vectors {' '.join(config.vectors)}: {dimensions} dimensions; the paper has GloVe "
            f"840B in {PAPER_DIMENSIONS} (--vectors glove.840B.300d.zip)",
            file=sys.stderr,
        )
    embedding = WordEmbedding(vocabulary, dimensions)
    embedding.weight.copy_(torch.from_numpy(vectors.values))
    return SentimentModel(config, embedding)


def _groups(config: SentimentConfig, data: LabeledData) -> Mapping[str, Groups]:
    """Group by length, and sentences with a negation or with "but"."""
    dataset = cast(PhraseData, data)
    word_sets = [{word.lower() for word in dataset.words_of(index)} for index in range(len(dataset.lengths))]
    return {
        "length": by_length(dataset.lengths, LENGTHS),
        "sentences with": {
            "a negation": np.array([bool(words & NEGATIONS) for words in word_sets]),
            "but": np.array(["but" in words for words in word_sets]),
        },
    }


def _node_accuracies(
    config: SentimentConfig, data: LabeledData, evaluate_on: Callable[[LabeledData], Evaluation]
) -> Accuracies:
    """Accuracy on all labeled nodes; equal phrases are evaluated once and weighted by their count."""
    trees = cast(PhraseData, data).trees
    cased = config.encoder is not None
    merged = phrases(trees, config.classes, merge=True, cased=cased, by_tree=config.needs_trees)
    nodes = PhraseData(trees, merged, include_trees=config.needs_trees)
    masks = {
        name: (nodes.lengths >= low) & (nodes.lengths <= high) for name, (low, high) in PHRASE_LENGTHS.items()
    }
    return {"nodes": evaluate_on(nodes).accuracy_by(masks, nodes.counts)}


SST = ClassifierTask(
    title=lambda config: f"SST-{config.classes}: {config.model_name}",
    about=(
        "The model reads a sentence about a film and predicts its sentiment. The color of a node is the "
        "sentiment that the model predicts for its words by themselves."
    ),
    unit="sentences",
    model_class=SentimentModel,
    presets=presets_of,
    load_splits=_load_splits,
    accuracy_groups=_groups,
    read_file=lambda config, path: _sentences(config, read_trees(path)),
    pretrained=PRETRAINED[5],
    punctuation="every token counts, punctuation included",
    min_words=2,
    report_confusion=True,
    build_initial_model=_initial_model,
    learning_rates=lambda config: {"embedding": config.encoder_learning_rate} if config.fine_tune else {},
    extra_accuracies=_node_accuracies,
)
