"""The sequence encoders of the classification tasks: their options, how to build them and how to call them.

B is the batch size, T the length of the longest sequence, E the embedding size, H the size of a summary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from onlstm import ONLSTM
from ordered_memory import OrderedMemory
from ordered_memory.devices import copy_to
from ordered_memory.modes import autocast_of_lstm
from tasks.classifiers.crvnn import CRvNN
from tasks.classifiers.gumbel_tree_lstm import GumbelTreeLSTM
from tasks.classifiers.rrnet import Rollout, RRNet
from tasks.classifiers.transformers import Transformer
from tasks.classifiers.tree_batching import TreeBatch
from tasks.classifiers.tree_models import TREE_MODELS, TreeModel
from tasks.runs.config import AdamConfig
from tasks.runs.errors import UserError
from tasks.runs.options import argument_error, check_at_least, check_fraction

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
"""Values of `--model`."""
GOLD_TREE_MODELS = tuple(TREE_MODELS)
"""Encoders that get the true tree as input."""
BIDIRECTIONAL = ("ordered-memory", "lstm", "onlstm")
"""Encoders that accept `--bidirectional`."""
LSTMS = ("lstm", "onlstm")
"""Encoders that use `--num-layers` and `--hidden-dropout`."""
TRANSFORMERS = ("transformer", "universal-transformer")
"""Encoders that use `--layers` and `--heads`."""

_SLOTS = ("num_slots", "test_num_slots")
_OPTIONS: dict[ModelName, tuple[str, ...]] = {
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
    "crvnn": ("cell_dropout",),
    "mean": (),
    "gold-tree-lstm": ("cell_dropout",),
    "gold-tree-rnn": ("cell_dropout",),
    "gold-tree-cell": ("cell_dropout",),
}
"""The options of each encoder, without those that all encoders share."""
_ARCHITECTURE = ("score", "cell", "num_layers", "chunk_size", "layers", "heads")
"""Those of these options that are part of `architecture`."""


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

    model: ModelName = "ordered-memory"
    """Sequence encoder. `gold-tree-` encoders get the true trees as input; `mean` averages the embeddings."""
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
    """Layers of lstm and onlstm; trees are read off the last one."""
    chunk_size: int = 10
    """Chunk size of ON-LSTM: hidden units per master-gate entry."""
    layers: int = 6
    """Layers of a transformer; steps of the universal transformer."""
    heads: int = 8
    """Attention heads of a transformer."""
    occupancy_threshold: float = 1e-5
    """Slots with an occupancy below this fraction count as empty; a larger value is faster and less exact."""
    recompute_every: int | None = None
    """Activation checkpointing: keep the state of every k-th token and recompute the rest in the backward
    pass, which saves memory and costs time; None to keep everything."""
    backend: str = "auto"
    """Backend of the recurrence, as in `ordered_memory.backends`; `auto` is the fastest available one."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "embedding_size", "slot_size", "num_slots", "test_num_slots")
        check_at_least(1, self, "recompute_every", "num_layers", "chunk_size", "layers", "heads")
        check_fraction(self, "occupancy_threshold")
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
        others = {name for names in _OPTIONS.values() for name in names} - set(_OPTIONS[self.model])
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
        """A batch of single tokens has nothing to compose."""
        return self.needs_trees or self.model in ("gumbel-tree-lstm", "crvnn")

    @property
    def model_name(self) -> str:
        """The model with its cell and direction, if they are not the default, for the name of a run."""
        cell = f"-{self.cell}-cell" if self.cell != "gated" and self.model == "ordered-memory" else ""
        return self.model + cell + ("-bidirectional" if self.bidirectional else "")


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


class Encoded(NamedTuple):
    """The output of an encoder; the fields after the summary are those of `Prediction` after the logits.

    Args:
        summary: one vector for each sequence, (B, H).
        attention: attention over the slots at each token, (B, T, N), in the forward direction.
        merges: which neighbors were merged, (B, T - 1) int64.
        penalty: a penalty for each sequence, (B,).
        rollout: the actions that the encoder took.
        distances: forget distance of each token, (B, T), of the last layer in the forward direction.
    """

    summary: Tensor
    attention: Tensor | None = None
    merges: Tensor | None = None
    penalty: Tensor | None = None
    rollout: Rollout | None = None
    distances: Tensor | None = None


