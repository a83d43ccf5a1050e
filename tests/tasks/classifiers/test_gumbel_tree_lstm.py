"""The Gumbel Tree-LSTM against its equations, one sequence and one node at a time."""

from itertools import pairwise

import pytest
import torch

from tasks.classifiers.gumbel_tree_lstm import GumbelTreeLSTM
from tasks.classifiers.tree_models import compose_tree_lstm

LENGTHS = [6, 1, 4, 2, 3]


@pytest.fixture
def model():
    torch.manual_seed(1)
    model = GumbelTreeLSTM(3, 4, 0.0).double()
    torch.nn.init.normal_(model.query, std=2.0)  # scores far enough apart for gradients through the choice
    return model


@pytest.fixture
def embedded():
    torch.manual_seed(2)
    return torch.randn(len(LENGTHS), max(LENGTHS), 3, dtype=torch.float64, requires_grad=True)


def test_an_untrained_model_remembers_more_than_half():
    """In the authors' code all forget gates begin with a bias of 1, and the other gates with 0."""
    model = GumbelTreeLSTM(3, 4, 0.0)
    _, c = model.leaf(torch.zeros(1, 3), (torch.zeros(1, 4), torch.ones(1, 4)))
    assert torch.allclose(c, torch.tensor(1.0).sigmoid())
    nodes = torch.tensor([0.0] * 4 + [1.0] * 4).expand(1, 2, 8)
    parent = compose_tree_lstm(nodes[:, 0], nodes[:, 1], model.composition)
    assert torch.allclose(parent[:, 4:], 2 * torch.tensor(1.0).sigmoid())


def test_the_other_initial_weights_are_those_of_the_authors_code():
    model = GumbelTreeLSTM(300, 40, 0.0)
    assert model.leaf.weight_ih.std().item() == pytest.approx((2 / 300) ** 0.5, rel=0.03)
    for weight in (model.leaf.weight_hh, model.composition.weight):  # orthogonal
        assert torch.allclose(weight.T @ weight, torch.eye(weight.shape[1]), atol=1e-5)
    zeros, ones = torch.zeros(40), torch.ones(40)
    assert torch.equal(model.leaf.bias_ih + model.leaf.bias_hh, torch.cat([zeros, ones, zeros, zeros]))
    assert torch.equal(model.composition.bias, torch.cat([zeros, ones, ones, zeros, zeros]))


