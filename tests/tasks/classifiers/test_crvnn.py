"""CRvNN against its equations, one sequence and one node at a time."""

import itertools

import pytest
import torch
from torch.nn.functional import gelu, layer_norm
from torch.testing import assert_close

from tasks.classifiers.classification import ClassificationObjective
from tasks.classifiers.crvnn import CRvNN, find_neighbors, read_merges
from tasks.classifiers.tree_reading import read_trees, tree_from_merges
from tasks.listops.config import ListOpsConfig
from tasks.listops.data import Dataset
from tasks.listops.model import ListOpsModel


def small():
    """A model in float64 without a parameter that is zero or one."""
    torch.manual_seed(0)
    model = CRvNN(3, 4, 0.0).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def test_linear_maps_begin_with_weights_of_glorot_and_bengio_and_without_biases():
    model = CRvNN(100, 60, 0.0)
    maps = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    assert len(maps) == 5
    for linear in maps:
        bound = (6 / (linear.in_features + linear.out_features)) ** 0.5
        assert 0.9 * bound < linear.weight.abs().max() <= bound
        assert not linear.bias.any()


def neighbours(existence, node, direction):
    """Nodes on one side and their weights: each takes what it exists of what is left of 1."""
    rest, weights, other = torch.tensor(1.0), {}, node + direction
    while 0 <= other < len(existence) and rest > 0:
        weights[other] = existence[other] if existence[other] <= rest else rest
        rest = rest - weights[other]
        other += direction
    return weights


def read(model, tokens):
    """Of one sequence, (n, E): r of the last token, the penalty, and c of the tokens in each step."""
    n, size = len(tokens), 4

    def normalised(vector):
        return layer_norm(vector, (size,), model.norm.weight, model.norm.bias)

    def mean(weights, values):
        return sum((weight * values[k] for k, weight in weights.items()), 0 * values[0])

    values = [normalised(model.projection(token)) for token in (model.start, *tokens, model.end)]
    existence = [torch.tensor(1.0, dtype=torch.float64)] * (n + 2)
    composed = [torch.tensor(0.0, dtype=torch.float64)] * (n + 2)
    steps, nodes, decisions = 0, range(n + 2), []
    while sum(e > 0.01 for e in existence[1:-1]) > 1 and steps < n:
        steps += 1
        lefts = [neighbours(existence, i, -1) for i in nodes]
        rights = [neighbours(existence, i, 1) for i in nodes]
        left, right = [mean(lefts[i], values) for i in nodes], [mean(rights[i], values) for i in nodes]
        scores = [torch.tensor(0.0, dtype=torch.float64)] * (n + 2)
        for i in range(1, n):
            history = composed[i] * model.after_composing + (1 - composed[i]) * model.after_staying
            window = [mean(lefts[i], left), left[i], values[i], right[i], mean(rights[i], right), history]
            scores[i] = model.decision[2](gelu(model.decision[0](torch.cat(window)))).exp()[0]
        rest = 1 + 4e-8 * torch.stack(scores).max().clamp(min=1)
        chosen = [
            scores[i] / (scores[i] + rest + mean(lefts[i], scores) + mean(rights[i], scores)) for i in nodes
        ]
        composed = [mean(lefts[i], chosen) if 1 <= i <= n else 0 * chosen[0] for i in nodes]
        parents = []
        for i in nodes:
            units = model.cell_output(gelu(model.cell_hidden(torch.cat([left[i], values[i]]))))
            f_left, f_right, f_new, new = units.split(size)
            parents.append(f_left.sigmoid() * left[i] + f_right.sigmoid() * values[i] + f_new.sigmoid() * new)
        values = [composed[i] * normalised(parents[i]) + (1 - composed[i]) * values[i] for i in nodes]
        existence = [existence[i] * (1 - chosen[i]) for i in nodes]
        decisions.append([c.item() for c in chosen[1:n]])
    alone = sum(e > 0.01 for e in existence[1:-1]) == 1
    penalty = -0.01 * (existence[n] / sum(existence[1:-1])).log()
    return values[n], 0 * penalty if alone else penalty, decisions


def join(decisions, size):
    """The tree of a sequence: brackets are closed one after the other."""
    trees, sums = {i: i for i in range(size)}, [0.0] * (size - 1)

    def close(i):
        right = min(k for k in trees if k > i)
        trees[right] = trees.pop(i), trees[right]

    for step in decisions:
        sums = [total + c for total, c in zip(sums, step, strict=True)]
        for i in sorted(range(size - 1), key=lambda i: -sums[i]):
            if i in trees and sums[i] >= 0.5:
                close(i)
    for i in sorted(set(trees) - {size - 1}, key=lambda i: -sums[i]):
        close(i)
    return trees[size - 1]


