"""PRPN, the Parsing-Reading-Predict Network of Shen et al. (2018): a language model with syntactic distances.

Equation numbers are those of the ICLR version of "Neural Language Modeling by Jointly Learning Syntax and
Lexicon".

Axes: T time, B batch, V vocabulary, E embedding, H hidden, L look-back, N memory slots (oldest first).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import hardtanh, pad

from onlstm.language_model import LanguageModelBase, LanguageModelOutput
from onlstm.parameters import State
from ordered_memory.checks import check_fraction, check_tensor, positive_int
from ordered_memory.dropout import draw_mask

TEMPERATURE = 10.0
"""τ of equation (9): α goes from 0 to 1 while a difference of distances goes from -1/τ to 1/τ."""
EPSILON = 1e-8
"""Added to the sum of attention weights, which is 0 if all gates are closed. In float16, which has no such
number, the smallest normal one is added."""


class PRPN(LanguageModelBase):
    """A language model whose attention reaches back to the start of the current constituent.

    The parsing network computes the syntactic distance between each word and the previous one from the word
    and the L words before it. The distances determine gates on the memories of the last N words. Both the
    reading network, which is recurrent, and the predict network, whose output gives the logits, use these
    gates, and gradients flow through them to the distances. As in the paper's word-level model, the predict
    network has no residual block.

    Args:
        vocabulary_size: V, number of words.
        embedding_size: E, embedding size, which is also the output size of the predict network.
        hidden_size: H, hidden size of all layers.
        num_layers: number of layers of the reading network.
        num_slots: N, number of previous words that attention can reach.
        look_back: L, number of previous words that a distance depends on.
        tied: whether the output layer shares the embedding's weights.
        embedding_dropout: probability of dropping all occurrences of a word in a call, in [0, 1].
        input_dropout: dropout probability on embeddings, in [0, 1].
        hidden_dropout: dropout probability on the output of each layer except the last, in [0, 1].
        output_dropout: dropout probability on the output of the predict network, in [0, 1].
        recurrent_dropout: dropout probability on the recurrent state, with one mask per call, in [0, 1].
        vocabulary: the V words in the order of their ids, saved with the model; None if they are not known.
    Raises:
        ValueError: an argument is out of range.
    Example:
        >>> model = PRPN(10, 6, 8)
        >>> model(torch.zeros(5, 3, dtype=torch.int64)).logits.shape
        torch.Size([5, 3, 10])
    """

    def __init__(
        self,
        vocabulary_size: int,
        embedding_size: int = 800,
        hidden_size: int = 1200,
        num_layers: int = 2,
        *,
        num_slots: int = 15,
        look_back: int = 5,
        tied: bool = True,
        embedding_dropout: float = 0.0,
        input_dropout: float = 0.7,
        hidden_dropout: float = 0.5,
        output_dropout: float = 0.7,
        recurrent_dropout: float = 0.5,
        vocabulary: Sequence[str] | None = None,
    ) -> None:
        vocabulary_size = positive_int("vocabulary_size", vocabulary_size)
        embedding_size = positive_int("embedding_size", embedding_size)
        hidden_size = positive_int("hidden_size", hidden_size)
        num_layers = positive_int("num_layers", num_layers)
        num_slots = positive_int("num_slots", num_slots)
        look_back = positive_int("look_back", look_back)
        check_fraction(recurrent_dropout=recurrent_dropout)
        super().__init__(
            vocabulary_size,
            embedding_size,
            embedding_size,
            tied=tied,
            embedding_dropout=embedding_dropout,
            vocabulary=vocabulary,
        )
        self.hidden_size = hidden_size
        self.num_slots = num_slots
        self.look_back = look_back
        self.input_dropout = input_dropout
        self.hidden_dropout = hidden_dropout
        self.output_dropout = output_dropout
        self.parser = ParsingNetwork(embedding_size, hidden_size, look_back)
        self.readers = nn.ModuleList(
            ReadingLayer(hidden_size if layer else embedding_size, hidden_size, recurrent_dropout)
            for layer in range(num_layers)
        )
        self.predictor = PredictNetwork(hidden_size, embedding_size)
        self.reset_words()

    def forward(self, tokens: Tensor, state: Sequence[State] | None = None) -> LanguageModelOutput:
        """Compute the logits of the next words.

        Outputs depend only on earlier tokens, so padding at the end of a text has no effect on it.

        Args:
            tokens: word ids, (T, B) int64.
            state: the state that an earlier call returned; None if there are no earlier words.
        Returns:
            A `LanguageModelOutput` without distances; `raw` and `dropped` are the output of the predict
            network before and after dropout. The state has h and c of the last N words for each layer, (N, B,
            H) each, and as its last pair the embeddings of the last L words, (L, B, E), and the last N - 1
            distances, (N - 1, B).
        Raises:
            TypeError: `tokens` is not a tensor.
            ValueError: `tokens` does not have two axes, or `state` has another number of layers.
            RuntimeError: T is 0.
        """
        x = self._read_words(tokens)
        if state is None:
            state = self._initial_state(x)
        elif len(state) != len(self.readers) + 1:
            raise ValueError(
                f"state must have {len(self.readers) + 1} pairs, of the layers and of the parsing network, "
                f"got {len(state)}"
            )
        *memories, (words, earlier_distances) = state
        words = torch.cat([words, x])
        distances, estimates = self.parser(words)
        all_distances = torch.cat([earlier_distances, distances])
        # For each word t: d_{t-N+1}, …, d_t.
        windows = all_distances.unfold(0, self.num_slots, 1).movedim(-1, 0)
        reading_gates = pad(memory_gates(distances, windows[:-1]), (0, 0, 0, 0, 0, 1), value=1.0)
        new_state = []
        for layer, reader in enumerate(self.readers):
            if layer:
                x = self._locked(x, self.hidden_dropout)
            x, layer_state = reader(x, memories[layer], reading_gates)
            new_state.append(layer_state)
        new_state.append((words[len(tokens) :], all_distances[len(tokens) :]))
        raw = self.predictor(torch.cat([memories[-1][0], x]), memory_gates(estimates, windows))
        dropped = self._locked(raw, self.output_dropout)
        return LanguageModelOutput(self._logits(dropped), new_state, raw, dropped, None)

    def syntactic_distances(self, tokens: Tensor) -> Tensor:
        x = self._read_words(tokens)
        words, _ = self._initial_state(x)[-1]
        distances, _ = self.parser(torch.cat([words, x]))
        result: Tensor = distances.unsqueeze(0)
        return result

    def _read_words(self, tokens: Tensor) -> Tensor:
        """Embeddings after dropout, (T, B, E)."""
        check_tensor("tokens", tokens)
        if tokens.dim() != 2:
            raise ValueError(f"tokens must be (T, B), got shape {tuple(tokens.shape)}")
        if len(tokens) == 0:
            raise RuntimeError("Expected sequence length to be larger than 0, got 0")
        return self._locked(self._embed(tokens), self.input_dropout)

    def _initial_state(self, x: Tensor) -> list[State]:
        """The initial state: memories of zeros; infinite distances close the gates of all but one of them."""
        batch = x.shape[1]
        memories = [x.new_zeros(self.num_slots, batch, self.hidden_size)] * len(self.readers)
        parser_state = (
            x.new_zeros(self.look_back, *x.shape[1:]),
            x.new_full((self.num_slots - 1, batch), torch.inf),
        )
        return [*((memory, memory) for memory in memories), parser_state]


def memory_gates(distances: Tensor, previous_distances: Tensor) -> Tensor:
    """Compute the gates of previous words: attention stops at the first distance larger than the word's own.

    PRPN, equations (5) and (9): g_i^t = Π_{j=i+1}^{t-1} α_j^t, α_j^t = (hardtanh((d_t - d_j) τ) + 1) / 2.
    The paper prints d_{j+1} in (9), with which (8) would not follow from (5).

    Args:
        distances: d_t, of any shape.
        previous_distances: d_{t-K}, …, d_{t-1} for each d_t, (K, …).
    Returns:
        g_i^t in [0, 1] for the words i = t-K-1, …, t-2, (K, …); the gate of word t-1 is always 1.
    Example:
        >>> memory_gates(torch.tensor(0.5), torch.tensor([0.2, 0.9, 0.1]))
        tensor([0., 0., 1.])
    """
    alpha = (hardtanh((distances - previous_distances) * TEMPERATURE) + 1) / 2
    return alpha.flip(0).cumprod(0).flip(0)


def structured_attention(keys: Tensor, memories: Tensor, gates: Tensor) -> Tensor:
    """Compute gated attention weights.

    PRPN, equations (14) and (15): s̃_i = softmax_i(h_i · k / √H), s_i = g_i s̃_i / Σ_j g_j s̃_j. The paper
    prints the denominator Σ_j g_j, with which the weights would not sum to 1.

    Args:
        keys: k, (…, H).
        memories: h_i, (N, …, H).
        gates: g_i, (N, …).
    Returns:
        s, (N, …); zeros if all gates are closed.
    """
    scores = torch.einsum("n...h,...h->n...", memories, keys) / math.sqrt(keys.shape[-1])
    weights = gates * scores.softmax(0)
    return weights / (weights.sum(0) + max(EPSILON, torch.finfo(weights.dtype).tiny))


class ParsingNetwork(nn.Module):
    """Computes the syntactic distance between each word and the previous one.

    PRPN, equations (10)–(12): h_t = ReLU(norm(W_c [e_{t-L}; …; e_t] + b_c)), d_t = sigmoid(W_d h_t + b_d),
    and d'_{t+1} = sigmoid(W'_d h_t + b'_d), an estimate for the next word, which is not known yet. The paper
    has batch normalization; here norm is LayerNorm, so that the result of a text does not depend on its
    batch.

    Args:
        embedding_size: E.
        hidden_size: H.
        look_back: L.
    """

    def __init__(self, embedding_size: int, hidden_size: int, look_back: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(embedding_size, hidden_size, look_back + 1)
        self.norm = nn.LayerNorm(hidden_size)
        self.distances = nn.Linear(hidden_size, 2)

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the distances of T words.

        Args:
            words: embeddings of the L previous words and of the T words, (L + T, B, E).
        Returns:
            d_t and d'_{t+1} of each word, (T, B) in (0, 1).
        """
        hidden = self.norm(self.convolution(words.permute(1, 2, 0)).permute(2, 0, 1)).relu()
        # In full precision under autocast, since α depends on differences of the order 1/τ.
        distances, estimates = self.distances(hidden).to(words.dtype).sigmoid().unbind(-1)
        return distances, estimates


