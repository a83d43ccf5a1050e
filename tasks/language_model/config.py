"""Options of language modelling, and the presets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tasks.runs.config import TrainingConfig
from tasks.runs.errors import UserError
from tasks.runs.options import check_at_least, check_fraction, flag


@dataclass
class LanguageModelConfig(TrainingConfig):
    """Train a word language model by the recipe of AWD-LSTM. Defaults are the ON-LSTM paper's."""

    preset: Literal["demo", "small", "paper"] = "paper"
    """Where the defaults come from: `demo` learns drawn sentences in minutes, `small` is for a laptop CPU and
    an hour or two, `paper` is the paper's; those two need --data-dir."""
    model: Literal["onlstm", "lstm"] = "onlstm"
    """Kind of the recurrent layers."""
    data_dir: Path | None = None
    """Directory with train.txt, valid.txt and test.txt, one sentence per line, words separated by spaces,
    such as the Penn Treebank text that language models are compared on."""
    sentences: int = 0
    """Number of sentences to generate if there is no --data-dir; a tenth of them is for validation and
    another for testing."""
    embedding_size: int = 400
    """Size of a word's embedding."""
    hidden_size: int = 1150
    """Units of every layer; with tied weights the last layer has --embedding-size units. The LSTMs of the
    small presets have a few more, so that they have as many parameters as the ON-LSTMs."""
    num_layers: int = 3
    """Number of recurrent layers."""
    chunk_size: int = 10
    """ON-LSTM: units per entry of a master gate; must divide the units of every layer."""
    tied: bool = True
    """Share the weights of the embedding and the output layer."""
    bptt: int = 70
    """Mean length of a training step in tokens. Lengths are random; the learning rate of a step is
    proportional to its length."""
    embedding_dropout: float = 0.1
    """Probability of dropping a word's embedding throughout a step."""
    input_dropout: float = 0.5
    """Dropout on embedded words; this and the next two drop the same units at all tokens of a step."""
    hidden_dropout: float = 0.3
    """Dropout between layers."""
    output_dropout: float = 0.45
    """Dropout after the last layer."""
    weight_dropout: float = 0.45
    """DropConnect: probability of dropping a recurrent weight."""
    activation_regularization: float = 2.0
    """Coefficient of the mean squared output of the last layer, after dropout, in the loss."""
    temporal_regularization: float = 1.0
    """Coefficient of the mean squared difference of its outputs at consecutive tokens in the loss."""
    patience: int = 5
    """Averaging of the weights starts after the first epoch whose validation loss is above the lowest of all
    epochs more than this many before it."""
    backend: str = "auto"
    """ON-LSTM: the backend that computes it; `auto` takes the fastest that can run."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "embedding_size", "hidden_size", "num_layers", "chunk_size", "bptt")
        if self.data_dir is None and self.sentences < 10:
            raise UserError(
                "--data-dir must name a directory with train.txt, valid.txt and test.txt, or --sentences at "
                f"least 10 to draw, got {self.sentences}"
            )
        check_fraction(self, "embedding_dropout", "input_dropout", "hidden_dropout", "output_dropout")
        check_fraction(self, "weight_dropout")
        check_at_least(0, self, "activation_regularization", "temporal_regularization", "patience")
        if self.model == "onlstm":
            last = "embedding_size" if self.tied else "hidden_size"
            for name in ("hidden_size", last) if self.num_layers > 1 else (last,):
                if getattr(self, name) % self.chunk_size:
                    raise UserError(
                        f"{flag(name)} {getattr(self, name)} must be divisible by "
                        f"--chunk-size {self.chunk_size}"
                    )

    @property
    def directory(self) -> Path:
        """Where the run goes: the same place for the same experiment."""
        return self.run_dir or Path("runs", "language_model", f"{self.preset}-{self.model}-{self.seed}")


PAPER = LanguageModelConfig(
    epochs=1_000, batch_size=20, evaluation_batch_size=10, learning_rate=30.0, gradient_clip=0.25
)
PRESETS = {
    "paper": PAPER,
    "small": replace(
        PAPER,
        preset="small",
        epochs=20,
        learning_rate=20.0,
        embedding_size=200,
        hidden_size=400,
        bptt=35,
        patience=2,
        embedding_dropout=0.05,
        input_dropout=0.25,
        hidden_dropout=0.15,
        output_dropout=0.25,
        weight_dropout=0.2,
    ),
    "demo": replace(
        PAPER,
        preset="demo",
        sentences=40_000,
        max_minutes=4,
        learning_rate=20.0,
        embedding_size=60,
        hidden_size=120,
        bptt=35,
        patience=2,
        embedding_dropout=0.0,
        input_dropout=0.1,
        hidden_dropout=0.1,
        output_dropout=0.1,
        weight_dropout=0.1,
    ),
}
DEMO_CHECKPOINT = PRESETS["demo"].directory / "best.safetensors"


def presets_of(model: str | None) -> dict[str, LanguageModelConfig]:
    """The presets for a kind of model.

    The small LSTMs have as many parameters as the ON-LSTMs; the paper's LSTM has as many units, which makes
    it AWD-LSTM's.

    Args:
        model: value of `--model`; None if it is not given.
    Returns:
        Configurations by name, the default first.
    """
    if model != "lstm":
        return PRESETS
    sizes = {"small": 412, "demo": 124}
    return PRESETS | {
        name: replace(PRESETS[name], model="lstm", hidden_size=size) for name, size in sizes.items()
    }
