"""Options of classification tasks: model, dropout, curriculum. Each task adds those of its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from tasks.classifiers.own_encoder import own_encoder
from tasks.runs.config import AdamConfig
from tasks.runs.errors import UserError
from tasks.runs.options import check_at_least, check_fraction

ModelName = Literal[
    "ordered-memory",
    "lstm",
    "onlstm",
    "rrnet",
    "transformer",
    "universal-transformer",
    "gumbel-tree-lstm",
    "crvnn",
    "mean",
    "gold-tree-lstm",
    "gold-tree-rnn",
    "gold-tree-cell",
]
"""Values of `--model`, without `module:Class`."""
GOLD_TREE_MODELS = ("gold-tree-lstm", "gold-tree-rnn", "gold-tree-cell")
"""Encoders that get the true tree as input."""
BIDIRECTIONAL = ("ordered-memory", "lstm", "onlstm")
"""Encoders that accept `--bidirectional`."""
LSTMS = ("lstm", "onlstm")
"""Encoders that use `--num-layers` and `--hidden-dropout`."""
TRANSFORMERS = ("transformer", "universal-transformer")
"""Encoders that use `--layers` and `--heads`."""

_SLOTS = ("num_slots", "test_num_slots")
_OPTIONS: dict[str, tuple[str, ...]] = {
    "ordered-memory": (
        *_SLOTS,
        *("score", "cell", "cell_dropout", "attention_dropout", "occupancy_threshold"),
        *("recompute_every", "backend"),
    ),
    "lstm": ("num_layers", "hidden_dropout"),
    "onlstm": ("num_layers", "chunk_size", "hidden_dropout", "weight_dropout", "backend"),
    "rrnet": (*_SLOTS, "cell_dropout"),
    "transformer": ("layers", "heads", "cell_dropout"),
    "universal-transformer": ("layers", "heads", "cell_dropout"),
    "gumbel-tree-lstm": ("cell_dropout",),
    "crvnn": ("cell_dropout", "recompute_every"),
    "mean": (),
    "gold-tree-lstm": ("cell_dropout",),
    "gold-tree-rnn": ("cell_dropout",),
    "gold-tree-cell": ("cell_dropout",),
}
"""The options of each encoder, without those that all encoders share."""
_ARCHITECTURE = ("score", "cell", "num_layers", "chunk_size", "layers", "heads")
"""The options in `_OPTIONS` that are part of `architecture`."""


@dataclass
class DropoutConfig(AdamConfig):
    """Dropout."""

    cell_dropout: float = 0.1
    """Dropout before each linear layer of the cell (crvnn: only before the second; rrnet: only on the hidden
    state), or inside the layers of a transformer."""
    attention_dropout: float = 0.3
    """Dropout before each linear layer of the attention score."""
    hidden_dropout: float = 0.0
    """Dropout between the layers of lstm and onlstm."""
    weight_dropout: float = 0.0
    """DropConnect of onlstm: probability of dropping a recurrent weight."""
    input_dropout: float = 0.1
    """Dropout on the embeddings."""
    output_dropout: float = 0.2
    """Dropout before each linear layer of the classifier on top of the encoder."""

    def check(self) -> None:
        super().check()
        check_fraction(self, "cell_dropout", "attention_dropout", "hidden_dropout")
        check_fraction(self, "weight_dropout", "input_dropout", "output_dropout")


@dataclass
class EncoderConfig(DropoutConfig):
    """Model: sizes and backend."""

    model: ModelName | str = "ordered-memory"
    """Sequence encoder. `gold-tree-` encoders get the true trees as input; `mean` averages the embeddings;
    `module:Class` is an encoder of your own."""
    bidirectional: bool = False
    """Read in both directions (ordered-memory, lstm and onlstm)."""
    embedding_size: int = 128
    """Embedding size."""
    slot_size: int = 128
    """Size of a memory slot; the hidden size of other encoders."""
    num_slots: int = 21
    """Number of memory slots in training (rrnet: the maximum depth of its stack)."""
    test_num_slots: int | None = None
    """Number of memory slots in the final test, whose trees may be deeper; None for as many as in
    training."""
    score: Literal["normalized", "additive"] = "normalized"
    """Score function of the slot attention."""
    cell: Literal["gated", "tree-rnn"] = "gated"
    """Cell that composes two slots."""
    num_layers: int = 1
    """Number of layers of lstm and onlstm. The trees of onlstm are those of its last layer; the results also
    score those of the others."""
    chunk_size: int = 10
    """Chunk size of ON-LSTM: hidden units per master-gate entry."""
    layers: int = 6
    """Layers of a transformer; steps of the universal transformer."""
    heads: int = 8
    """Attention heads of a transformer."""
    occupancy_threshold: float = 1e-5
    """Slots with an occupancy below this fraction count as empty; a larger value is faster and less exact."""
    recompute_every: int | None = None
    """Activation checkpointing of ordered-memory and crvnn: number of steps between stored states. The steps
    in between are computed again in the backward pass, which saves memory and costs time; from the same seed,
    another number may draw other dropout. None to store every step."""
    backend: str = "auto"
    """Backend of the recurrence, as in `ordered_memory.backends`; `auto` is the fastest available one."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "embedding_size", "slot_size", "num_slots", "test_num_slots")
        check_at_least(1, self, "recompute_every", "num_layers", "chunk_size", "layers", "heads")
        check_fraction(self, "occupancy_threshold")
        if self.model not in _OPTIONS and own_encoder(self.model) is None:
            names = ", ".join(_OPTIONS)
            raise UserError(f"--model must be one of {names}, or module:Class, got {self.model!r}")
        if self.bidirectional and self.model not in BIDIRECTIONAL:
            raise UserError(
                f"--bidirectional needs --model {', '.join(BIDIRECTIONAL)}, got --model {self.model}"
            )
        if self.model == "onlstm" and self.slot_size % self.chunk_size:
            raise UserError(
                f"--slot-size {self.slot_size} must be divisible by --chunk-size {self.chunk_size} for onlstm"
            )
        if self.model in TRANSFORMERS and (self.slot_size % self.heads or self.slot_size % 2):
            raise UserError(
                f"--slot-size must be even and a multiple of --heads for a transformer, got {self.slot_size} "
                f"and {self.heads} heads"
            )

    @property
    def architecture(self) -> dict[str, Any]:
        names = ("model", "bidirectional", "embedding_size", "slot_size", *_ARCHITECTURE)
        return {name: getattr(self, name) for name in names if name not in self.unused}

    @property
    def unused(self) -> dict[str, str]:
        every = {name for names in _OPTIONS.values() for name in names}
        others = every.difference(_OPTIONS.get(self.model, every))
        unused = super().unused | dict.fromkeys(sorted(others), f"with --model {self.model}")
        if self.model in LSTMS and self.num_layers == 1:
            unused["hidden_dropout"] = "with --num-layers 1"
        return unused

    @property
    def needs_trees(self) -> bool:
        """Whether the encoder gets the true trees as input."""
        return self.model in GOLD_TREE_MODELS

    @property
    def may_leave_parameters_unused(self) -> bool:
        """Whether some parameters may have no gradient: in a batch of single tokens, nothing is composed."""
        may_be_unused = self.needs_trees or self.model in ("gumbel-tree-lstm", "crvnn")
        return may_be_unused or self.model not in _OPTIONS

    @property
    def model_name(self) -> str:
        """The model with its cell and direction, if they are not the default, for the name of a run."""
        cell = f"-{self.cell}-cell" if self.cell != "gated" and self.model == "ordered-memory" else ""
        name = self.model.rpartition(":")[2]  # the class of an encoder of your own
        return name + cell + ("-bidirectional" if self.bidirectional else "")


