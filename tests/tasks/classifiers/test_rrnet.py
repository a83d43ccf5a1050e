"""RRNet against its equations, one sequence and one token at a time, and its policy gradient."""

import math
from itertools import product

import pytest
import torch
from torch.nn.functional import layer_norm
from torch.nn.utils.rnn import pack_padded_sequence
from torch.testing import assert_close

from tasks.classifiers import rrnet
from tasks.classifiers.classification import Prediction, compute_losses
from tasks.classifiers.encoded import Encoded, Rollout
from tasks.classifiers.rrnet import MERGE, RECUR, SPLIT, RRNet, policy_gradient_loss

S, R, M = SPLIT, RECUR, MERGE
E, D = 3, 4


def small(num_slots=2):
    """A model in float64 without a parameter that is zero or one."""
    torch.manual_seed(0)
    model = RRNet(E, D, num_slots, 0.0).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
        model.policy[3].bias[RECUR] -= 1  # so that the most probable actions are of all kinds
    return model


def force(model, actions, lengths):
    """Let the model take these actions, (B, T), in place of those that it would choose."""
    packed = pack_padded_sequence(
        torch.tensor(actions), torch.tensor(lengths), batch_first=True, enforce_sorted=False
    )
    steps = iter(packed.data.split(packed.batch_sizes.tolist()))
    model.choose = lambda log_policy: next(steps)


def possible_after(actions, num_slots):
    depth = actions.count(S) - actions.count(M)
    return [S] * (depth < num_slots) + [R] + [M] * (depth > 0)


def read(model, tokens, num_slots, actions=None):
    """Summary, rollout and actions of one sequence, (n, E); the most probable actions, or those given."""

    def norm(layer, vector):
        return layer_norm(vector, vector.shape, layer.weight, layer.bias)

    def network(layers, vector):
        vector = norm(layers[1], layers[0].weight @ vector + layers[0].bias).tanh()
        return layers[3].weight @ vector + layers[3].bias

    def gates(layers, vector):
        return norm(layers[1], layers[0].weight @ vector + layers[0].bias)

    zero = torch.zeros(D, dtype=torch.float64)
    h, c, stack, done, rows = zero, zero, [], [], []
    for t, x in enumerate(tokens):
        s = stack[-1] if stack else zero
        seen = torch.cat([h, s, x])
        may = possible_after(done, num_slots)
        scores = network(model.policy, seen)
        total = sum(scores[action].exp() for action in may)
        pi = {action: scores[action].exp() / total for action in may}
        action = max(pi, key=pi.get) if actions is None else actions[t]
        entropy = -sum(p * p.log() for p in pi.values())
        rows.append((pi[action].log(), network(model.value, seen)[0], entropy))
        i, f, g, o = (gates(model.input_gates, x) + gates(model.hidden_gates, h)).split(D)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * norm(model.cell_norm, c).tanh()
        if action == S:
            stack.append(h)
        if action == M:
            h = (h + stack.pop()) / 2
        done.append(action)
    return h, [torch.stack(column) for column in zip(*rows, strict=True)], done


FORCED = [[S, S, M, M, S, R, S, M, R], [R] * 9, [S, R, R, M, R, R, R, R, R], [S, M, S, M, R, R, R, R, R]]


@pytest.mark.parametrize(("num_slots", "forced"), [(2, True), (3, True), (1, False), (2, False)])
def test_a_batch_is_each_sequence_by_the_equations(num_slots, forced):
    model = small(num_slots).eval()
    lengths = [9, 1, 4, 2]
    x = torch.randn(4, 9, E, dtype=torch.float64, requires_grad=True)  # padding is not zero
    if forced:
        force(model, FORCED, lengths)
    encoded = model(x, torch.tensor(lengths))
    summaries, rollout = encoded.summary, encoded.rollout
    rewards = torch.tensor([1.0, 0, 1, 0], dtype=torch.float64)
    losses = policy_gradient_loss(rollout, rewards)
    by_hand, losses_by_hand, taken = [], [], set()
    for row, length in enumerate(lengths):
        actions = FORCED[row] if forced else None
        summary, columns, done = read(model, x[row, :length], num_slots, actions)
        log_pi, v, entropy = columns
        for found, column in zip(rollout, columns, strict=False):
            assert_close(found[row, :length], column, rtol=1e-9, atol=1e-11)
        reinforce = -(rewards[row] - v.detach()) * log_pi
        losses_by_hand.append((reinforce + 0.1 * (rewards[row] - v) ** 2 - 0.02 * entropy).mean())
        by_hand.append(summary)
        taken |= set(done)
    assert taken == {S, R, M}
    assert_close(summaries, torch.stack(by_hand), rtol=1e-9, atol=1e-11)
    assert_close(losses, torch.stack(losses_by_hand), rtol=1e-9, atol=1e-11)
    inputs, upstream = [x, *model.parameters()], torch.randn_like(summaries)
    found = torch.autograd.grad((summaries * upstream).sum() + losses.sum(), inputs)
    total = (torch.stack(by_hand) * upstream).sum() + sum(losses_by_hand)
    for one, other in zip(found, torch.autograd.grad(total, inputs), strict=True):
        assert_close(one, other, rtol=1e-7, atol=1e-10)
    assert not found[0][1, 1:].any()


