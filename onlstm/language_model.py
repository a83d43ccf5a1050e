"""A word language model with ON-LSTM layers and the regularization of AWD-LSTM (Merity et al. 2018).

Axes: T time, B batch, V vocabulary, E embedding, L layers, M entries of a master gate.
"""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.serialization import add_safe_globals

from onlstm.backends import BACKENDS
from onlstm.distances import Distances
from onlstm.layer import ONLSTM
from onlstm.parameters import State, check_pair
from ordered_memory.checks import (
    check_flags,
    check_fraction,
    check_name,
    check_tensor,
    check_words,
    positive_int,
)
from ordered_memory.dropout import draw_mask
from ordered_memory.hub import HubMixin
from ordered_memory.modes import autocast_of_lstm
from ordered_memory.serialization import register_named_tuples

Recurrent = Literal["onlstm", "lstm"]
RECURRENT: tuple[Recurrent, ...] = get_args(Recurrent)


class LanguageModelOutput(NamedTuple):
    """The output of `LanguageModel`.

    Args:
        logits: logits of the next word, (T, B, V).
        state: (h, c) of every layer, (1, B, ·) each, to continue from.
        raw: output of the last layer, (T, B, ·).
        dropped: `raw` after dropout, the argument of activation regularization.
        distances: distances of every layer, (L, T, B) each, in master-gate entries; None if not requested.
    """

    logits: Tensor
    state: list[State]
    raw: Tensor
    dropped: Tensor
    distances: Distances | None


register_named_tuples("onlstm.language_model", LanguageModelOutput)


def _check_vocabulary(vocabulary: object, size: int) -> None:
    """Check that a list or a tuple has a word for each id. (Others have no order, or are not saved.)"""
    if not isinstance(vocabulary, list | tuple):
        raise TypeError(f"vocabulary must be a list of words, got {reprlib.repr(vocabulary)}")
    check_words("vocabulary", vocabulary)
    if len(vocabulary) != size:
        raise ValueError(f"vocabulary must have vocabulary_size={size} words, got {len(vocabulary)}")
    if len(set(vocabulary)) < size:
        raise ValueError("the words of vocabulary must be distinct")


DROPOUT = ("embedding_dropout", "input_dropout", "hidden_dropout", "output_dropout", "weight_dropout")
"""Attributes of language models that are probabilities."""


