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
    """Train a word language model: ON-LSTM and LSTM by the recipe of AWD-LSTM, PRPN by Adam. Defaults are the
    ON-LSTM paper's, or with --model prpn those of PRPN's."""

    preset: Literal["demo", "small", "paper"] = "paper"
    """Where the defaults come from: `demo` learns drawn sentences in minutes, `small` is for a laptop CPU and
    an hour or two, `paper` is the paper's; those two need --data-dir."""
    model: Literal["onlstm", "lstm", "prpn"] = "onlstm"
    """ON-LSTM or LSTM layers, or the Parsing-Reading-Predict Network of Shen et al. (2018)."""
    data_dir: Path | None = None
    """Directory with train.txt, valid.txt and test.txt, one sentence per line, words separated by spaces,
    such as the Penn Treebank text that language models are compared on."""
    sentences: int = 0
    """Number of sentences to generate if there is no --data-dir; a tenth of them is for validation and
    another for testing."""
    embedding_size: int = 400
    """Size of a word's embedding."""
    hidden_size: int = 1150
    """Units of every layer; with tied weights the last layer of ON-LSTM and LSTM has --embedding-size units.
    The small presets give every kind of model as many parameters as the ON-LSTM."""
    num_layers: int = 3
    """Number of recurrent layers."""
    chunk_size: int = 10
    """ON-LSTM: units per entry of a master gate; must divide the units of every layer."""
    num_slots: int = 15
    """PRPN: words before a word that its attention can reach."""
    look_back: int = 5
    """PRPN: words before a word that its syntactic distance depends on."""
    tied: bool = True
    """Share the weights of the embedding and the output layer."""
    bptt: int = 70
    """Mean length of a training step in tokens. Lengths are random; the learning rate of a step is
    proportional to its length, except with PRPN."""
    embedding_dropout: float = 0.1
    """Probability of dropping a word's embedding throughout a step."""
    input_dropout: float = 0.5
    """Dropout on embedded words; this and the next two drop the same units at all tokens of a step."""
    hidden_dropout: float = 0.3
    """Dropout between layers."""
    output_dropout: float = 0.45
    """Dropout before the output layer."""
    weight_dropout: float = 0.45
    """DropConnect: probability of dropping a recurrent weight; with PRPN, of dropping a unit of the recurrent
    state throughout a step."""
    activation_regularization: float = 2.0
    """Coefficient of the mean squared output of the last layer, after dropout, in the loss."""
    temporal_regularization: float = 1.0
    """Coefficient of the mean squared difference of its outputs at consecutive tokens in the loss."""
    patience: int = 5
    """Averaging of the weights starts after the first epoch whose validation loss is above the lowest of all
    epochs more than this many before it. PRPN: epochs without a better validation loss after which the
    learning rate is halved."""
    backend: str = "auto"
    """ON-LSTM: the backend that computes it; `auto` takes the fastest that can run."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "embedding_size", "hidden_size", "num_layers", "chunk_size", "bptt")
        check_at_least(1, self, "num_slots", "look_back")
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


def _prpn(preset: str, hidden_size: int) -> LanguageModelConfig:
    """A preset with PRPN and its optimizer."""
    return replace(
        PRESETS[preset],
        model="prpn",
        hidden_size=hidden_size,
        num_layers=2,
        learning_rate=0.003,
        weight_decay=1e-6,
        gradient_clip=1.0,
        patience=2,
        activation_regularization=0.0,
        temporal_regularization=0.0,
    )


PRPN_PRESETS = {
    "paper": replace(
        _prpn("paper", 1200),
        epochs=100,
        batch_size=64,
        embedding_size=800,
        bptt=35,
        embedding_dropout=0.0,
        input_dropout=0.7,
        hidden_dropout=0.5,
        output_dropout=0.7,
        weight_dropout=0.5,
    ),
    "small": _prpn("small", 348),
    "demo": _prpn("demo", 104),
}


def presets_of(model: str | None) -> dict[str, LanguageModelConfig]:
    """The presets for a kind of model.

    The small models have as many parameters as the ON-LSTMs. The paper's LSTM has as many units, which makes
    it AWD-LSTM's; the paper's PRPN is that of its own paper, on the Penn Treebank.

    Args:
        model: value of `--model`; None if it is not given.
    Returns:
        Configurations by name, the default first.
    """
    if model == "prpn":
        return PRPN_PRESETS
    if model != "lstm":
        return PRESETS
    sizes = {"small": 412, "demo": 124}
    return PRESETS | {
        name: replace(PRESETS[name], model="lstm", hidden_size=size) for name, size in sizes.items()
    }