def test_what_is_impossible_has_no_probability():
    model = small().float()
    seen = torch.randn(3, 2 * D + E)
    probabilities = model.log_policy(seen, torch.tensor([0, 1, 2])).exp()
    assert (probabilities == 0).tolist() == [[False, False, True], [False] * 3, [True, False, False]]
    assert_close(probabilities.sum(1), torch.ones(3))
    model.num_slots = 1
    probabilities = model.log_policy(seen[:2], torch.tensor([0, 1])).exp()
    assert (probabilities == 0).tolist() == [[False, False, True], [True, False, False]]


def test_sampled_actions_follow_the_policy():
    model, draws = small(), 20_000
    policy = model.log_policy(torch.randn(3, 2 * D + E, dtype=torch.float64), torch.tensor([0, 1, 2]))
    actions = model.choose(policy.repeat_interleave(draws, 0)).view(3, draws)
    shares = torch.stack([(actions == action).double().mean(1) for action in (S, R, M)], dim=1)
    assert_close(shares, policy.exp(), rtol=0, atol=4 * 0.5 / math.sqrt(draws))
    assert (shares[policy.exp() == 0] == 0).all()
    assert model.eval().choose(policy).equal(policy.argmax(1))


def test_the_expected_gradient_is_that_of_the_expected_reward(monkeypatch):
    """Over all actions of three tokens: the baseline adds no bias."""
    monkeypatch.setattr(rrnet, "VALUE_WEIGHT", 0.0)
    monkeypatch.setattr(rrnet, "ENTROPY_WEIGHT", 0.0)
    model = small()
    plans = [
        plan
        for plan in product((S, R, M), repeat=3)
        if all(plan[t] in possible_after(plan[:t], 2) for t in range(3))
    ]
    force(model, plans, [3] * len(plans))
    x = torch.randn(3, E, dtype=torch.float64)
    rollout = model(x.expand(len(plans), -1, -1), torch.full((len(plans),), 3)).rollout
    probabilities = rollout.log_probabilities.sum(1).exp()
    assert_close(probabilities.sum(), torch.ones_like(probabilities[0]))
    rewards = torch.rand(len(plans), dtype=torch.float64)
    expected_loss = (probabilities.detach() * policy_gradient_loss(rollout, rewards)).sum()
    weights = [weight for name, weight in model.named_parameters() if not name.startswith("value")]
    found = torch.autograd.grad(expected_loss, weights, retain_graph=True)
    for one, other in zip(found, torch.autograd.grad((probabilities * rewards).sum(), weights), strict=True):
        assert other.any()
        assert_close(one, -other / 3)


@pytest.mark.parametrize("training", [False, True])
def test_the_result_for_nan_is_nan(training):
    """And no error, whatever depth of the stack the actions would lead to."""
    encoded = small().train(training)(torch.full((2, 6, E), math.nan).double(), torch.tensor([6, 4]))
    assert encoded.summary.isnan().all()


def test_padding_is_not_computed():
    model, counts = small(), []
    for name in ("policy", "value", "hidden_gates"):
        model.get_submodule(name).register_forward_hook(
            lambda module, inputs, output: counts.append(len(inputs[0]))
        )
    model(torch.randn(4, 9, E).double(), torch.tensor([9, 1, 4, 2]))
    assert counts == [count for count in (4, 3, 2, 2, 1, 1, 1, 1, 1) for _ in range(3)]


def test_every_sentence_of_an_example_has_its_reward():
    columns = torch.randn(3, 4, 5)
    rollout = Rollout(*columns, lengths=torch.tensor([5, 2, 1, 4]))
    logits, labels = torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([0, 1])
    losses = compute_losses(Prediction(logits, Encoded(logits, rollout=rollout)), labels)
    assert losses.correct.tolist() == [True, False]
    expected = policy_gradient_loss(rollout, torch.tensor([1.0, 0.0, 1.0, 0.0])).mean()
    assert_close(losses.penalty, expected)


def test_dropout_is_of_the_state_and_the_same_at_every_token():
    model = small()
    model.dropout.p = 0.5
    torch.manual_seed(3)
    kept = model.dropout(torch.ones(1, D, dtype=torch.float64))
    assert 0 < kept.count_nonzero() < D
    x, lengths = torch.randn(1, 6, E, dtype=torch.float64), torch.tensor([6])
    force(model, [FORCED[0][:6]], [6])
    torch.manual_seed(3)
    found = model(x, lengths).summary
    model.dropout.p = 0.0
    with torch.no_grad():
        model.hidden_gates[0].weight *= kept
    force(model, [FORCED[0][:6]], [6])
    assert_close(found, model(x, lengths).summary)


@pytest.mark.parametrize("score", [1e4, -1e4])
def test_extreme_decisions_give_finite_gradients(score):
    model = small().float()
    with torch.no_grad():
        model.policy[3].bias[MERGE] = score
    x = torch.randn(2, 40, E, requires_grad=True)
    encoded = model(x, torch.tensor([40, 7]))
    (encoded.summary.sum() + policy_gradient_loss(encoded.rollout, torch.ones(2)).sum()).backward()
    assert all(tensor.grad.isfinite().all() for tensor in (x, *model.parameters()))
