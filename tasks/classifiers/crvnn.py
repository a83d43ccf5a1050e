"""CRvNN, the Continuous Recursive Neural Network of Chowdhury and Caragea (2021), arXiv 2106.06038.

A recursive network repeatedly replaces two neighbors by their parent. In CRvNN the parent takes the place of
the right neighbor, and the left one ceases to exist, both with a probability. So everything is
differentiable, and many parents are composed in one step.

B is the batch size, T the length of the longest sequence, S = T + 2 with START and END around it, E the
embedding size, D the size of a node.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu
from torch.utils.checkpoint import checkpoint

from ordered_memory.devices import copy_to
from tasks.classifiers.encoded import Encoded

FEATURES = 64
"""Size of the feature vectors f and g, which say whether the last step composed a node."""
STOP_BELOW = 0.01
"""A node that exists with a smaller probability counts as gone when a sequence decides whether to halt."""
EPSILON = 1e-8
"""ε, which bounds the gradients. Without it, those of the existential probabilities are as large as the ratio
of the s of neighbors, and the product over the steps overflows when decisions are far apart."""
JOIN_FROM = 0.5
"""A node is joined with its right neighbor when its c of all steps until then add up to this."""
HALT_PENALTY = 0.01
"""Weight of the penalty for sequences that do not halt by themselves."""


class Nodes(NamedTuple):
    """The nodes of a batch.

    Args:
        values: r, (B, S, D).
        existence: e, the existential probability, (B, S); 0 for padding.
        composed: l, the probability that the last step composed a node with its left neighbor, (B, S).
    """

    values: Tensor
    existence: Tensor
    composed: Tensor


class CRvNN(nn.Module):
    """The Continuous Recursive Neural Network: soft trees, bottom up.

    Nodes are START, the n tokens and END. At the start r_i = LN(W x_i + b), e_i = 1 and l_i = 0. Each step::

        R_ik = min(1, Σ_{i<j≤k} e_j) - min(1, Σ_{i<j<k} e_j)          k > i, else 0: the right neighbor
        L                                                            the left neighbor, mirrored
        u_i  = w · gelu(V [LLr; Lr; r; Rr; RRr; l f + (1 - l) g]_i + a) + d
        s_i  = exp(u_i)                                              0 for START, END and the last token
        c_i  = s_i / (1 + s_i + (L s)_i + (R s)_i + 4 ε m)           modulated sigmoid
        l_i  = (L c)_i                                               0 for START and END
        r_i  ← l_i LN(cell((L r)_i, r_i)) + (1 - l_i) r_i
        e_i  ← e_i (1 - c_i)

    m is the maximum of 1 and all s of the sequence, and ε is `EPSILON`. The cell is the Gated Recursive Cell
    with gelu instead of relu; f and g are learned vectors. A sequence halts when no token but the last exists
    with a probability above `STOP_BELOW`, or else after n steps. Its summary is the r of the last token.

    In evaluation mode the encoder also gives trees (`read_merges`).

    Args:
        input_size: E.
        size: D.
        dropout: dropout on the hidden units of the cell.
        recompute_every: activation checkpointing: number of steps between stored nodes. The steps in between
            are computed again in the backward pass. None stores every step.
    """

    def __init__(
        self, input_size: int, size: int, dropout: float, *, recompute_every: int | None = None
    ) -> None:
        super().__init__()
        self.recompute_every = recompute_every
        self.start, self.end = (nn.Parameter(torch.randn(input_size)) for _ in range(2))
        self.after_composing, self.after_staying = (nn.Parameter(torch.randn(FEATURES)) for _ in range(2))
        self.projection = _linear(input_size, size)
        self.norm = nn.LayerNorm(size)
        self.decision = nn.Sequential(_linear(5 * size + FEATURES, size), nn.GELU(), _linear(size, 1))
        self.cell_hidden = _linear(2 * size, 4 * size)
        self.cell_output = _linear(4 * size, 4 * size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, embedded: Tensor, lengths: Tensor) -> Encoded:
        """Compose a batch of sequences.

        Args:
            embedded: tokens, (B, T, E), padded on the right.
            lengths: (B,) int64, at least 1.
        Returns:
            Summaries, (B, D), and the penalty of each sequence, (B,): 0 if it halted by itself, else
            `HALT_PENALTY` times -log(e_n / Σ_i e_i) over its tokens. In evaluation mode also merges, unless
            steps are computed again.
        """
        lengths = copy_to(lengths, embedded.device)
        positions = torch.arange(embedded.shape[1] + 2, device=embedded.device)
        end = lengths.unsqueeze(1) + 1
        is_token = (positions > 0) & (positions < end)
        existence = (positions <= end).to(self.start.dtype)
        nodes = Nodes(
            self.norm(self.projection(self._augment(embedded, positions == end))),
            existence,
            torch.zeros_like(existence),
        )
        may_vanish = is_token & (positions < end - 1)  # the last token stays
        steps = range(embedded.shape[1])
        decisions: list[Tensor] | None = None if self.training else []
        if self.recompute_every is None or not torch.is_grad_enabled():
            nodes = self._take_steps(steps, nodes, lengths, is_token, may_vanish, decisions)
        else:
            for first in steps[:: self.recompute_every]:
                segment = steps[first : first + self.recompute_every]
                nodes = checkpoint(
                    self._take_steps, segment, nodes, lengths, is_token, may_vanish, use_reentrant=False
                )
        rows = torch.arange(len(lengths), device=embedded.device)
        total_existence = (nodes.existence * is_token).sum(1)
        penalty = (total_existence / nodes.existence[rows, lengths]).log()
        unfinished = _unfinished(nodes.existence, is_token)
        return Encoded(
            nodes.values[rows, lengths],
            merges=read_merges(torch.stack(decisions), lengths) if decisions else None,
            penalty=HALT_PENALTY * penalty * unfinished,
        )

    def _take_steps(
        self,
        steps: range,
        nodes: Nodes,
        lengths: Tensor,
        is_token: Tensor,
        may_vanish: Tensor,
        decisions: list[Tensor] | None = None,
    ) -> Nodes:
        """Take these steps with the sequences that have not halted.

        c of each step, (B, T - 1), is appended to `decisions`, if that is given.
        """
        for step in steps:
            rows = (_unfinished(nodes.existence, is_token) & (step < lengths)).nonzero().squeeze(1)
            if not len(rows):
                break
            running = Nodes(*(tensor.index_select(0, rows) for tensor in nodes))
            stepped, chosen = self.step(running, may_vanish[rows])
            nodes = Nodes(*(old.index_copy(0, rows, new) for old, new in zip(nodes, stepped, strict=True)))
            if decisions is not None:
                decisions.append(torch.zeros_like(nodes.existence).index_copy(0, rows, chosen)[:, 1:-2])
        return nodes

    def step(self, nodes: Nodes, may_vanish: Tensor) -> tuple[Nodes, Tensor]:
        """Compute one step of sequences that have not halted.

        Args:
            nodes: before the step.
            may_vanish: all tokens except the last of each sequence, (B, S) bool.
        Returns:
            The nodes after the step, and c, (B, S).
        """
        values, existence, composed = nodes
        neighbors = find_neighbors(existence)
        # L r and R r, (B, 2, S, D), then L L r and R R r
        near = (neighbors.flatten(1, 2) @ values).unflatten(1, (2, -1))
        far = neighbors @ near

        # Decisions and parents are the costly part. Both are computed for the n - 1 tokens that need them.
        places = may_vanish.flatten().nonzero().squeeze(1)
        parts = [far[:, 0], near[:, 0], values, near[:, 1], far[:, 1], composed.unsqueeze(-1)]
        *window, was_composed = (_select(part, places) for part in parts)
        history = torch.lerp(self.after_staying, self.after_composing, was_composed)
        decisions = self.decision(torch.cat([*window, history], dim=-1)).squeeze(-1)
        impossible = torch.full_like(existence, -torch.inf)
        decisions = impossible.masked_scatter(may_vanish, decisions.to(existence.dtype))
        chosen = _modulated_sigmoid(decisions, neighbors.sum(1))

        # Parents take the places of all tokens but the first, whose left neighbor START does not vanish.
        composing = _weighted_sum(neighbors[:, 0], chosen)
        parent_places = places + 1
        left, right, weight = (
            _select(part, parent_places) for part in (near[:, 0], values, composing.unsqueeze(-1))
        )
        parents = self.norm(self.cell(left, right))
        mixed = torch.lerp(right, parents.to(values.dtype), weight.to(values.dtype))
        stepped = Nodes(
            values.flatten(0, 1).index_copy(0, parent_places, mixed).view_as(values),
            existence * (1 - chosen),
            composing.to(existence.dtype),
        )
        return stepped, chosen.to(existence.dtype)

    def cell(self, left: Tensor, right: Tensor) -> Tensor:
        """Compute parents, before the LayerNorm.

        Args:
            left, right: children, (..., D).
        """
        units = self.cell_output(self.dropout(gelu(self.cell_hidden(torch.cat([left, right], dim=-1)))))
        gates, update = units.split((3 * left.shape[-1], left.shape[-1]), dim=-1)
        left_gate, right_gate, update_gate = gates.sigmoid().chunk(3, dim=-1)
        parents: Tensor = left_gate * left + right_gate * right + update_gate * update
        return parents

    def _augment(self, embedded: Tensor, is_end: Tensor) -> Tensor:
        """Add START before the tokens and END after them, (B, S, E)."""
        start = self.start.expand(len(embedded), 1, -1)
        tokens = torch.cat([start, embedded, torch.zeros_like(start)], dim=1)
        return torch.where(is_end.unsqueeze(-1), self.end, tokens)


def read_merges(decisions: Tensor, lengths: Tensor) -> Tensor:
    """Read trees from the decisions of all steps, as the authors' code does.

    A node is joined with its right neighbor in the step in which its c of all steps until then add up to
    `JOIN_FROM`. Of nodes that are joined in the same step, that with the largest sum comes first, and nodes
    that are not joined in any step follow in this order.

    Args:
        decisions: c of all tokens but the last in K steps, (K, B, T - 1); 0 for padding and for sequences
            that have halted.
        lengths: (B,) int64.
    Returns:
        `Encoded.merges`, (B, T - 1).
    Example:
        >>> read_merges(torch.tensor([[[0.1, 0.4, 0.9]], [[0.3, 0.4, 0.0]]]), torch.tensor([4]))
        tensor([[2, 1, 0]])
    """
    sums = decisions.float().cumsum(0)
    is_joined = sums >= JOIN_FROM
    steps = torch.where(is_joined.any(0), is_joined.int().argmax(0), len(sums))
    sums_then = sums.gather(0, steps.clamp(max=len(sums) - 1).unsqueeze(0)).squeeze(0)
    is_gap = torch.arange(steps.shape[1], device=steps.device) < lengths.unsqueeze(1) - 1
    order = torch.where(is_gap, steps - sums_then / 4, torch.inf).argsort(dim=1, stable=True)
    # Of the nodes to the left of a token, those that were joined before are gone.
    is_left = order.unsqueeze(1) < order.unsqueeze(2)
    return order - is_left.tril(-1).sum(-1)


def find_neighbors(existence: Tensor) -> Tensor:
    """Compute L and R, the soft neighbors: R_ik is the probability that k is the right neighbor of i.

    Args:
        existence: e, (B, S).
    Returns:
        L and R, (B, 2, S, S); each row sums to at most 1.
    Example:
        >>> find_neighbors(torch.tensor([[1.0, 0.25, 0.5, 1.0]]))[0, 1, 0]
        tensor([0.0000, 0.2500, 0.5000, 0.2500])
    """
    size = existence.shape[1]
    both = torch.stack([existence.flip(1), existence], dim=1)
    later = both.unsqueeze(2).expand(-1, -1, size, -1).triu(1)
    reached = later.cumsum(-1)
    mirrored, right = (reached.clamp(max=1) - (reached - later).clamp(max=1)).unbind(1)
    return torch.stack([mirrored.flip(1, 2), right], dim=1)


def _modulated_sigmoid(decisions: Tensor, neighbors: Tensor) -> Tensor:
    """Compute c from u and L + R, (B, S): a node is less likely to vanish if a neighbor does; 0 for -inf."""
    # All terms are divided by m, so that nothing overflows.
    shift = decisions.amax(1, keepdim=True).clamp(min=0)
    stay, vanish = (-shift).exp(), (decisions - shift).exp()
    return vanish / (stay + vanish + _weighted_sum(neighbors, vanish) + 4 * EPSILON)


def _weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Sum the values of all nodes with the weights of each: (B, S, S) weights and (B, S) values → (B, S)."""
    return (weights @ values.unsqueeze(-1)).squeeze(-1)


def _select(values: Tensor, places: Tensor) -> Tensor:
    """Select nodes by their places in the flattened batch: (B, S, D) values and (n,) places → (n, D)."""
    return values.flatten(0, 1).index_select(0, places)


def _unfinished(existence: Tensor, is_token: Tensor) -> Tensor:
    """Whether more than one token still exists, (B,)."""
    return ((existence > STOP_BELOW) & is_token).sum(1) > 1


def _linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
