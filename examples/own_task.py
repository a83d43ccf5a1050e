"""A task of your own: train any of the models on lines of a label, a tab and a text.

python -m own_task --data-dir reviews --model onlstm --slot-size 120
python -m own_task evaluate --checkpoint runs/texts/onlstm-1/best.safetensors --file more.tsv
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tasks.classifiers.classification import LabeledData, Prediction, Sentence, Splits
from tasks.classifiers.classifier import Classifier
from tasks.classifiers.commands import (
    EvaluateConfig,
    PredictFileConfig,
    run_evaluate,
    run_export,
    run_predict_file,
)
from tasks.classifiers.comparison import ReportConfig, run_report
from tasks.classifiers.config import ClassifierConfig
from tasks.classifiers.encoders import build_encoder, build_head, encode, summary_size
from tasks.classifiers.files import read_lines
from tasks.classifiers.task import ClassifierTask
from tasks.classifiers.word_embedding import WordEmbedding
from tasks.runs.command_line import Subcommand, run
from tasks.runs.hub import ExportConfig

CLASSES = ("negative", "positive")  # the labels in your files


@dataclass
class TextConfig(ClassifierConfig):
    """Train a model to classify texts."""

    data_dir: Path = Path()
    """Directory with train.tsv, validation.tsv and test.tsv."""

    @property
    def directory(self) -> Path:
        return self.given_directory or Path("runs", "texts", f"{self.model_name}-{self.seed}")


class Batch(NamedTuple):
    """B texts: their words, the number of words of each, and their labels."""

    words: list[list[str]]
    lengths: Tensor
    labels: Tensor


class Texts(LabeledData):
    """Texts. Their trees are not known."""

    def __init__(self, examples: list[tuple[int, list[str]]], *, labeled: bool = True) -> None:
        self.words = [words for _, words in examples]
        self.labels = np.array([label for label, _ in examples], dtype=np.int64)
        self.lengths = np.array([len(words) for words in self.words], dtype=np.int64)
        self.labeled = labeled

    @property
    def sentence_lengths(self) -> NDArray[np.int64]:
        return self.lengths[:, None]

    def batch(self, indices: ArrayLike) -> Batch:
        chosen = np.asarray(indices, dtype=np.int64)
        words = [self.words[index] for index in chosen]
        return Batch(words, torch.from_numpy(self.lengths[chosen]), torch.from_numpy(self.labels[chosen]))

    def sentences(self, index: int) -> tuple[Sentence]:
        return (Sentence(self.words[index], range(len(self.words[index]))),)


def parse(line: str) -> tuple[int, list[str]]:
    """The label and the words of a line."""
    label, _, text = line.partition("\t")
    if label not in CLASSES or not text.split():
        raise ValueError(f"expected one of {', '.join(CLASSES)}, a tab and a text, got {line!r}")
    return CLASSES.index(label), text.split()


class TextModel(Classifier):
    """Embedding → dropout → encoder → head."""

    usage = 'print(model.answer("neither bad nor dull"))'
    config_class = TextConfig
    saved_arguments = ("words",)
    classes = CLASSES

    def __init__(self, config: TextConfig, words: list[str]) -> None:
        super().__init__(config)
        self.embedding = WordEmbedding(words, config.embedding_size, learned=True)
        self.input_dropout = torch.nn.Dropout(config.input_dropout)
        self.encoder = build_encoder(config, config.embedding_size)
        self.head = build_head(config, summary_size(config, config.embedding_size), len(CLASSES))

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"words": self.embedding.vocabulary}

    @staticmethod
    def read_examples(examples: Sequence[Sequence[str]]) -> Texts:
        for texts in examples:
            Classifier.check_texts(texts, 1, "text")
        return Texts([(0, text.split()) for [text] in examples], labeled=False)

    def forward(self, batch: Batch) -> Prediction:
        embedded = self.input_dropout(self.embedding(batch.words))
        encoded = encode(self.encoder, embedded, batch.lengths)
        return Prediction(self.head(encoded.summary), encoded)


def read(path: Path) -> Texts:
    """Read a file."""
    return Texts(read_lines(path, parse))


def load(config: TextConfig) -> Splits[Texts]:
    """Read the three files of a run."""
    names = ("train.tsv", "validation.tsv", "test.tsv")
    return Splits(*(read(config.data_dir / name) for name in names))


def build_model(config: TextConfig, splits: Splits[LabeledData]) -> TextModel:
    """Build a model; its vocabulary is the words of the training data."""
    texts = cast(Texts, splits.train).words
    return TextModel(config, sorted({word.lower() for text in texts for word in text}))


TASK = ClassifierTask(
    title=lambda config: f"Texts: {config.model}",
    about="The model reads a text and predicts its class.",
    unit="texts",
    model_class=TextModel,
    presets=lambda model: {"default": TextConfig()},
    load_splits=load,
    load_test=lambda config: read(config.data_dir / "test.tsv"),
    read_file=lambda config, path: read(path),
    build_initial_model=build_model,
)
SUBCOMMANDS = {
    "train": Subcommand(TextConfig, TASK.train, TASK.presets),
    "evaluate": Subcommand(EvaluateConfig, partial(run_evaluate, TASK)),
    "predict-file": Subcommand(PredictFileConfig, partial(run_predict_file, TASK)),
    "report": Subcommand(ReportConfig, partial(run_report, TASK)),
    "export": Subcommand(ExportConfig, partial(run_export, TASK)),
}

if __name__ == "__main__":
    sys.exit(run("own_task", SUBCOMMANDS))