class LanguageModelBase(nn.Module, HubMixin):
    """Base class of word language models: word embedding, locked dropout, output layer.

    Args:
        vocabulary_size: V, number of words.
        embedding_size: E, number of features of an embedded word.
        output_size: number of input features of the output layer; E if `tied`.
        tied: whether the output layer shares the embedding's weights.
        embedding_dropout: probability of dropping all occurrences of a word in a call, in [0, 1].
        vocabulary: the V words in the order of their ids, saved with the model; None if not known.
    Raises:
        TypeError: `tied` is not a bool, or `vocabulary` is not a list or a tuple of strings.
        ValueError: `embedding_dropout` is out of range, or there are not V distinct words.
    """

    usage = """
import torch

ids = torch.tensor([[0], [1], [2]])  # one sequence of three words: their places in model.vocabulary
print(model(ids).logits.softmax(-1))  # (3, 1, V): of the word after each"""

    def __init__(
        self,
        vocabulary_size: int,
        embedding_size: int,
        output_size: int,
        *,
        tied: bool,
        embedding_dropout: float,
        vocabulary: Sequence[str] | None = None,
    ) -> None:
        check_flags(tied=tied)
        if vocabulary is not None:
            _check_vocabulary(vocabulary, vocabulary_size)
        super().__init__()
        # Plain strings: `torch.load` reads no others, such as NumPy's.
        self.vocabulary = None if vocabulary is None else [str.__str__(word) for word in vocabulary]
        self.embedding_dropout = embedding_dropout
        self.embedding = nn.Embedding(vocabulary_size, embedding_size)
        # A tied model has no output weights of its own, so that they are in the state dict only once.
        self.output_weight = None if tied else nn.Parameter(torch.empty(vocabulary_size, output_size))
        self.output_bias = nn.Parameter(torch.empty(vocabulary_size))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in DROPOUT:
            check_fraction(**{name: value})
            value = float(value)
        super().__setattr__(name, value)

    def reset_words(self) -> None:
        """Initialize embedding and output weights uniformly in [-0.1, 0.1], the output bias with zeros."""
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        if self.output_weight is not None:
            nn.init.uniform_(self.output_weight, -0.1, 0.1)
        nn.init.zeros_(self.output_bias)

    def syntactic_distances(self, tokens: Tensor) -> Tensor:
        """The syntactic distance between each word and the one before it, from which trees are recovered.

        In training mode dropout acts on them, too: call `eval()` first.

        Args:
            tokens: word ids, (T, B) int64. The distance of the first word has no meaning: if the model was
                trained on running text, begin with the end of a sentence and leave out its distance.
        Returns:
            (layers, T, B), for the layers that have distances. A large distance means that a constituent ends
            before the word.
        Raises:
            ValueError: `tokens` does not have two axes, or the model has no distances.
        """
        raise NotImplementedError

    def _embed(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.embedding(tokens)
        if not self.training or self.embedding_dropout == 0:
            return embedded
        word_mask = draw_mask((len(self.output_bias), 1), self.embedding_dropout, embedded)
        return embedded * word_mask[tokens]

    def _locked(self, x: Tensor, probability: float) -> Tensor:
        """Apply locked dropout: one mask for all time steps."""
        if not self.training or probability == 0:
            return x
        return x * draw_mask((1, *x.shape[1:]), probability, x)

    def _logits(self, x: Tensor) -> Tensor:
        weight = self.embedding.weight if self.output_weight is None else self.output_weight
        return F.linear(x, weight, self.output_bias)


class LanguageModel(LanguageModelBase):
    """A word language model: embedding, recurrent layers, softmax over the vocabulary.

    The regularization is that of AWD-LSTM, as in ON-LSTM §5.1: dropout of whole words in the embedding;
    locked dropout, with one mask for all time steps, on the embedded words, between layers and after the last
    layer; and DropConnect on the recurrent weights, with one mask per call. The output layer may share the
    weights of the embedding. The default values are those of the paper's model of the Penn Treebank.

    The probabilities of dropout are also attributes. Setting one takes effect at the next call.
    `save_pretrained` saves the arguments of the constructor, not what attributes are set to later.

    Args:
        vocabulary_size: V, number of words.
        embedding_size: E, number of features of an embedded word.
        hidden_size: number of units of every layer; if `tied`, the last layer has E instead.
        num_layers: L, number of layers.
        recurrent: kind of layer, "onlstm" or, as a baseline, "lstm".
        chunk_size: C, number of units per entry of a master gate; must divide the number of units of every
            layer.
        tied: whether the output layer shares the embedding's weights.
        embedding_dropout: probability of dropping all occurrences of a word in a call, in [0, 1].
        input_dropout: probability of dropping a feature of the embedded words, in [0, 1].
        hidden_dropout: probability of dropping an output of any layer but the last, in [0, 1].
        output_dropout: probability of dropping an output of the last layer, in [0, 1].
        weight_dropout: probability of dropping a recurrent weight, in [0, 1].
        backend: backend of ON-LSTM, see `onlstm.ONLSTM`.
        vocabulary: the V words in the order of their ids, saved with the model; None if not known.
    Raises:
        ValueError: a size is not a positive integer, another argument is out of range, `chunk_size` does not
            divide the number of units of a layer, or `vocabulary` does not have V distinct words.
        TypeError: `tied` is not a bool, or `vocabulary` is not a list or a tuple of strings.
    Example:
        >>> model = LanguageModel(10, 6, 8, num_layers=2, chunk_size=2)
        >>> model(torch.zeros(5, 3, dtype=torch.int64)).logits.shape
        torch.Size([5, 3, 10])
    """

    def __init__(
        self,
        vocabulary_size: int,
        embedding_size: int = 400,
        hidden_size: int = 1150,
        num_layers: int = 3,
        *,
        recurrent: Recurrent = "onlstm",
        chunk_size: int = 10,
        tied: bool = True,
        embedding_dropout: float = 0.1,
        input_dropout: float = 0.5,
        hidden_dropout: float = 0.3,
        output_dropout: float = 0.45,
        weight_dropout: float = 0.45,
        backend: str = "auto",
        vocabulary: Sequence[str] | None = None,
    ) -> None:
        check_name("recurrent", recurrent, RECURRENT)
        vocabulary_size = positive_int("vocabulary_size", vocabulary_size)
        embedding_size = positive_int("embedding_size", embedding_size)
        hidden_size = positive_int("hidden_size", hidden_size)
        num_layers = positive_int("num_layers", num_layers)
        chunk_size = positive_int("chunk_size", chunk_size)
        check_name("backend", backend, ["auto", *BACKENDS])
        last_size = embedding_size if tied else hidden_size
        super().__init__(
            vocabulary_size,
            embedding_size,
            last_size,
            tied=tied,
            embedding_dropout=embedding_dropout,
            vocabulary=vocabulary,
        )
        self.recurrent = recurrent
        self.input_dropout = input_dropout
        self.hidden_dropout = hidden_dropout
        self.output_dropout = output_dropout
        sizes = [embedding_size, *[hidden_size] * (num_layers - 1), last_size]
        if recurrent == "onlstm" and tied and embedding_size % chunk_size:
            raise ValueError(
                f"embedding_size={embedding_size}, the units of the last layer, must be divisible by "
                f"chunk_size={chunk_size}"
            )
        self.layers = nn.ModuleList(
            ONLSTM(features, units, chunk_size=chunk_size, weight_dropout=weight_dropout, backend=backend)
            if recurrent == "onlstm"
            else nn.LSTM(features, units)
            for features, units in itertools.pairwise(sizes)
        )
        self.weight_dropout = weight_dropout
        self.reset_parameters()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "weight_dropout":
            for module in self.layers.modules():  # a layer may be within a wrapper
                if isinstance(module, ONLSTM):
                    module.weight_dropout = self.weight_dropout

    def reset_parameters(self) -> None:
        """Initialize all parameters again, embedding and output weights uniformly in [-0.1, 0.1]."""
        self.reset_words()
        for module in self.layers.modules():
            if isinstance(module, ONLSTM | nn.LSTM):
                module.reset_parameters()

    def forward(
        self, tokens: Tensor, state: Sequence[State] | None = None, *, distances: bool = False
    ) -> LanguageModelOutput:
        """Read a batch of text.

        The output at a position depends only on this and earlier words, so padding at the end has no effect
        on it.

        Args:
            tokens: word ids, (T, B) int64.
            state: state returned by an earlier call; None for zeros.
            distances: also return the distances of every layer; for ON-LSTM only.
        Returns:
            A `LanguageModelOutput`.
        Raises:
            TypeError: `tokens` is not a tensor, or `state` does not consist of pairs.
            ValueError: `tokens` does not have two axes, `state` has the wrong number of layers, or
                `distances` is requested from an LSTM.
            RuntimeError: T is 0, or `state` has a different batch size.
            IndexError: an id is outside the vocabulary.
        """
        raw, dropped, new_state, all_distances = self._read(tokens, state, distances)
        return LanguageModelOutput(self._logits(dropped), new_state, raw, dropped, all_distances)

    if TYPE_CHECKING:  # the call of nn.Module takes and returns Any
        __call__ = forward

    def syntactic_distances(self, tokens: Tensor) -> Tensor:
        """The forget distances of every layer, from which trees are recovered.

        In training mode dropout acts on them, too: call `eval()` first.

        Args:
            tokens: word ids, (T, B) int64. The distance of the first word has no meaning: if the model was
                trained on running text, begin with the end of a sentence and leave out its distance.
        Returns:
            (L, T, B). A large distance means that a constituent ends before the word.
        Raises:
            ValueError: `tokens` does not have two axes, or the model is an LSTM, which has no distances.
        """
        *_, distances = self._read(tokens, None, True)  # the logits would take far longer
        assert distances is not None
        forget: Tensor = distances.forget
        return forget

    def _read(
        self, tokens: Tensor, state: Sequence[State] | None, distances: bool
    ) -> tuple[Tensor, Tensor, list[State], Distances | None]:
        """All of `forward` but the logits: `raw`, `dropped`, `state` and `distances` of its result."""
        check_tensor("tokens", tokens)
        if tokens.dim() != 2:
            raise ValueError(f"tokens must be (T, B), got shape {tuple(tokens.shape)}")
        if distances and self.recurrent != "onlstm":
            raise ValueError("distances=True: an LSTM has no distances")
        if state is not None and len(state) != len(self.layers):
            raise ValueError(f"state must have {len(self.layers)} layers, got {len(state)}")
        for i, pair in enumerate(state or ()):
            check_pair(pair, name=f"state[{i}]")
        x = self._locked(self._embed(tokens), self.input_dropout)
        raw, new_state, all_distances = x, [], []
        for index, layer in enumerate(self.layers):
            layer_state = None if state is None else state[index]
            if self.recurrent == "onlstm":
                raw, next_state, layer_distances = layer(x, layer_state, distances=True)
                all_distances.append(layer_distances)
            else:
                with autocast_of_lstm(x.device):
                    raw, next_state = self._run_lstm(layer, x, layer_state)
            new_state.append(next_state)
            is_last = index == len(self.layers) - 1
            x = self._locked(raw, self.output_dropout if is_last else self.hidden_dropout)
        stacked = (
            Distances(*(torch.cat(tensors) for tensors in zip(*all_distances, strict=True)))
            if distances
            else None
        )
        return raw, x, new_state, stacked

    def _run_lstm(self, lstm: nn.Module, x: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Run an nn.LSTM with DropConnect, which the module itself does not support."""
        weights: dict[str, Tensor] = {}
        if self.training and self.weight_dropout > 0:
            name, parameters = "weight_hh_l0", dict(lstm.named_parameters())
            if name not in lstm._parameters:
                raise ValueError(
                    f"weight_dropout={self.weight_dropout:g} drops entries of {name}, which must be a "
                    f"parameter of each LSTM, got {type(lstm).__name__} with "
                    f"{', '.join(parameters) or 'none'}: set weight_dropout = 0"
                )
            weights[name] = F.dropout(parameters[name], self.weight_dropout)
        output, new_state = functional_call(lstm, weights, (x, state)) if weights else lstm(x, state)
        return output, new_state


# `torch.load(weights_only=True)` accepts a pickled model.
add_safe_globals([LanguageModel, nn.Embedding, nn.LSTM])
