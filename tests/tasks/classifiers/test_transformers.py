"""Transformers of single sequences and of pairs."""

import pytest
import torch
from torch.testing import assert_close

from tasks.classifiers.transformers import PairTransformer, Transformer, sinusoids


def test_sinusoids():
    table = sinusoids(torch.arange(5), 6)
    for position in range(5):
        for k in range(3):
            angle = torch.tensor(position / 10_000 ** (2 * k / 6))
            assert torch.allclose(table[position, [k, k + 3]], torch.stack([angle.sin(), angle.cos()]))


def test_a_universal_transformer_has_one_layer_whatever_its_steps():
    one, four = (
        {name: p.shape for name, p in Transformer(3, 8, steps, 2, 0.0, shared=True).named_parameters()}
        for steps in (1, 4)
    )
    assert one | {"step_embeddings": (4, 8)} == four


def test_what_is_learned_beside_the_layers_begins_at_the_scale_of_what_it_is_added_to():
    """The summary and the steps like embeddings of length 1; the sides of a pair like normal embeddings."""
    model = Transformer(3, 400, 4, 2, 0.0, shared=True)
    assert model.summary.std().item() == pytest.approx(0.05, rel=0.15)
    assert model.step_embeddings.std().item() == pytest.approx(0.05, rel=0.1)
    assert PairTransformer(400, 1, 2, 0.0, shared=False).formulas.std().item() == pytest.approx(1, rel=0.1)


def summary_by_layers(model, tokens, positions):
    """[summary; tokens] through plain layers; positions are added once or, if shared, at each step."""
    size = tokens.shape[1]
    tokens = torch.cat([model.summary[None], tokens])
    for step in range(model.steps):
        if model.shared or step == 0:
            tokens = tokens + torch.cat([torch.zeros(1, size, dtype=torch.float64), positions])
        if model.shared:
            tokens = tokens + model.step_embeddings[step]
        tokens = model.layers[0 if model.shared else step](tokens[None])[0]
    return model.norm(tokens[0])


@pytest.mark.parametrize("shared", [False, True])
def test_a_summary_is_that_of_one_sequence_without_masks(shared):
    model = Transformer(5, 8, 2, 2, 0.0, shared=shared).double()
    x, lengths = torch.randn(3, 6, 5, dtype=torch.float64), torch.tensor([6, 1, 4])
    together = model(x, lengths)
    for row, length in enumerate(lengths.tolist()):
        positions = sinusoids(torch.arange(length), 8).double()
        tokens = model.projection(x[row, :length])
        expected = summary_by_layers(model, tokens, positions)
        assert_close(together[row], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shared", [False, True])
def test_the_last_layer_computes_the_summary_alone(shared):
    model = Transformer(5, 8, 3, 2, 0.0, shared=shared)
    shapes = []
    for layer in model.layers:
        layer.linear2.register_forward_hook(lambda module, args, result: shapes.append(tuple(result.shape)))
    model(torch.randn(4, 6, 5), torch.tensor([6, 1, 4, 2]))
    assert shapes == [(4, 7, 8), (4, 7, 8), (4, 1, 8)]


@pytest.mark.parametrize("layers", [1, 2])
def test_dropout_is_before_each_sum(layers):
    model = Transformer(5, 8, layers, 2, 1.0, shared=False)
    summaries = model(torch.randn(2, 6, 5), torch.tensor([6, 3]))
    assert_close(summaries, model.norm(model.summary).expand(2, -1))


def test_the_order_of_tokens_counts():
    model = Transformer(5, 8, 1, 2, 0.0, shared=False)
    x, lengths = torch.randn(1, 4, 5), torch.tensor([4])
    assert not torch.allclose(model(x, lengths), model(x.flip(1), lengths))


@pytest.mark.parametrize("shared", [False, True])
def test_a_sequence_may_be_longer_than_any_of_training(shared):
    model = Transformer(5, 8, 1, 2, 0.0, shared=shared).eval()
    with torch.inference_mode():
        assert model(torch.randn(2, 1_500, 5), torch.tensor([1_500, 3])).isfinite().all()


@pytest.mark.parametrize("shared", [False, True])
def test_the_summary_of_a_pair_is_that_of_both_formulas_without_padding(shared):
    """Both formulas begin at position 0."""
    model = PairTransformer(8, 2, 2, 0.0, shared=shared).double()
    x, lengths = torch.randn(6, 5, 8, dtype=torch.float64), torch.tensor([5, 1, 2, 1, 3, 4])
    sizes = []
    model.layers[0].linear2.register_forward_hook(lambda module, args, result: sizes.append(result.shape[1]))
    together = model(x, lengths)
    assert sizes[0] == 1 + 6  # no longer than the longest pair
    for row in range(3):
        left, right = (x[side, : lengths[side]] for side in (row, 3 + row))
        positions = torch.cat([sinusoids(torch.arange(len(part)), 8) for part in (left, right)]).double()
        tokens = torch.cat([left + model.formulas[0], right + model.formulas[1]])
        expected = summary_by_layers(model, tokens, positions)
        assert_close(together[row], expected, rtol=1e-10, atol=1e-12)


def test_the_parameters_of_pairs_are_named_as_in_saved_models():
    names = {name for name, _ in PairTransformer(8, 1, 2, 0.0, shared=False).named_parameters()}
    assert {name for name in names if not name.startswith("layers.0.")} == {
        *("norm.weight", "norm.bias", "summary", "formulas"),
    }
