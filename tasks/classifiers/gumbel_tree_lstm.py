"""Gumbel Tree-LSTM: a Tree-LSTM that learns from the task which neighbors to merge.

B is the batch size, T the length of the longest sequence, E the embedding size, D the size of a summary, M
the number of remaining nodes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gumbel_softmax, one_hot

from ordered_memory.devices import copy_to
from ordered_memory.packing import unpack
from tasks.classifiers.encoded import Encoded
from tasks.classifiers.tree_models import compose_tree_lstm, tree_lstm_composition


class GumbelTreeLSTM(nn.Module):
    """Choi, Yoo and Lee (2018), "Learning to Compose Task-Specific Tree Structures", with the leaf LSTM.

    The leaves come from an LSTM over the tokens; a node is r = [h; c]:

        r_i = LSTM(x_i, r_{i-1}),  r_0 = 0                                    (13)

    Until one node is left, the candidates are the parents of all pairs of neighbors. A query vector q scores
    them, and one of them replaces its children:

        r̃_i = Tree-LSTM(r_i, r_{i+1})                                         (1–3)
        v_i = exp(q · h̃_i) / Σ_j exp(q · h̃_j)                                (12)
        r_j ← r_j (j < i),  r̃_j (j = i),  r_{j+1} (j > i)                      (11)

    In evaluation i = argmax v. In training i is sampled: y = softmax((log v + g) / τ) with Gumbel noise g and
    τ = 1 (8), i = argmax y (9). The backward pass uses y instead of the one-hot vector of i (straight-
    through estimator). The summary is the h of the last node.

    A sequence with one node left keeps it while longer sequences continue. Each step computes all candidates
    of a sequence, so the cost grows with the square of its length.

    Initial weights are those of the authors' code; the forget gates of the leaf LSTM, too, have a bias of 1.

    Args:
        input_size: E.
        size: D.
        dropout: before the linear layer of the Tree-LSTM.
    """

    def __init__(self, input_size: int, size: int, dropout: float) -> None:
        super().__init__()
        self.leaf = nn.LSTMCell(input_size, size)
        nn.init.kaiming_normal_(self.leaf.weight_ih)
        nn.init.orthogonal_(self.leaf.weight_hh)
        with torch.no_grad():
            self.leaf.bias_ih.zero_()
            self.leaf.bias_hh.zero_()
            self.leaf.bias_ih[size : 2 * size] = 1.0
        self.composition = tree_lstm_composition(size)
        self.dropout = nn.Dropout(dropout)
        self.query = nn.Parameter(torch.empty(size))
        nn.init.normal_(self.query, std=0.01)

    def forward(self, embedded: Tensor, lengths: Tensor) -> Encoded:
        """Encode a batch of sequences.

        Args:
            embedded: (B, T, E), padded on the right.
            lengths: (B,) int64, at least 1.
        Returns:
            Summaries, (B, D), and merges, (B, T - 1): i of each step.
        """
        nodes = self._leaves(embedded)
        steps = embedded.shape[1] - 1
        lengths = lengths.cpu()  # so that nothing waits for a device to count the candidates
        merges = torch.zeros(len(nodes), steps, dtype=torch.int64, device=nodes.device)
        for step in range(steps):
            left, right = nodes[:, :-1], nodes[:, 1:]
            exists = torch.arange(steps - step, device="cpu") < lengths.unsqueeze(1) - 1 - step
            places = copy_to(exists.flatten().nonzero().squeeze(1), nodes.device)
            parents = self._parents(left, right, places)
            chosen = self._choose(parents.chunk(2, dim=-1)[0], copy_to(exists, nodes.device))
            merges[:, step] = chosen.argmax(-1)
            chosen = chosen.unsqueeze(-1)
            at_or_after = chosen.cumsum(1)  # 1 from the chosen position on; 0 everywhere if one node is left
            nodes = (1 - at_or_after) * left + chosen * parents + (at_or_after - chosen) * right
        return Encoded(nodes[:, 0].chunk(2, dim=-1)[0], merges=merges)

    def _leaves(self, embedded: Tensor) -> Tensor:
        """(B, T, E) → (B, T, 2D)."""
        state, nodes = None, []
        for token in embedded.unbind(1):
            state = self.leaf(token, state)
            nodes.append(torch.cat(state, dim=-1))
        return torch.stack(nodes, dim=1)

    def _parents(self, left: Tensor, right: Tensor, places: Tensor) -> Tensor:
        """Compute the candidates that exist; the others are zero, (B, M - 1, 2D).

        Args:
            left, right: children, (B, M - 1, 2D).
            places: the candidates that have both children, by their index in the flattened batch, (n,).
        """
        lefts, rights = (child.flatten(0, 1).index_select(0, places) for child in (left, right))
        parents = compose_tree_lstm(lefts, rights, lambda h: self.composition(self.dropout(h)))
        return unpack(parents, 0, places, left.shape[0] * left.shape[1]).view_as(left)

    def _choose(self, hidden: Tensor, exists: Tensor) -> Tensor:
        """Choose one of the candidates.

        Args:
            hidden: h̃, (B, M - 1, D).
            exists: which candidates have both children, (B, M - 1) bool.
        Returns:
            One-hot, (B, M - 1); all zeros for a sequence without candidates.
        """
        # These scores differ from log v by a constant, which changes neither softmax nor argmax.
        scores = (hidden * self.query).sum(-1)
        scores = scores.masked_fill(~exists, torch.finfo(scores.dtype).min)
        if self.training:
            chosen = gumbel_softmax(scores, tau=1.0, hard=True)
        else:
            chosen = one_hot(scores.argmax(-1), scores.shape[-1])
        return chosen * exists
