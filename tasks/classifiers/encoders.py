"""The sequence encoders of the classification tasks: how to build them and how to call them.

B is the batch size, T the length of the longest sequence, E the embedding size, H the size of a summary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from onlstm import ONLSTM
from ordered_memory import OrderedMemory
from ordered_memory.devices import copy_to
from ordered_memory.modes import autocast_of_lstm
from tasks.classifiers.config import EncoderConfig
from tasks.classifiers.crvnn import CRvNN
from tasks.classifiers.encoded import Encoded
from tasks.classifiers.gumbel_tree_lstm import GumbelTreeLSTM
from tasks.classifiers.own_encoder import own_encoder
from tasks.classifiers.rrnet import RRNet
from tasks.classifiers.transformers import Transformer
from tasks.classifiers.tree_batching import TreeBatch
from tasks.classifiers.tree_models import TreeCell, TreeLSTM, TreeModel, TreeRNN
from tasks.runs.errors import UserError
from tasks.runs.options import argument_error


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
    try:
        return BUILDERS.get(config.model, _own_encoder)(config, input_size)
    except ValueError as error:
        raise argument_error(error, config) from None


def _own_encoder(config: EncoderConfig, input_size: int) -> nn.Module:
    found = own_encoder(config.model)
    if found is None:
        raise UserError(f"--model {config.model}: no such encoder")
    encoder = found(config, input_size)
    with torch.no_grad():
        encoded = encode(encoder.eval(), torch.zeros(2, 3, input_size), torch.tensor([3, 1]))
    got, expected = getattr(encoded.summary, "shape", None), (2, summary_size(config, input_size))
    if got != expected:
        got_text = type(encoded.summary).__name__ if got is None else f"shape {tuple(got)}"
        raise UserError(
            f"--model {config.model}: forward must return slot_size numbers for each sequence, or Encoded "
            f"with these: expected shape {expected} for two sequences, got {got_text}"
        )
    for name, axes, allowed in (
        ("attention", "(B, T, N)", [(2, 3, -1)]),
        ("merges", "(B, T - 1)", [(2, 2)]),
        ("distances", "(B, T) or (L, B, T)", [(2, 3), (-1, 2, 3)]),
        ("backward_attention", "(B, T, N)", [(2, 3, -1)]),
        ("backward_distances", "(B, T) or (L, B, T)", [(2, 3), (-1, 2, 3)]),
    ):
        value = getattr(encoded, name)
        if value is None:
            continue
        shape = tuple(value.shape)
        if not any(_is_of_sizes(shape, sizes) for sizes in allowed):
            raise UserError(
                f"--model {config.model}: {name} of Encoded must be {axes}, got shape {shape} for two "
                "sequences of at most three tokens"
            )
        if name == "merges" and (value.is_floating_point() or value.dtype == torch.bool):
            raise UserError(f"--model {config.model}: merges of Encoded must be integers, got {value.dtype}")
    return encoder.train()


def _is_of_sizes(shape: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Whether a shape has these sizes, where -1 stands for any."""
    return len(shape) == len(sizes) and all(
        size in (-1, found) for size, found in zip(sizes, shape, strict=True)
    )


