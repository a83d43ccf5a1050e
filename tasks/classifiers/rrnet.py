"""RRNet, the recurrent-recursive network of Jacob, Lin, Sordoni and Bengio (2018), W18-3020.

At each token a recurrent network pushes its hidden state on a stack, averages it with the top of the stack,
or does neither. These actions are sampled and learned by policy gradient.

B is the batch size, T the length of the longest sequence, E the embedding size, D the hidden size, S the
maximum depth of the stack.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gumbel_softmax

from ordered_memory.devices import copy_to
from ordered_memory.packing import pack_indices, unpack
from tasks.classifiers.encoded import Encoded, Rollout

SPLIT, RECUR, MERGE = range(3)
"""The actions."""
VALUE_WEIGHT = 0.1
"""Weight of the squared error of the value."""
ENTROPY_WEIGHT = 0.02
"""Weight of the entropy of the policy."""


class RRNet(nn.Module):
    """The recurrent-recursive network, with one layer.

    The equations are those of the authors' code for language models. s is the top of the stack, or 0 if the
    stack is empty; h_0 = c_0 = 0. For each token::

        π          = softmax(W₂ tanh(LN(W₁ [h_{t-1}; s; x_t] + b₁)) + b₂)    over split, recur and merge
        v          = W₄ tanh(LN(W₃ [h_{t-1}; s; x_t] + b₃)) + b₄
        i, f, g, o = LN(W x_t + b) + LN(U h_{t-1} + d)
        c_t        = σ(f) ∘ c_{t-1} + σ(i) ∘ tanh(g)
        h'         = σ(o) ∘ tanh(LN(c_t))
        h_t        = h'               split: push h'
                   = h'               recur
                   = (h' + s) / 2     merge: pop s

    The probability of merge is 0 if the stack is empty, and that of split if it is full. In training the
    action is sampled from π; in evaluation it is the most probable one.

    Two things are choices for classification: the summary of a sequence is h of its last token, and the
    reward comes at the end of the sequence (`policy_gradient_loss`).

    Args:
        input_size: E, also the hidden size of the networks for π and v.
        size: D.
        num_slots: S. Setting the attribute takes effect at the next call.
        dropout: dropout on h_{t-1} as input of the gates, with one mask for all tokens of a sequence.
    """

    def __init__(self, input_size: int, size: int, num_slots: int, dropout: float) -> None:
        super().__init__()
        self.size, self.num_slots = size, num_slots
        self.policy = _perceptron(2 * size + input_size, input_size, 3)
        self.value = _perceptron(2 * size + input_size, input_size, 1)
        self.input_gates = nn.Sequential(nn.Linear(input_size, 4 * size), nn.LayerNorm(4 * size))
        self.hidden_gates = nn.Sequential(nn.Linear(size, 4 * size), nn.LayerNorm(4 * size))
        self.cell_norm = nn.LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, embedded: Tensor, lengths: Tensor) -> Encoded:
        """Encode a batch of sequences.

        Args:
            embedded: (B, T, E), padded on the right.
            lengths: (B,) int64, at least 1.
        Returns:
            Summaries, (B, D), and the actions taken.
        """
        batch_size, steps, _ = embedded.shape
        # In a packed batch the longest sequence comes first, so that those that have not ended are the first.
        positions, batch_sizes, order = pack_indices(lengths.cpu(), steps, embedded.device)
        sizes = batch_sizes.tolist()
        tokens = embedded.transpose(0, 1).flatten(0, 1).index_select(0, positions)
        all_rows = torch.arange(batch_size, device=embedded.device)
        hidden = cell = embedded.new_zeros(batch_size, self.size)
        # Below the stack there is a zero, above it a place for what is not pushed. Writing in place is safe
        # here: the gradient of reading does not depend on what is read.
        stack = embedded.new_zeros(batch_size, self.num_slots + 2, self.size)
        depths = torch.zeros_like(all_rows)
        dropout_mask = self.dropout(torch.ones_like(hidden))
        summaries, log_probabilities, values, entropies = [], [], [], []
        all_gates = self.input_gates(tokens).split(sizes)
        for token, gates in zip(tokens.split(sizes), all_gates, strict=True):
            count = len(token)
            summaries.append(hidden[count:])  # of those that ended with the token before
            hidden, cell, depths, rows = hidden[:count], cell[:count], depths[:count], all_rows[:count]
            top = stack[rows, depths]
            features = torch.cat([hidden, top, token], dim=-1)
            log_policy = self.log_policy(features, depths)
            actions = self.choose(log_policy)
            log_probabilities.append(log_policy.gather(1, actions.unsqueeze(1)).squeeze(1))
            values.append(self.value(features).squeeze(1))
            entropies.append(-(log_policy.exp() * log_policy).sum(1))
            new_hidden, cell = self._recur(gates + self.hidden_gates(hidden * dropout_mask[:count]), cell)
            split, merge = actions == SPLIT, actions == MERGE
            # Only actions chosen from NaN are impossible ones.
            depths = (depths + split.long() - merge.long()).clamp(0, self.num_slots)
            stack[rows, torch.where(split, depths, self.num_slots + 1)] = new_hidden.to(stack.dtype)
            hidden = torch.where(merge.unsqueeze(1), (new_hidden + top) / 2, new_hidden)
        summaries.append(hidden)
        log_pi, v, entropy = (
            unpack(torch.cat(column), 0, positions, steps * batch_size).view(steps, batch_size).T
            for column in (log_probabilities, values, entropies)
        )
        rollout = Rollout(log_pi, v, entropy, copy_to(lengths, embedded.device))
        return Encoded(unpack(torch.cat(summaries[::-1]), 0, order, batch_size), rollout=rollout)

    def log_policy(self, features: Tensor, depths: Tensor) -> Tensor:
        """Compute log π.

        Args:
            features: [h_{t-1}; s; x_t], (B, 2D + E).
            depths: number of states on each stack, (B,) int64.
        Returns:
            (B, 3), for `SPLIT`, `RECUR` and `MERGE`; for an impossible action a finite number whose exp is 0.
        """
        scores: Tensor = self.policy(features)
        always = torch.ones_like(depths, dtype=torch.bool)
        possible = torch.stack([depths < self.num_slots, always, depths > 0], dim=-1)
        return scores.masked_fill(~possible, torch.finfo(scores.dtype).min).log_softmax(-1)

    def choose(self, log_policy: Tensor) -> Tensor:
        """Choose an action for each sequence: sample it in training, else take the most probable one.

        Args:
            log_policy: log π, (B, 3).
        Returns:
            (B,) int64.
        """
        if self.training:
            # Gumbel-max sampling: torch.multinomial raises an error on NaN, which the trainer reports better.
            log_policy = gumbel_softmax(log_policy.detach(), tau=1.0, hard=True)
        return log_policy.argmax(-1)

    def _recur(self, gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Compute h' and c_t, (B, D) each, from the gates, (B, 4D), and c_{t-1}."""
        input_gate, forget_gate, update, output_gate = gates.chunk(4, dim=-1)
        cell = forget_gate.sigmoid() * cell + input_gate.sigmoid() * update.tanh()
        return output_gate.sigmoid() * self.cell_norm(cell).tanh(), cell


def policy_gradient_loss(rollout: Rollout, rewards: Tensor) -> Tensor:
    """Compute the loss of REINFORCE with the baseline v, for each sequence.

    A sequence gets one reward r at its end, without discount. The loss is the mean over its tokens of::

        -(r - v) log π(action) + VALUE_WEIGHT (r - v)² - ENTROPY_WEIGHT H(π)

    The factor r - v of the first term is treated as a constant.

    Args:
        rollout: the actions taken on B sequences.
        rewards: r, (B,).
    Returns:
        (B,).
    """
    errors = rewards.unsqueeze(1) - rollout.values
    terms = (
        VALUE_WEIGHT * errors.square()
        - errors.detach() * rollout.log_probabilities
        - ENTROPY_WEIGHT * rollout.entropies
    )
    lengths = rollout.lengths.unsqueeze(1)
    padding = torch.arange(terms.shape[1], device=terms.device) >= lengths
    return (terms.masked_fill(padding, 0.0) / lengths).sum(1)


def _perceptron(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.LayerNorm(hidden), nn.Tanh(), nn.Linear(hidden, outputs)
    )