def test_a_batch_is_each_sequence_by_the_equations():
    model = small()
    lengths = [12, 1, 4, 2]
    x = torch.randn(4, 12, 3, dtype=torch.float64, requires_grad=True)  # padding is not zero
    encoded = model(x, torch.tensor(lengths))
    summaries, penalties = encoded.summary, encoded.penalty
    expected = [read(model, x[row, :length]) for row, length in enumerate(lengths)]
    by_hand, penalties_by_hand, decisions = zip(*expected, strict=True)
    steps = tuple(map(len, decisions))
    assert_close(summaries, torch.stack(by_hand), rtol=1e-9, atol=1e-11)
    assert_close(penalties, torch.stack(penalties_by_hand), rtol=1e-9, atol=1e-11)
    assert 4 < steps[0] < 12  # it halts by itself
    assert steps[1:] == (0, 4, 2)
    assert (penalties > 0).tolist() == [False, False, True, True]
    inputs, upstream = [x, *model.parameters()], torch.randn_like(summaries)
    found = torch.autograd.grad((summaries * upstream).sum() + penalties.sum(), inputs)
    total = (torch.stack(by_hand) * upstream).sum() + sum(penalties_by_hand)
    for one, other in zip(found, torch.autograd.grad(total, inputs), strict=True):
        assert_close(one, other, rtol=1e-7, atol=1e-10)