def _ordered_memory(config: EncoderConfig, input_size: int) -> nn.Module:
    return OrderedMemory(
        input_size,
        config.slot_size,
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


def _onlstm(config: EncoderConfig, input_size: int) -> nn.Module:
    return ONLSTM(
        input_size,
        config.slot_size,
        **_lstm_options(config),
        chunk_size=config.chunk_size,
        weight_dropout=config.weight_dropout,
        backend=config.backend,
    )


def _lstm_options(config: EncoderConfig) -> dict[str, Any]:
    """The options that ON-LSTM shares with nn.LSTM, which warns of dropout where there is one layer."""
    return {
        "num_layers": config.num_layers,
        "dropout": config.hidden_dropout if config.num_layers > 1 else 0.0,
        "batch_first": True,
        "bidirectional": config.bidirectional,
    }


def _transformer(config: EncoderConfig, input_size: int) -> nn.Module:
    shared = config.model == "universal-transformer"
    sizes = (config.slot_size, config.layers, config.heads)
    return Transformer(input_size, *sizes, config.cell_dropout, shared=shared)


BUILDERS: dict[str, Callable[[EncoderConfig, int], nn.Module]] = {
    "ordered-memory": _ordered_memory,
    "lstm": lambda config, size: nn.LSTM(size, config.slot_size, **_lstm_options(config)),
    "onlstm": _onlstm,
    "rrnet": lambda config, size: RRNet(size, config.slot_size, config.num_slots, config.cell_dropout),
    "transformer": _transformer,
    "universal-transformer": _transformer,
    "gumbel-tree-lstm": lambda config, size: GumbelTreeLSTM(size, config.slot_size, config.cell_dropout),
    "crvnn": lambda config, size: CRvNN(
        size, config.slot_size, config.cell_dropout, recompute_every=config.recompute_every
    ),
    "mean": lambda config, size: MeanOfTokens(),
    "gold-tree-lstm": lambda config, size: TreeLSTM(size, config.slot_size, config.cell_dropout),
    "gold-tree-rnn": lambda config, size: TreeRNN(size, config.slot_size, config.cell_dropout),
    "gold-tree-cell": lambda config, size: TreeCell(size, config.slot_size, config.cell_dropout),
}
"""How to build each encoder, given its options and the embedding size."""


def summary_size(config: EncoderConfig, input_size: int) -> int:
    """H of the encoder that `build_encoder` returns.

    Args:
        config: model and slot size.
        input_size: E.
    """
    if config.model == "mean":
        return input_size
    return config.slot_size * (2 if config.bidirectional else 1)


def join_pairs(summary: Tensor) -> Tensor:
    """The input of the head for pairs of sequences, [h1; h2; h1 ∘ h2; |h1 - h2|].

    Args:
        summary: (2B, D): the summaries of the first sequences of all pairs, then those of the second ones.
    Returns:
        (B, 4D).
    """
    first, second = summary.chunk(2)
    return torch.cat([first, second, first * second, (first - second).abs()], dim=-1)


def build_head(config: EncoderConfig, input_size: int, num_classes: int) -> nn.Sequential:
    """Build the classifier on top of an encoder: linear → ELU → linear, with dropout before each linear.

    Args:
        config: hidden size (`slot_size`) and `output_dropout`.
        input_size: size of the input.
        num_classes: C, number of classes.
    Returns:
        A module that maps (B, input_size) to logits (B, C).
    """
    return nn.Sequential(
        nn.Dropout(config.output_dropout),
        nn.Linear(input_size, config.slot_size),
        nn.ELU(),
        nn.Dropout(config.output_dropout),
        nn.Linear(config.slot_size, num_classes),
    )


def encode(
    encoder: nn.Module,
    embedded: Tensor,
    lengths: Tensor,
    trees: TreeBatch | None = None,
) -> Encoded:
    """Encode a batch of sequences.

    Args:
        encoder: encoder from `build_encoder`, or any module that maps (embedded, lengths) to `Encoded` or to
            the summaries.
        embedded: (B, T, E), padded on the right.
        lengths: (B,) int64, on the CPU.
        trees: the true trees, for an encoder of `GOLD_TREE_MODELS`.
    Raises:
        UserError: an encoder of `GOLD_TREE_MODELS` got no trees.
    """
    match encoder:
        case OrderedMemory():
            out = encoder(embedded, lengths=lengths)
            if not encoder.bidirectional:
                return Encoded(out.summary, out.attention)
            forward, backward = out.attention
            return Encoded(torch.cat(tuple(out.summary), dim=-1), forward, backward_attention=backward)
        case ONLSTM():
            _, (hidden, _), distances = encoder(embedded, lengths=lengths, distances=True)
            summary = _last_hidden(encoder, hidden)
            if not encoder.bidirectional:
                return Encoded(summary, distances=distances.forget)
            forward, backward = distances.forget[0::2], distances.forget[1::2]
            return Encoded(summary, distances=forward, backward_distances=backward)
        case nn.LSTM():
            with autocast_of_lstm(embedded.device):
                tokens = embedded.to(encoder.all_weights[0][0].dtype)
                return Encoded(_lstm_summary(encoder, tokens, lengths))
        case TreeModel():
            if trees is None:
                raise UserError(
                    "a gold-tree- model needs the true tree of its input, which is not known here"
                )
            return Encoded(encoder(embedded.flatten(0, 1).index_select(0, trees.words), trees))
        case _:
            output = encoder(embedded, lengths)
            return output if isinstance(output, Encoded) else Encoded(output)


def _lstm_summary(encoder: nn.LSTM, tokens: Tensor, lengths: Tensor) -> Tensor:
    """The last hidden state of each sequence, (B, H); of both directions, (B, 2H), if there are two."""
    if encoder.bidirectional:
        packed = pack_padded_sequence(tokens, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return _last_hidden(encoder, encoder(packed)[1][0])
    # On a CPU nn.LSTM is faster if its input is not packed, unless it has many units.
    output, _ = encoder(tokens)
    last = copy_to(lengths - 1, tokens.device)
    summary: Tensor = output[torch.arange(len(last), device=last.device), last]
    return summary


def _last_hidden(encoder: nn.LSTM | ONLSTM, hidden: Tensor) -> Tensor:
    """The last hidden state h_n of each sequence, (B, H); of both directions, if there are two."""
    return torch.cat(tuple(hidden[-2:] if encoder.bidirectional else hidden[-1:]), dim=-1)