@dataclass
class CurriculumConfig(EncoderConfig):
    """Curriculum."""

    curriculum_epochs: int = 0
    """Number of epochs at the beginning that have short training examples only; the learning rate is not
    reduced in them. 0 for no curriculum."""
    curriculum_length: int = 20
    """Maximum number of tokens of a short example. If it has several sentences, the longest one counts."""

    def check(self) -> None:
        super().check()
        check_at_least(0, self, "curriculum_epochs")
        check_at_least(1, self, "curriculum_length")

    @property
    def batch_options(self) -> tuple[str, ...]:
        """The options that decide the training batches of an epoch."""
        return ("batch_size", "curriculum_epochs", "curriculum_length")

    @property
    def short_epochs(self) -> int:
        return self.curriculum_epochs if self.curriculum_epochs < self.epochs else 0

    @property
    def unused(self) -> dict[str, str]:
        unused = super().unused
        if not self.curriculum_epochs:
            unused["curriculum_length"] = "without --curriculum-epochs"
        return unused


@dataclass
class ClassifierConfig(CurriculumConfig):
    """Base class of the options of a classification task."""


Config = TypeVar("Config", bound=ClassifierConfig)


def presets_by_model(
    presets: dict[str, Config], papers: dict[str, Config], curriculum: Mapping[str, Any] | None = None
) -> Callable[[str | None], dict[str, Config]]:
    """Let some models have a preset `paper` of their own, and add the preset `curriculum`.

    Args:
        presets: configurations by name, the default first.
        papers: the preset `paper` of these models, by `--model`.
        curriculum: the options in which the preset `curriculum` differs from the model's `paper`, its name
            included; None for no such preset.
    Returns:
        A function that returns the presets, given the value of `--model` or None, as
        `tasks.classifiers.task.ClassifierTask` takes.
    """

    def presets_of(model: str | None) -> dict[str, Config]:
        found = presets | ({"paper": papers[model]} if model in papers else {})
        if curriculum is not None:
            found["curriculum"] = replace(found["paper"], **curriculum)
        return found

    return presets_of


DEMO: dict[str, Any] = {
    "preset": "demo",
    "epochs": 1_000,  # max_minutes ends training first
    "embedding_size": 64,
    "slot_size": 64,
    "chunk_size": 8,
    "learning_rate": 2e-3,
    "patience": 1,
    "adam_betas": (0.9, 0.999),
    "cell_dropout": 0.0,
    "attention_dropout": 0.0,
    "input_dropout": 0.0,
    "output_dropout": 0.0,
}
"""Options of the `demo` presets: a small model without dropout."""