class MeanOfTokens(nn.Module):
    """The mean of the embeddings of each sequence: a bag of words."""

    def forward(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """Average over time.

        Args:
            embedded: (B, T, E).
            lengths: (B,) int64, at least 1.
        Returns:
            (B, E).
        """
        lengths = copy_to(lengths, embedded.device).unsqueeze(1)
        padding = torch.arange(embedded.shape[1], device=embedded.device) >= lengths
        return embedded.masked_fill(padding.unsqueeze(-1), 0.0).sum(1) / lengths


def build_encoder(config: EncoderConfig, input_size: int) -> nn.Module:
    """Build the encoder that `--model` names, with `batch_first=True`.

    Args:
        config: model, sizes, dropout and backend.
        input_size: E.
    Raises:
        UserError: the encoder does not accept an option.
    """
    size = config.slot_size
    if config.model in TREE_MODELS:
        return TREE_MODELS[config.model](input_size, size, config.cell_dropout)
    if config.model in TRANSFORMERS:
        shared = config.model == "universal-transformer"
        return Transformer(input_size, size, config.layers, config.heads, config.cell_dropout, shared=shared)
    if config.model == "gumbel-tree-lstm":
        return GumbelTreeLSTM(input_size, size, config.cell_dropout)
    if config.model == "crvnn":
        return CRvNN(input_size, size, config.cell_dropout)
    if config.model == "rrnet":
        return RRNet(input_size, size, config.num_slots, config.cell_dropout)
    if config.model == "mean":
        return MeanOfTokens()
    if config.model == "lstm":
        return nn.LSTM(input_size, size, **_lstm_options(config))
    try:
        if config.model == "onlstm":
            return ONLSTM(
                input_size,
                size,
                **_lstm_options(config),
                chunk_size=config.chunk_size,
                weight_dropout=config.weight_dropout,
                backend=config.backend,
            )
        return OrderedMemory(
            input_size,
            size,
            config.num_slots,
            cell_dropout=config.cell_dropout,
            attention_dropout=config.attention_dropout,
            score=config.score,
            cell=config.cell,
            bidirectional=config.bidirectional,
            batch_first=True,
            occupancy_threshold=config.occupancy_threshold,
            recompute_every=config.recompute_every,
            backend=config.backend,
        )
    except ValueError as error:
        raise argument_error(error, config) from None


def _lstm_options(config: EncoderConfig) -> dict[str, Any]:
    """The options that ON-LSTM shares with nn.LSTM, which warns of dropout where there is one layer."""
    return {
        "num_layers": config.num_layers,
        "dropout": config.hidden_dropout if config.num_layers > 1 else 0.0,
        "batch_first": True,
        "bidirectional": config.bidirectional,
    }


def summary_size(config: EncoderConfig, input_size: int) -> int:
    """H of the encoder that `build_encoder` returns.

    Args:
        config: model and slot size.
        input_size: E.
    """
    if config.model == "mean":
        return input_size
    return config.slot_size * (2 if config.bidirectional else 1)


def build_head(config: EncoderConfig, input_size: int, classes: int) -> nn.Sequential:
    """Build the classifier on top of an encoder: linear → ELU → linear, with dropout before each linear.

    Args:
        config: hidden size (`slot_size`) and `output_dropout`.
        input_size: size of the input.
        classes: C, number of classes.
    Returns:
        A module that maps (B, input_size) to logits (B, C).
    """
    return nn.Sequential(
        nn.Dropout(config.output_dropout),
        nn.Linear(input_size, config.slot_size),
        nn.ELU(),
        nn.Dropout(config.output_dropout),
        nn.Linear(config.slot_size, classes),
    )


def encode(
    encoder: nn.Module,
    embedded: Tensor,
    lengths: Tensor,
    *,
    num_slots: int | None = None,
    trees: TreeBatch | None = None,
) -> Encoded:
    """Encode a batch of sequences.

    Args:
        encoder: encoder from `build_encoder`.
        embedded: (B, T, E), padded on the right.
        lengths: (B,) int64, on the CPU.
        num_slots: number of slots for this call, if the encoder has any; None for the encoder's own.
        trees: the true trees, for an encoder of `GOLD_TREE_MODELS`.
    Raises:
        UserError: an encoder of `GOLD_TREE_MODELS` got no trees.
    """
    if isinstance(encoder, OrderedMemory):
        out = encoder(embedded, lengths=lengths, num_slots=num_slots)
        if not encoder.bidirectional:
            return Encoded(out.summary, out.attention)
        return Encoded(torch.cat(tuple(out.summary), dim=-1), out.attention[0])
    if isinstance(encoder, TreeModel):
        if trees is None:
            raise UserError("a gold-tree- model needs the true tree of what it reads: it is not known here")
        return Encoded(encoder(embedded.flatten(0, 1).index_select(0, trees.words), trees))
    if isinstance(encoder, GumbelTreeLSTM):
        summary, merges = encoder(embedded, lengths)
        return Encoded(summary, merges=merges)
    if isinstance(encoder, ONLSTM):
        _, (hidden, _), distances = encoder(embedded, lengths=lengths, distances=True)
        last = -2 if encoder.bidirectional else -1
        return Encoded(_last_hidden(encoder, hidden), distances=distances.forget[last])
    if isinstance(encoder, nn.LSTM):
        with autocast_of_lstm(embedded.device):
            tokens = embedded.to(encoder.all_weights[0][0].dtype)
            packed = pack_padded_sequence(tokens, lengths.cpu(), batch_first=True, enforce_sorted=False)
            return Encoded(_last_hidden(encoder, encoder(packed)[1][0]))
    if isinstance(encoder, CRvNN):
        summary, penalty = encoder(embedded, lengths)
        return Encoded(summary, penalty=penalty)
    if isinstance(encoder, RRNet):
        summary, rollout = encoder(embedded, lengths, num_slots)
        return Encoded(summary, rollout=rollout)
    return Encoded(encoder(embedded, lengths))


def _last_hidden(encoder: nn.LSTM | ONLSTM, hidden: Tensor) -> Tensor:
    """The last hidden state h_n of each sequence, (B, H); of both directions, if there are two."""
    return torch.cat(tuple(hidden[-2:] if encoder.bidirectional else hidden[-1:]), dim=-1)
