"""Encoders that are given trees: random trees in a batch against one node at a time and the equations."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ordered_memory.baseline_trees import random_trees, right_branching
from ordered_memory.trees import keep_leaves, spans
from tasks.classifiers.config import EncoderConfig
from tasks.classifiers.encoders import build_encoder, encode
from tasks.classifiers.tree_batching import batch_trees, subtree_nodes, tree_nodes
from tasks.classifiers.tree_models import TreeCell, TreeLSTM, TreeRNN
from tasks.runs.errors import UserError

COUNTS = [1, 2, 3, 7, 20, 1, 12, 5]
"""Words of the sentences of a batch."""
LONGEST = 25
SIZE = 6

TREE_MODELS = {"gold-tree-lstm": TreeLSTM, "gold-tree-rnn": TreeRNN, "gold-tree-cell": TreeCell}


@pytest.fixture(scope="module")
def trees():
    return random_trees(COUNTS, seed=1)


@pytest.fixture(scope="module")
def positions():
    """Of the words among the tokens of their sentences, some of which are no words."""
    rng = np.random.default_rng(2)
    return [sorted(rng.choice(LONGEST, count, replace=False).tolist()) for count in COUNTS]


@pytest.fixture
def embedded():
    generator = torch.Generator().manual_seed(3)
    return torch.randn(len(COUNTS), LONGEST, SIZE, dtype=torch.float64, generator=generator)


def build(name):
    torch.manual_seed(4)
    config = EncoderConfig(model=name, slot_size=8, cell_dropout=0.0)
    return build_encoder(config, SIZE).double()


def read(model, embedded, trees, positions):
    """The summaries of sentences in one batch."""
    nodes = [tree_nodes(tree, words) for tree, words in zip(trees, positions, strict=True)]
    lengths = torch.tensor([words[-1] + 1 for words in positions])
    return encode(model, embedded, lengths, trees=batch_trees(nodes, embedded.shape[1])).summary


def recurse(model, words, tree):
    """A node, one at a time."""
    if isinstance(tree, int):
        return model.leaf(words[tree].unsqueeze(0))
    left, right = (recurse(model, words, part) for part in tree)
    return model.compose(left, right)


@pytest.mark.parametrize("name", TREE_MODELS)
def test_levels_at_once_equal_one_node_at_a_time(name, embedded, trees, positions):
    model, embedded = build(name), embedded.requires_grad_()
    at_once = read(model, embedded, trees, positions)
    one_by_one = torch.cat(
        [
            model.summary(recurse(model, sentence[words], tree))
            for sentence, words, tree in zip(embedded, positions, trees, strict=True)
        ]
    )
    assert torch.allclose(at_once, one_by_one, rtol=1e-12, atol=1e-12)
    upstream = torch.randn_like(at_once)
    inputs = [*model.parameters(), embedded]
    for fast, slow in zip(
        torch.autograd.grad(at_once, inputs, upstream),
        torch.autograd.grad(one_by_one, inputs, upstream),
        strict=True,
    ):
        assert torch.allclose(fast, slow, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", TREE_MODELS)
def test_neither_padding_nor_batch_mates_change_a_summary(name, embedded, trees, positions):
    model = build(name)
    together = read(model, embedded, trees, positions)
    for row, words in enumerate(positions):
        sentence = embedded[row : row + 1, : words[-1] + 1]
        alone = read(model, sentence, trees[row : row + 1], positions[row : row + 1])
        assert torch.allclose(alone[0], together[row], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", TREE_MODELS)
def test_every_weight_and_no_other_token_counts(name, embedded, trees, positions):
    model, embedded = build(name), embedded.requires_grad_()
    read(model, embedded, trees, positions).square().sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad.abs().sum() > 0, parameter_name
    for row, words in enumerate(positions):
        assert embedded.grad[row].any(-1).nonzero().flatten().tolist() == words


def test_a_tree_rnn_node_is_that_of_the_equation():
    """Bowman et al., unit by unit."""
    model = build("gold-tree-rnn")
    left, right = torch.randn(2, 1, 8, dtype=torch.float64)
    weight, bias = model.composition.weight, model.composition.bias
    for unit in range(8):
        expected = (weight[unit, :8] @ left[0] + weight[unit, 8:] @ right[0] + bias[unit]).tanh()
        assert torch.allclose(model.compose(left, right)[0, unit], expected)


def test_a_tree_rnn_begins_with_weights_of_glorot_and_bengio_and_without_biases():
    model = TreeRNN(100, 60, 0.0)
    for linear, inputs in ((model.projection, 100), (model.composition, 120)):
        bound = (6 / (inputs + 60)) ** 0.5
        assert 0.95 * bound < linear.weight.abs().max() <= bound
        assert not linear.bias.any()


@pytest.mark.parametrize("name", ["gold-tree-rnn", "gold-tree-lstm"])
def test_roots_of_an_untrained_tree_model_differ_as_much_as_leaves(name):
    torch.manual_seed(0)
    model = TREE_MODELS[name](100, 100, 0.0)
    nodes = leaves = model.leaf(0.06 * torch.randn(64 * 32, 100))  # 32 trees of depth 6
    for _ in range(6):
        nodes = model.compose(nodes[::2], nodes[1::2])
    assert model.summary(nodes).std(0).mean() > 0.5 * model.summary(leaves).std(0).mean()


def test_a_tree_lstm_node_is_that_of_the_equations():
    """Tai et al., equations 9 to 14 with two children and no word at inner nodes, unit by unit."""
    model = build("gold-tree-lstm")
    left, right = torch.randn(2, 1, 16, dtype=torch.float64)
    h_left, c_left, h_right, c_right = *left[0].split(8), *right[0].split(8)
    weight, bias = model.composition.weight, model.composition.bias
    children = torch.cat([h_left, h_right])
    expected = []
    for unit in range(8):
        i, f_left, f_right, o, u = (weight[k * 8 + unit] @ children + bias[k * 8 + unit] for k in range(5))
        c = i.sigmoid() * u.tanh() + f_left.sigmoid() * c_left[unit] + f_right.sigmoid() * c_right[unit]
        expected.append((o.sigmoid() * c.tanh(), c))
    h, c = (torch.stack(values) for values in zip(*expected, strict=True))
    assert torch.allclose(model.compose(left, right)[0], torch.cat([h, c]))


def test_the_leaves_and_the_summary_of_a_tree_lstm_are_those_of_the_equations():
    """The same with no children, where no cell is remembered; what is read is h, not c."""
    model = build("gold-tree-lstm")
    word = torch.randn(1, model.projection.in_features, dtype=torch.float64)
    i, o, u = model.projection(word).split(8, dim=-1)
    c = i.sigmoid() * u.tanh()
    assert torch.allclose(model.leaf(word), torch.cat([o.sigmoid() * c.tanh(), c], dim=-1))
    assert torch.allclose(model.summary(model.leaf(word)), o.sigmoid() * c.tanh())


def test_a_node_of_the_tree_cell_is_that_of_ordered_memory():
    model = build("gold-tree-cell")
    word, left, right = torch.randn(1, SIZE, dtype=torch.float64), *torch.randn(2, 1, 8, dtype=torch.float64)
    assert torch.allclose(model.leaf(word), model.norm(model.projection(word)))
    assert torch.allclose(model.compose(left, right), model.norm(model.cell(left, right)))


@pytest.mark.parametrize("name", TREE_MODELS)
def test_dropout_acts_on_children_in_training_alone(name):
    model = TREE_MODELS[name](4, 6, 0.5)
    left, right = model.leaf(torch.randn(2, 8, 4))
    assert not torch.equal(model.compose(left, right), model.compose(left, right))
    model.eval()
    assert torch.equal(model.compose(left, right), model.compose(left, right))


def test_a_subtree_is_cut_out_of_its_tree(trees):
    for tree, count in zip(trees, COUNTS, strict=True):
        nodes = tree_nodes(tree, range(count))
        inner = spans(tree)
        phrases = [(word, word) for word in range(count)] + inner
        for first, last in phrases:
            end = inner.index((first, last)) + 1 if first < last else 0
            cut = subtree_nodes(nodes, first, last - first + 1, end)
            whole = tree_nodes(keep_leaves(tree, range(first, last + 1)), range(last - first + 1))
            assert all(np.array_equal(one, other) for one, other in zip(cut, whole, strict=True))


def test_no_tree_is_too_deep():
    count = 2000
    trees = batch_trees([tree_nodes(right_branching(count), range(count)), tree_nodes(0, [0])], count)
    assert trees.sizes == [[2] + [1] * (count - 1)] + [[1]] * (count - 1)  # one inner node of each height
    assert trees.roots.tolist() == [1, 0]  # the second root is a word


class _ElementsComputed(TorchDispatchMode):
    """Counts the elements of all results of operators."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.count += sum(leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
        return result


@pytest.mark.parametrize("name", TREE_MODELS)
def test_the_cost_does_not_grow_with_the_height_of_the_trees(name):
    model = build(name)

    def elements_computed(count):
        embedded = torch.zeros(1, count, SIZE, dtype=torch.float64, requires_grad=True)
        with _ElementsComputed() as elements:
            read(model, embedded, [right_branching(count)], [list(range(count))]).sum().backward()
        return elements.count

    assert elements_computed(200) < 2.2 * elements_computed(100)


def test_no_trees_are_an_error(embedded):
    with pytest.raises(UserError, match="needs the true tree"):
        encode(build("gold-tree-cell"), embedded, torch.tensor(COUNTS))


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ((0, (1, 2, 3)), "expected a binary tree, got a node with 3 children"),
        ((0, (1, 2)), "expected a tree over 4 words, got one over 3"),
    ],
)
def test_trees_that_do_not_fit_are_named(tree, message):
    with pytest.raises(ValueError, match=message):
        tree_nodes(tree, range(4))
