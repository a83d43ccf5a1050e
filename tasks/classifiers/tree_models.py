"""Encoders that get the true tree as input; all nodes of the same height are computed at once.

W is the number of words in a batch, D the size of a node, n the number of nodes of one height.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ordered_memory.cells import GatedRecursiveCell
from tasks.classifiers.tree_batching import TreeBatch


class TreeModel(nn.Module):
    """Base class: composes words to sentences along given trees. Subclasses define `leaf` and `compose`."""

    def leaf(self, words: Tensor) -> Tensor:
        """Compute the leaves of the trees.

        Args:
            words: embeddings, (W, E).
        Returns:
            (W, ·); the subclass determines the last size.
        """
        raise NotImplementedError

    def compose(self, left: Tensor, right: Tensor) -> Tensor:
        """Compute parents from their children.

        Args:
            left: left children, (n, ·).
            right: right children, (n, ·).
        Returns:
            (n, ·).
        """
        raise NotImplementedError

    def summary(self, nodes: Tensor) -> Tensor:
        """Compute the summaries of sentences from their roots.

        Args:
            nodes: the roots, (B, ·).
        Returns:
            (B, D).
        """
        return nodes

    def forward(self, words: Tensor, trees: TreeBatch) -> Tensor:
        """Compute the summaries of sentences, bottom-up.

        Args:
            words: embeddings, (W, E), in the order of `trees.words`.
            trees: trees of B sentences.
        Returns:
            (B, D).
        """
        nodes = self.leaf(words)
        # The groups that wait for their parents, by the height of these; roots come last.
        waiting: list[list[Tensor]] = [[] for _ in range(len(trees.sizes) + 1)]
        for height, (parents, sizes) in enumerate(zip(trees.parents, trees.sizes, strict=True)):
            if height:
                children = torch.cat(waiting[height]).index_select(0, trees.children[height - 1])
                nodes = self.compose(*children.chunk(2))
                waiting[height] = []
            for parent, group in zip(parents, nodes.split(sizes), strict=True):
                waiting[parent].append(group)
        return self.summary(torch.cat(waiting[-1]).index_select(0, trees.roots))


class TreeCell(TreeModel):
    """The Gated Recursive Cell on given trees, with Ordered Memory's input projection and shared LayerNorm.

    This is "Tree-cell" in Table 1 of the Ordered Memory paper. A leaf is LN(W x + b), an inner node
    LN(cell(left, right)).

    Args:
        input_size: embedding size.
        size: D.
        dropout: dropout in the cell, before each linear layer.
    """

    def __init__(self, input_size: int, size: int, dropout: float) -> None:
        super().__init__()
        self.projection = nn.Linear(input_size, size)
        self.norm = nn.LayerNorm(size)
        self.cell = GatedRecursiveCell(size, dropout)

    def leaf(self, words: Tensor) -> Tensor:
        nodes: Tensor = self.norm(self.projection(words))
        return nodes

    def compose(self, left: Tensor, right: Tensor) -> Tensor:
        nodes: Tensor = self.norm(self.cell(left, right))
        return nodes


class TreeRNN(TreeModel):
    """The TreeRNN of Bowman et al. (2015): a leaf is tanh(V x + c), an inner node tanh(W [left; right] + b).

    Initial weights are those of Glorot and Bengio (2010). With those of nn.Linear, nodes would
    differ only a little more than half as much as their children, and the roots of deep trees would be nearly
    the same.

    Args:
        input_size: embedding size.
        size: D.
        dropout: before the linear layer of inner nodes.
    """

    def __init__(self, input_size: int, size: int, dropout: float) -> None:
        super().__init__()
        self.projection = nn.Linear(input_size, size)
        self.composition = nn.Linear(2 * size, size)
        for linear in (self.projection, self.composition):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
        self.dropout = nn.Dropout(dropout)

    def leaf(self, words: Tensor) -> Tensor:
        return torch.tanh(self.projection(words))

    def compose(self, left: Tensor, right: Tensor) -> Tensor:
        return torch.tanh(self.composition(self.dropout(torch.cat([left, right], dim=-1))))


class TreeLSTM(TreeModel):
    """The N-ary Tree-LSTM of Tai et al. (2015), §3.2, with N = 2 and words only at the leaves.

    A node is [h; c]. Inner nodes are computed by `compose_tree_lstm`, with the linear layer of
    `tree_lstm_composition`. At a leaf, c = i u and h = o tanh c, where the gates i, o and the update u come
    from W x + b.

    Args:
        input_size: embedding size.
        size: D.
        dropout: before the linear layer of inner nodes.
    """

    def __init__(self, input_size: int, size: int, dropout: float) -> None:
        super().__init__()
        self.size = size
        self.projection = nn.Linear(input_size, 3 * size)
        self.composition = tree_lstm_composition(size)
        self.dropout = nn.Dropout(dropout)

    def leaf(self, words: Tensor) -> Tensor:
        gates, update = self.projection(words).split((2 * self.size, self.size), dim=-1)
        input_gate, output_gate = torch.sigmoid(gates).chunk(2, dim=-1)
        return _lstm_node(output_gate, input_gate * torch.tanh(update))

    def compose(self, left: Tensor, right: Tensor) -> Tensor:
        return compose_tree_lstm(left, right, lambda h: self.composition(self.dropout(h)))

    def summary(self, nodes: Tensor) -> Tensor:
        return nodes[..., : self.size]


def tree_lstm_composition(size: int) -> nn.Linear:
    """Make the linear layer of a binary Tree-LSTM, [h_l; h_r] → i, f_l, f_r, o, u, as Choi et al. (2018) do.

    Initial weights are orthogonal; biases are 1 for the forget gates f_l and f_r, else 0. With biases of 0 a
    parent would begin as half the sum of its children, and roots of deep trees would be nearly the same.

    Args:
        size: D.
    Returns:
        A layer that maps (…, 2D) to (…, 5D).
    """
    layer = nn.Linear(2 * size, 5 * size)
    nn.init.orthogonal_(layer.weight)
    with torch.no_grad():
        layer.bias.zero_()
        layer.bias[size : 3 * size] = 1.0
    return layer


def compose_tree_lstm(left: Tensor, right: Tensor, units: Callable[[Tensor], Tensor]) -> Tensor:
    """Compute the parents of pairs of nodes [h; c] in a binary Tree-LSTM.

    i, f_l, f_r, o = σ(…), u = tanh(…) of U [h_l; h_r] + b; c = i u + f_l c_l + f_r c_r; h = o tanh c.

    Args:
        left: left children, (…, 2D).
        right: right children, (…, 2D).
        units: the linear map from [h_l; h_r] to i, f_l, f_r, o, u before their nonlinearities,
            (…, 2D) → (…, 5D).
    Returns:
        (…, 2D).
    """
    (h_left, c_left), (h_right, c_right) = left.chunk(2, dim=-1), right.chunk(2, dim=-1)
    size = h_left.shape[-1]
    gates, update = units(torch.cat([h_left, h_right], dim=-1)).split((4 * size, size), dim=-1)
    input_gate, forget_left, forget_right, output_gate = torch.sigmoid(gates).chunk(4, dim=-1)
    c = input_gate * torch.tanh(update) + forget_left * c_left + forget_right * c_right
    return _lstm_node(output_gate, c)


def _lstm_node(output_gate: Tensor, c: Tensor) -> Tensor:
    return torch.cat([output_gate * torch.tanh(c), c], dim=-1)
