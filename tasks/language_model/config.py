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
    """Which recurrent layers."""
    data_dir: Path | None = None
    """Directory with train.txt, valid.txt and test.txt, a sentence to a line, words between spaces, such as
    the Penn Treebank text that language models are compared on."""
    sentences: int = 0
    """Where there is no directory: draw so many sentences, a tenth of them for validation and another for
    testing."""
    embedding_size: int = 400
    """Features of an embedded word."""
    hidden_size: int = 1150
    """Units of every layer but the last, which has --embedding-size where weights are tied. LSTMs of the
    small presets have some more, and so as many parameters as ON-LSTMs."""
    num_layers: int = 3
    """Recurrent layers."""
    chunk_size: int = 10
    """Units for each entry of a master gate of ON-LSTM."""
    tied: bool = True
    """Whether the output layer has the embedding's weights."""
    bptt: int = 70
    """Tokens of a training step, on average; lengths vary, and the learning rate with them."""
    embedding_dropout: float = 0.1
    """Of whole words."""
    input_dropout: float = 0.5
    """Of embedded words, the same features for all tokens of a step, as the next two."""
    hidden_dropout: float = 0.3
    """Between layers."""
    output_dropout: float = 0.45
    """After the last layer."""
    weight_dropout: float = 0.45
    """Of recurrent weights."""
    activation_regularization: float = 2.0
    """Weight of the mean square of the last layer's output after dropout."""
    temporal_regularization: float = 1.0
    """Weight of the mean square of its differences from one token to the next."""
    patience: int = 5
    """Weights are averaged from the first epoch on whose validation loss is above the best of those more
    than so many epochs before."""
    backend: str = "auto"
    """How ON-LSTM is computed: a name from onlstm.backends, or the fastest that can run."""

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


PRESETS: dict[str, LanguageModelConfig] = {
    "paper": LanguageModelConfig(
        epochs=1_000,
        batch_size=20,
        evaluation_batch_size=10,
        learning_rate=30.0,
        gradient_clip=0.25,
        weight_decay=1.2e-6,
    ),
    "small": LanguageModelConfig(
        preset="small",
        epochs=20,
        batch_size=20,
        evaluation_batch_size=10,
        learning_rate=20.0,
        gradient_clip=0.25,
        weight_decay=1.2e-6,
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
    "demo": LanguageModelConfig(
        preset="demo",
        sentences=40_000,
        epochs=1_000,  # the minutes end it
        max_minutes=4,
        batch_size=20,
        evaluation_batch_size=10,
        learning_rate=20.0,
        gradient_clip=0.25,
        weight_decay=1.2e-6,
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


def presets_of(model: str | None) -> dict[str, LanguageModelConfig]:
    """The presets for `--model`: the small LSTMs have as many parameters as the ON-LSTMs; the paper's has as
    many units, which makes it AWD-LSTM's."""
    if model != "lstm":
        return PRESETS
    sizes = {"small": 412, "demo": 124}
    return PRESETS | {
        name: replace(PRESETS[name], model="lstm", hidden_size=size) for name, size in sizes.items()
    }