def leaves_of(model, words):
    """Equation 13."""
    h, c = torch.zeros(2, 4, dtype=torch.float64)
    nodes = []
    for word in words:
        units = (
            model.leaf.weight_ih @ word + model.leaf.bias_ih + model.leaf.weight_hh @ h + model.leaf.bias_hh
        )
        i, f, g, o = units.split(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        nodes.append((h, c))
    return nodes


def parent_of(model, left, right):
    """Equations 1 to 3."""
    units = model.composition.weight @ torch.cat([left[0], right[0]]) + model.composition.bias
    i, f_left, f_right, o, g = units.split(4)
    c = f_left.sigmoid() * left[1] + f_right.sigmoid() * right[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def recurse(model, words, noise=None):
    """The summary of one sequence and its merges; `noise[t][i]` is that of candidate i at step t."""
    nodes, merges = leaves_of(model, words), []
    while len(nodes) > 1:
        parents = [parent_of(model, *pair) for pair in pairwise(nodes)]
        v = torch.stack([(model.query @ h).exp() for h, _ in parents])
        v = v / v.sum()  # equation 12
        if noise is None:
            y = v
        else:
            y = ((v.log() + noise[len(merges)][: len(parents)]) / 1.0).exp()
            y = y / y.sum()  # equation 8
        i = int(y.argmax())
        merges.append(i)
        hard = torch.eye(len(parents), dtype=torch.float64)[i]
        y = hard if noise is None else hard + y - y.detach()  # equation 9, straight-through
        # Equation 11, every node a sum over the place i that is chosen.
        nodes = [
            tuple(
                sum(
                    y[i] * (nodes[j][part] if j < i else parents[j][part] if j == i else nodes[j + 1][part])
                    for i in range(len(parents))
                )
                for part in range(2)
            )
            for j in range(len(parents))
        ]
    return nodes[0][0], merges


def compare(model, embedded, noise):
    """Summaries, merges and all gradients of a batch, against one sequence at a time."""
    encoded = model(embedded, torch.tensor(LENGTHS))
    summaries, merges = encoded.summary, encoded.merges
    alone = [
        recurse(model, row[:length], None if noise is None else [step[b] for step in noise])
        for b, (row, length) in enumerate(zip(embedded, LENGTHS, strict=True))
    ]
    for b, (_, expected) in enumerate(alone):
        assert merges[b, : LENGTHS[b] - 1].tolist() == expected
    expected = torch.stack([summary for summary, _ in alone])
    assert torch.allclose(summaries, expected, rtol=1e-12, atol=1e-12)
    inputs, upstream = [embedded, *model.parameters()], torch.randn_like(expected)
    for at_once, one_by_one in zip(
        torch.autograd.grad(summaries, inputs, upstream, allow_unused=noise is None),
        torch.autograd.grad(expected, inputs, upstream, allow_unused=noise is None),
        strict=True,
    ):
        if at_once is None:  # without noise the choice has no gradient, and so the query none
            assert one_by_one is None
        else:
            assert torch.allclose(at_once, one_by_one, rtol=1e-10, atol=1e-12)
            assert at_once.abs().sum() > 0
    return merges


def test_evaluation_joins_the_best(model, embedded):
    merges = compare(model.eval(), embedded, None)
    assert merges.unique().numel() > 2


def test_training_joins_a_sample_and_gradients_are_straight_through(model, embedded):
    torch.manual_seed(3)
    noise = [-torch.empty_like(embedded[:, step:-1, 0]).exponential_().log() for step in range(5)]
    torch.manual_seed(3)
    merges = compare(model.train(), embedded, noise)
    assert not torch.equal(merges, model.eval()(embedded, torch.tensor(LENGTHS)).merges)


def test_a_sample_has_the_probability_of_its_score(model, embedded):
    words = embedded[0, :3].detach()
    leaves = leaves_of(model, words)
    scores = [model.query @ parent_of(model, *pair)[0] for pair in pairwise(leaves)]
    torch.manual_seed(4)
    merges = model.train()(words.expand(10_000, 3, 3), torch.full((10_000,), 3)).merges
    expected = torch.stack(scores).softmax(0)[1].item()
    assert 0.1 < expected < 0.9
    assert merges[:, 0].double().mean().item() == pytest.approx(expected, abs=0.02)


def test_neither_padding_nor_batch_mates_change_a_result(model, embedded):
    model.eval()
    together = model(embedded, torch.tensor(LENGTHS))
    for b, length in enumerate(LENGTHS):
        alone = model(embedded[b : b + 1, :length], torch.tensor([length]))
        assert torch.allclose(alone.summary[0], together.summary[b], rtol=1e-12, atol=1e-12)
        assert torch.equal(alone.merges[0], together.merges[b, : length - 1])
    padding = torch.arange(max(LENGTHS)) >= torch.tensor(LENGTHS).unsqueeze(1)
    other = model(embedded.masked_fill(padding.unsqueeze(-1), 1e3), torch.tensor(LENGTHS))
    assert torch.equal(other.summary, together.summary)
    for b, length in enumerate(LENGTHS):
        assert torch.equal(other.merges[b, : length - 1], together.merges[b, : length - 1])


def test_only_candidates_that_exist_are_computed(model, embedded):
    counts = []
    model.composition.register_forward_hook(lambda module, inputs, output: counts.append(len(inputs[0])))
    model(embedded, torch.tensor(LENGTHS))
    assert counts == [sum(max(0, length - 1 - step) for length in LENGTHS) for step in range(5)]


def test_it_learns():
    """Whether a sequence holds a certain token."""
    torch.manual_seed(5)
    tokens, lengths = torch.randint(4, (64, 5)), torch.randint(1, 6, (64,))
    labels = ((tokens == 3) & (torch.arange(5) < lengths.unsqueeze(1))).any(1).long()
    model = GumbelTreeLSTM(4, 8, 0.1)
    output = torch.nn.Linear(8, 2)
    optimizer = torch.optim.Adam([*model.parameters(), *output.parameters()], 0.03)
    losses = []
    for _ in range(40):
        summaries = model(torch.eye(4)[tokens], lengths).summary
        losses.append(torch.nn.functional.cross_entropy(output(summaries), labels))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0] / 2


def test_at_first_the_query_is_small_so_that_candidates_are_about_equally_probable():
    assert 0.008 < GumbelTreeLSTM(3, 400, 0.0).query.std() < 0.012