def test_trees_join_the_nodes_that_the_model_joins():
    model, found = small().eval(), set()
    with torch.no_grad():
        model.decision[2].weight *= 20
    lengths = [12, 1, 4, 2, 9]
    for seed in range(12):
        x = torch.randn(5, 12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            encoded = model(x, torch.tensor(lengths))
            trees = read_trees(encoded, torch.tensor(lengths))
            for row, length in enumerate(lengths):
                _, _, decisions = read(model, x[row, :length])
                assert trees[row] == join(decisions, length)
                found.add(trees[row])
    assert len(found) > 20
    assert model.train()(x, torch.tensor(lengths)).merges is None


def test_trees_of_any_decisions():
    generator = torch.Generator().manual_seed(1)
    for steps, size, scale in itertools.product((1, 3, 8), (2, 5, 9), (0.1, 0.5, 1.0)):
        decisions = scale * torch.rand(steps, 20, size - 1, generator=generator)
        merges = read_merges(decisions, torch.full((20,), size))
        for row in range(20):
            tree = tree_from_merges(merges[row].tolist())
            assert tree == join(decisions[:, row].tolist(), size)


def test_gradients_are_those_of_finite_differences():
    model = small()
    weights = dict(model.named_parameters())
    x = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    names = ["start", "after_composing", "decision.2.weight", "projection.weight"]

    def call(x, *chosen):
        replaced = weights | dict(zip(names, chosen, strict=True))
        encoded = torch.func.functional_call(model, replaced, (x, torch.tensor([3, 2])))
        return encoded.summary, encoded.penalty

    chosen = [weights[name].detach().requires_grad_() for name in names]
    assert torch.autograd.gradcheck(call, (x, *chosen))


def test_the_neighbour_of_nodes_that_exist_or_not_is_the_next_that_does():
    weights = find_neighbors(torch.tensor([[1.0, 0.0, 1.0, 0.0, 0.0, 1.0]]))[0, 1]
    assert weights.argmax(-1)[:5].tolist() == [2, 2, 5, 5, 5]
    assert weights.sum(-1).tolist() == [1, 1, 1, 1, 1, 0]
    assert set(weights.flatten().tolist()) == {0, 1}


@pytest.mark.parametrize("decision", [1e4, -1e4])
def test_extreme_decisions_give_finite_gradients(decision):
    model = small().float()
    with torch.no_grad():
        model.decision[2].bias.fill_(decision)
    x = torch.randn(2, 40, 3, requires_grad=True)
    encoded = model(x, torch.tensor([40, 7]))
    (encoded.summary.sum() + encoded.penalty.sum()).backward()
    assert encoded.summary.isfinite().all()
    assert all(tensor.grad.isfinite().all() for tensor in (x, *model.parameters()))


@pytest.mark.parametrize("scale", [30, 60, 100, 300])
def test_gradients_are_finite_where_neighbors_differ_much_in_their_decisions(scale):
    torch.manual_seed(3)
    model = CRvNN(8, 16, 0.0)
    with torch.no_grad():
        model.decision[2].weight *= scale
    x = torch.randn(8, 24, 8, requires_grad=True)
    encoded = model(x, torch.full((8,), 24))
    (encoded.summary.sum() + encoded.penalty.sum()).backward()
    assert max(tensor.grad.abs().max() for tensor in (x, *model.parameters())) < 100


def test_sequences_that_have_halted_are_not_computed_any_more(monkeypatch):
    model, lengths, sizes, step = small(), torch.tensor([1, 12, 2, 1]), [], CRvNN.step

    def counted(model, nodes, *masks):
        sizes.append(len(nodes.values))
        return step(model, nodes, *masks)

    monkeypatch.setattr(CRvNN, "step", counted)
    model(torch.randn(4, 12, 3, dtype=torch.float64), lengths)
    assert sizes[0] == 2
    assert sizes[2:] == [1] * (len(sizes) - 2)


def test_decisions_and_parents_are_computed_for_the_tokens_that_need_them_alone():
    model, lengths, rows = CRvNN(3, 4, 0.0), torch.tensor([1, 7, 2, 4]), {"decision": [], "cell_hidden": []}
    with torch.no_grad():
        model.decision[2].bias.fill_(-30)  # so that no sequence halts by itself
    for name, counts in rows.items():
        model.get_submodule(name).register_forward_hook(
            lambda module, inputs, output, counts=counts: counts.append(len(inputs[0]))
        )
    model(torch.randn(4, 7, 3), lengths)
    assert rows["decision"] == rows["cell_hidden"] == [6 + 1 + 3] * 2 + [6 + 3] * 2 + [6] * 3


@pytest.mark.parametrize("every", [1, 4, 100])
def test_steps_that_are_computed_again_give_the_same(every, monkeypatch):
    model, lengths = CRvNN(4, 6, dropout=0.5), torch.tensor([9, 1, 6])
    x = torch.randn(3, 9, 4, requires_grad=True)
    taken, step = [], CRvNN.step
    monkeypatch.setattr(CRvNN, "step", lambda *arguments: (taken.append(1), step(*arguments))[1])

    def run():
        taken.clear()
        torch.manual_seed(1)
        encoded = model(x, lengths)
        total = encoded.summary.sum() + encoded.penalty.sum()
        return [encoded.summary, *torch.autograd.grad(total, [x, *model.parameters()])]

    expected, steps = run(), len(taken)
    model.recompute_every = every
    assert all(map(torch.equal, run(), expected))
    assert len(taken) == 2 * steps
    with torch.no_grad():
        taken.clear()
        torch.manual_seed(1)
        model(x, lengths)
    assert len(taken) == steps


def test_dropout_acts_in_training_alone():
    model, x, lengths = CRvNN(4, 6, dropout=0.5), torch.randn(2, 5, 4), torch.tensor([5, 3])
    assert not torch.equal(model(x, lengths).summary, model(x, lengths).summary)
    model.eval()
    assert torch.equal(model(x, lengths).summary, model(x, lengths).summary)


def test_training_is_given_the_mean_penalty():
    config = ListOpsConfig(model="crvnn", embedding_size=3, slot_size=4, input_dropout=0, output_dropout=0)
    data = Dataset.from_texts(["[MAX 2 9 ]", "3"])
    model, batch = ListOpsModel(config), data.batch([0, 1])
    model.encoder.dropout.p = 0.0
    penalty = model(batch).encoded.penalty
    assert penalty[0] > 0
    assert penalty[1] == 0
    assert_close(ClassificationObjective(config, data, data).losses(model, batch).penalty, penalty[0] / 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_changes_no_more_than_the_precision(dtype):
    torch.manual_seed(1)
    model, lengths = CRvNN(4, 6, dropout=0.0), torch.tensor([9, 1, 6])
    x = torch.randn(3, 9, 4)
    with torch.autocast("cpu", dtype):
        encoded = model(x, lengths)
    (encoded.summary.float().sum() + encoded.penalty.sum()).backward()
    expected = model(x, lengths)
    assert_close(encoded.summary.float(), expected.summary, rtol=0, atol=0.1)
    assert_close(encoded.penalty.float(), expected.penalty, rtol=0, atol=0.01)
