"""The sentiment model: word vectors, encoder, classification head."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor
from torch.nn.functional import dropout

from ordered_memory.trees import Span, Tree, spans
from tasks.classifiers.classification import LabeledData, Prediction, Sentence, iterate_batches
from tasks.classifiers.classifier import Classifier
from tasks.classifiers.encoded import Encoded
from tasks.classifiers.encoders import MeanOfTokens, build_encoder, build_head, encode, summary_size
from tasks.classifiers.word_embedding import WordEmbedding
from tasks.runs.checkpoints import load_weights
from tasks.runs.errors import UserError
from tasks.runs.machine import to_device
from tasks.runs.options import check_text
from tasks.spelling.words import split_as_treebank
from tasks.sst.config import SentimentConfig
from tasks.sst.contextual import ContextualEmbedding
from tasks.sst.dataset import Batch, PhraseData, unlabeled_phrases, unlabeled_sentences
from tasks.sst.embedding import EMBEDDING, Embedding, describe, restore
from tasks.sst.vectors import coverage_text, load_vectors, shortened

CLASSES = {
    2: ("- negative", "+ positive"),
    5: ("-- very negative", "- negative", "0 neutral", "+ positive", "++ very positive"),
}


class SentimentModel(Classifier):
    """Vectors → dropout → encoder → head.

    The dropout on word vectors uses the same mask for all words of a phrase.

    Args:
        config: encoder, sizes and dropout.
        embedding: embedding of the words.
    Raises:
        UserError: the encoder does not accept an option.
    """

    usage = 'print(model.answer("neither bad nor dull"))'
    config_class = SentimentConfig
    saved_arguments = (EMBEDDING,)

    def __init__(self, config: SentimentConfig, embedding: Embedding) -> None:
        super().__init__(config)
        self.embedding = embedding
        self._random_words: set[str] = set()  # those that `adapt` added to the vocabulary
        self.classes = CLASSES[config.classes]
        size = embedding.embedding_size
        self.input_dropout = config.input_dropout
        self.encoder = build_encoder(config, size)
        self.classifier = build_head(config, summary_size(config, size), config.classes)

    @staticmethod
    def read_examples(examples: Sequence[Sequence[str]]) -> PhraseData:
        sentences = []
        for texts in examples:
            Classifier.check_texts(texts, 1, "sentence")
            [text] = texts
            check_text(text, "the sentence")
            sentences.append(split_as_treebank(text))
            if not sentences[-1]:
                raise UserError(f"the sentence must have one word or more, got {text!r}")
        return unlabeled_sentences(sentences)

    @classmethod
    def build(cls, config: SentimentConfig, **saved: Any) -> Self:
        return cls(config, restore(config, saved[EMBEDDING]))

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **options: Any) -> Self:
        model = super().from_pretrained(pretrained_model_name_or_path, **options)
        if isinstance(model.embedding, WordEmbedding):
            model.embedding.save_vectors()
        return model

    def load(self, path: Path, saved: SentimentConfig) -> None:
        # A checkpoint does not contain a frozen encoder, and --fine-tune may begin with that.
        defaults = {}
        if isinstance(self.embedding, ContextualEmbedding) and not saved.fine_tune:
            defaults = {f"embedding.{name}": tensor for name, tensor in self.embedding.state_dict().items()}
        load_weights(path, self, defaults)

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {EMBEDDING: describe(self.embedding)}

    def forward(self, batch: Batch) -> Prediction:
        embedded, sentences = self._embed(batch.words)
        mask = dropout(torch.ones_like(embedded[:, :1]), self.input_dropout, self.training)
        if sentences is not None and isinstance(self.encoder, MeanOfTokens):
            encoded = Encoded(sentences * mask[:, 0])
        else:
            encoded = encode(self.encoder, embedded * mask, batch.lengths, batch.trees)
        return Prediction(self.classifier(encoded.summary), encoded)

    def unknown_words(self, data: LabeledData) -> list[str]:
        if not isinstance(self.embedding, WordEmbedding):
            return []
        return self.embedding.unknown(_words_of(data))

    def adapt(self, data: LabeledData) -> None:
        """Add vectors for the words of new data, if the files of vectors still exist; name words without one.

        See `Classifier.adapt`. The names are printed to stderr.
        """
        embedding, names = self.embedding, self.config.vectors
        seen_before = self._random_words.intersection(map(str.lower, _words_of(data)))
        if seen_before:
            text = f"random vectors, as before: {len(seen_before):,} ({shortened(sorted(seen_before))})"
            print(text, file=sys.stderr)
        words = self.unknown_words(data)
        if not words or not isinstance(embedding, WordEmbedding):
            return
        if embedding.learned:
            text = f"unknown words, which share one vector: {len(words):,} ({shortened(words)})"
            print(text, file=sys.stderr)
            return
        try:
            vectors = load_vectors(names, words)
            size = vectors.values.shape[1]
            if size != embedding.embedding_size:
                raise UserError(f"{' '.join(names)}: expected {embedding.embedding_size} numbers, got {size}")
        except UserError as error:
            text = f"words without a vector, which get a random one ({error}): {shortened(words)}"
            print(text, file=sys.stderr)
            return
        print(coverage_text(vectors, words, names), file=sys.stderr)
        found = torch.from_numpy(vectors.found).any(dim=1)
        self._random_words.update(itertools.compress(words, ~found))
        is_found = found.unsqueeze(1).to(embedding.weight.device)
        values = torch.from_numpy(vectors.values).to(embedding.weight)
        embedding.extend(words, torch.where(is_found, values, embedding.random_vectors(words)))

    def node_values(self, sentence: Sentence, tree: Tree | None) -> dict[Span, float]:
        """The expected sentiment of each node, from -1 (very) negative to 1 (very) positive.

        See `node_probabilities` and `Classifier.node_values`.
        """
        values = torch.linspace(-1, 1, len(self.classes))
        return {
            node: float(probabilities @ values)
            for node, probabilities in self.node_probabilities(sentence, tree).items()
        }

    @torch.inference_mode()
    def node_probabilities(self, sentence: Sentence, tree: Tree | None) -> dict[Span, Tensor]:
        """Compute the probabilities of the classes at each node, (C,) on the CPU.

        Each node is a phrase that the model, on the CPU, reads by itself.

        Args:
            sentence: its words.
            tree: a tree over these words; None for the words only.
        Returns:
            The probabilities by first and last word of the node, words included.
        """
        nodes = [(position, position) for position in range(len(sentence.words))]
        if tree is not None:
            nodes += spans(tree)
        data = unlabeled_phrases(sentence.words, tree, nodes)
        probabilities = torch.zeros(len(nodes), len(self.classes))
        for indices, batch in iterate_batches(data, 256):
            probabilities[indices] = self.eval()(batch).logits.float().softmax(-1)
        return dict(zip(nodes, probabilities, strict=True))

    def _embed(self, words: list[list[str]]) -> tuple[Tensor, Tensor | None]:
        """The vectors of the words, and those of whole sentences if the embedding is contextual."""
        if isinstance(self.embedding, WordEmbedding):
            return self.embedding(words), None
        device = next(self.classifier.parameters()).device
        pieces = to_device(self.embedding.tokenizer.tokenize(words), device)
        vectors: tuple[Tensor, Tensor] = self.embedding(pieces)
        return vectors


def _words_of(data: LabeledData) -> Iterator[str]:
    return (word for tree in cast(PhraseData, data).trees for word in tree.words)