class ReadingLayer(nn.Module):
    """A layer of the reading network: an LSTM that continues from an attention-weighted mean of its states.

    PRPN, equations (13) and (16): k_t = W_h h_{t-1} + W_x x_t, s by `structured_attention`,
    h̃_t = Σ_i s_i h_i, c̃_t = Σ_i s_i c_i; then (h_t, c_t) = LSTM(x_t, (h̃_t, c̃_t)) with LayerNorm on both
    products and on c_t before the output.

    Args:
        input_size: size of x.
        hidden_size: H.
        recurrent_dropout: dropout probability on h̃, with one mask per call.
    """

    def __init__(self, input_size: int, hidden_size: int, recurrent_dropout: float) -> None:
        super().__init__()
        self.hidden_size, self.recurrent_dropout = hidden_size, recurrent_dropout
        self.key_input = nn.Linear(input_size, hidden_size)
        self.key_hidden = nn.Linear(hidden_size, hidden_size, bias=False)
        self.input = nn.Sequential(nn.Linear(input_size, 4 * hidden_size), nn.LayerNorm(4 * hidden_size))
        self.hidden = nn.Sequential(nn.Linear(hidden_size, 4 * hidden_size), nn.LayerNorm(4 * hidden_size))
        self.cell_norm = nn.LayerNorm(hidden_size)

    def forward(self, x: Tensor, memories: State, gates: Tensor) -> tuple[Tensor, State]:
        """Process T words.

        Args:
            x: (T, B, ·).
            memories: h and c of the last N words, (N, B, H) each.
            gates: g_i^t, (N, T, B).
        Returns:
            h_t, (T, B, H), and the memories after the last word.
        """
        hidden, cells = memories
        mask = x.new_ones(self.hidden_size)
        if self.training and self.recurrent_dropout:
            mask = draw_mask((self.hidden_size,), self.recurrent_dropout, x)
        outputs = []
        for key, from_input, gate in zip(self.key_input(x), self.input(x), gates.unbind(1), strict=True):
            weights = structured_attention(key + self.key_hidden(hidden[-1]), hidden, gate)
            h, c = (torch.einsum("nb,nbh->bh", weights, memory) for memory in (hidden, cells))
            i, f, candidate, o = (from_input + self.hidden(h * mask)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * candidate.tanh()
            h = o.sigmoid() * self.cell_norm(c).tanh()
            hidden, cells = torch.cat([hidden[1:], h[None]]), torch.cat([cells[1:], c[None]])
            outputs.append(h)
        return torch.stack(outputs), (hidden, cells)


class PredictNetwork(nn.Module):
    """Computes the features from which the next word is predicted.

    PRPN, equation (17): tanh(norm(W [h_{l:t-1}; h_t] + b)). h_{l:t-1} is the mean of the memories before h_t,
    weighted by `structured_attention` with a key computed from h_t and the gates of word t + 1. norm is
    LayerNorm, as in `ParsingNetwork`.

    Args:
        hidden_size: H.
        output_size: size of the features.
    """

    def __init__(self, hidden_size: int, output_size: int) -> None:
        super().__init__()
        self.key = nn.Linear(hidden_size, hidden_size)
        self.output = nn.Sequential(
            nn.Linear(2 * hidden_size, output_size), nn.LayerNorm(output_size), nn.Tanh()
        )

    def forward(self, tape: Tensor, gates: Tensor) -> Tensor:
        """Compute the features after each of T words.

        Args:
            tape: h of the N previous words and of the T words, (N + T, B, H).
            gates: g_i^{t+1} for the words i = t-N, …, t-1, (N, T, B).
        Returns:
            (T, B, ·).
        """
        num_slots = len(gates)
        h = tape[num_slots:]
        memories = tape[:-1].unfold(0, num_slots, 1).movedim(-1, 0)
        weights = structured_attention(self.key(h), memories, gates)
        summary = torch.einsum("ntb,ntbh->tbh", weights, memories)
        result: Tensor = self.output(torch.cat([summary, h], -1))
        return result
