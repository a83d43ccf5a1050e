"""Options of language modeling, and the presets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tasks.runs.config import TrainingConfig
from tasks.runs.errors import UserError
from tasks.runs.options import MOST_EXAMPLES, check_at_least, check_fraction, flag


@dataclass
class LanguageModelConfig(TrainingConfig):
    """Train a word language model: an ON-LSTM or LSTM with the recipe of AWD-LSTM, or PRPN with Adam.

    Default values are those of the ON-LSTM paper or, with --model prpn, of the PRPN paper.
    """

    preset: Literal["demo", "small", "paper"] = "paper"
    """Default values of the other options: `demo` trains in minutes on generated sentences, `small` in an
    hour or two on a laptop CPU, `paper` has the paper's. The last two need --data-dir."""
    model: Literal["onlstm", "lstm", "prpn"] = "onlstm"
    """ON-LSTM or LSTM layers, or the Parsing-Reading-Predict Network of Shen et al. (2018)."""
    data_dir: Path | None = None
    """Directory with train.txt, valid.txt and test.txt, one sentence per line, words separated by spaces,
    such as Mikolov's Penn Treebank; they may be compressed (train.txt.gz, .bz2, .xz)."""
    min_count: int = 1
    """With --data-dir: minimum number of occurrences of a word in train.txt; rarer words become <unk>."""
    sentences: int = 0
    """Without --data-dir: number of sentences to generate. One tenth is validation data, one tenth test
    data. The same short sentence may be in more than one part, as in real text."""
    evaluation_batch_size: int = 256
    """Validation batch size: the text is split into this many parts, each of which starts without context."""
    embedding_size: int = 400
    """Embedding size."""
    hidden_size: int = 1150
    """Hidden size. With tied weights, the last layer of ON-LSTM and LSTM has --embedding-size units. In the
    small and demo presets, all models have about as many parameters as the ON-LSTM."""
    num_layers: int = 3
    """Number of recurrent layers."""
    chunk_size: int = 10
    """ON-LSTM: chunk size, hidden units per master-gate entry; must divide the size of every layer."""
    num_slots: int = 15
    """PRPN: number of previous words that attention can reach."""
    look_back: int = 5
    """PRPN: number of previous words that a syntactic distance depends on."""
    tied: bool = True
    """Share the weights of the embedding and the output layer."""
    bptt: int = 70
    """Mean sequence length for truncated backpropagation through time. Lengths are random; except for PRPN,
    the learning rate of a training step is proportional to its length."""
    embedding_dropout: float = 0.1
    """Embedding dropout: probability of dropping all occurrences of a word in a training step."""
    input_dropout: float = 0.5
    """Dropout on embeddings. It uses the same mask at all tokens of a training step, and so do
    --hidden-dropout and --output-dropout."""
    hidden_dropout: float = 0.3
    """Dropout between layers."""
    output_dropout: float = 0.45
    """Dropout before the output layer."""
    weight_dropout: float = 0.45
    """DropConnect: probability of dropping a recurrent weight. PRPN: dropout on the recurrent state, with the
    same mask at all tokens."""
    activation_regularization: float = 2.0
    """Coefficient of activation regularization (AR): the mean square of the last layer's output, after
    dropout."""
    temporal_regularization: float = 1.0
    """Coefficient of temporal activation regularization (TAR): the mean squared difference of the last
    layer's outputs at consecutive tokens."""
    patience: int = 5
    """Weight averaging starts when the validation loss of an epoch is worse than the best one seen more than
    this many epochs earlier. PRPN: the learning rate is halved after more than this many epochs in a row
    without a better validation loss."""
    backend: str = "auto"
    """ON-LSTM: backend of the recurrence; `auto` is the fastest available one."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "embedding_size", "hidden_size", "num_layers", "chunk_size", "bptt")
        check_at_least(1, self, "num_slots", "look_back", "min_count")
        check_at_least(0, self, "sentences", largest=MOST_EXAMPLES)
        if self.data_dir is None and self.sentences < 10:
            raise UserError(
                "--data-dir must name a directory with train.txt, valid.txt and test.txt, or --sentences "
                f"must be at least 10, got {self.sentences}; --preset demo generates sentences"
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
    def architecture(self) -> dict[str, Any]:
        sizes = ("embedding_size", "hidden_size", "num_layers", "chunk_size", "look_back")
        names = ("model", *sizes, "tied", "min_count")  # `min_count` decides the number of words
        return {name: getattr(self, name) for name in names if name not in self.unused}

    @property
    def unused(self) -> dict[str, str]:
        options = {"onlstm": ("chunk_size", "backend"), "lstm": (), "prpn": ("num_slots", "look_back")}
        others = {name for names in options.values() for name in names} - set(options[self.model])
        unused = super().unused | dict.fromkeys(sorted(others), f"with --model {self.model}")
        if self.data_dir is None:
            unused["min_count"] = "without --data-dir"
        else:
            unused["sentences"] = "with --data-dir"
            if self.initial_weights is not None:
                unused["min_count"] = "with --initial-weights, whose vocabulary is kept"
        if self.num_layers == 1:
            unused["hidden_dropout"] = "with --num-layers 1"
        if self.model != "prpn" and self.num_layers == 1 and self.tied:
            unused["hidden_size"] = (
                "with --num-layers 1 and tied weights: the layer has --embedding-size units"
            )
        return unused

    @property
    def draws_data(self) -> bool:
        return self.data_dir is None

    @property
    def data_options(self) -> tuple[str, ...]:
        return ("sentences",)

    @property
    def directory(self) -> Path:
        """The run directory; by default the same for the same preset, model and seed."""
        name = f"{self.preset}-{self.model}-{self.seed}"
        return self.given_directory or Path("runs", "language_model", name)


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
    """A preset for PRPN and its optimizer."""
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
    """Return the presets for a model.

    In `small` and `demo`, LSTM and PRPN have about as many parameters as the ON-LSTM. In `paper`, the LSTM
    has as many units as the ON-LSTM, which makes it AWD-LSTM's, and PRPN is that of its own paper, on the
    Penn Treebank.

    Args:
        model: value of `--model`; None if it is not given.
    Returns:
        Configurations by name of the preset, the default first.
    """
    if model == "prpn":
        return PRPN_PRESETS
    if model != "lstm":
        return PRESETS
    sizes = {"paper": PAPER.hidden_size, "small": 412, "demo": 124}
    return {name: replace(PRESETS[name], model="lstm", hidden_size=size) for name, size in sizes.items()}
