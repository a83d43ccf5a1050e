"""PRPN: its equations word by word, carried state, gates, a gradient that reaches the distances."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tasks.language_model.config import LanguageModelConfig
from tasks.language_model.model import Trained, build_model
from tasks.language_model.optimization import build_optimization
from tasks.language_model.prpn import PRPN, ReadingLayer, memory_gates, structured_attention
from tasks.language_model.reading import batched_distances, distances_of_sentences
from tasks.language_model.task import LanguageModelingObjective
from tasks.language_model.vocabulary import Vocabulary
from tasks.parsing.evaluation import decode
from tests.tolerances import assert_close

NO_DROPOUT = dict.fromkeys([f"{name}_dropout" for name in ("input", "hidden", "output", "recurrent")], 0.0)
SLOTS, LOOK_BACK = 4, 2


def small_model(num_layers=2, **options):
    """Weights large enough for gates between open and shut."""
    torch.manual_seed(0)
    model = PRPN(11, 6, 8, num_layers, num_slots=SLOTS, look_back=LOOK_BACK, **NO_DROPOUT | options).double()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(std=0.05 if name.startswith("parser.distances") else 0.5)
    return model


# ---- the equations


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Transcription:
    """The equations of the paper for one text, with all memories kept and every gate computed again."""

    def __init__(self, model):
        self.weights = {name: value.numpy() for name, value in model.state_dict().items()}
        self.num_layers = len(model.readers)

    def linear(self, name, x):
        return self.weights[f"{name}.weight"] @ x + self.weights.get(f"{name}.bias", 0.0)

    def norm(self, name, x):
        scaled = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
        return self.weights[f"{name}.weight"] * scaled + self.weights[f"{name}.bias"]

    def gate(self, d_t, between):
        alphas = [(min(1.0, max(-1.0, (d_t - d_j) * 10)) + 1) / 2 for d_j in between]
        return math.prod(alphas)

    def mean(self, key, hidden, gates, *tapes):
        scores = np.exp([h @ key / math.sqrt(len(key)) for h in hidden])
        weights = scores / scores.sum() * gates
        weights = weights / (weights.sum() + 1e-8)
        return [sum(s * value for s, value in zip(weights, tape, strict=True)) for tape in tapes]

    def __call__(self, words):
        embedded = [self.weights["embedding.weight"][word] for word in words]
        kernel, bias = (self.weights[f"parser.convolution.{name}"] for name in ("weight", "bias"))
        d, logits, gates_seen = [], [], []
        nothing = [np.zeros(8)] * SLOTS  # the last is the initial state; the gates are shut on the others
        tapes = [(list(nothing), list(nothing)) for _ in range(self.num_layers)]
        for t in range(len(words)):
            window = [embedded[i] if i >= 0 else np.zeros(6) for i in range(t - LOOK_BACK, t + 1)]
            h = bias + sum(kernel[:, :, i] @ e for i, e in enumerate(window))
            h = np.maximum(self.norm("parser.norm", h), 0)
            d_t, d_next = sigmoid(self.linear("parser.distances", h))
            d.append(d_t)
            reach = range(t - SLOTS, t)
            open_to = [1.0 if i == t - 1 else self.gate(d_t, d[i + 1 : t]) if i >= -1 else 0.0 for i in reach]
            predict = [self.gate(d_next, d[i + 1 : t + 1]) if i >= -1 else 0.0 for i in reach]
            gates_seen += open_to[:-1] + predict
            x = embedded[t]
            for layer, (hidden, cells) in enumerate(tapes):
                name = f"readers.{layer}"
                key = self.linear(f"{name}.key_input", x) + self.linear(f"{name}.key_hidden", hidden[-1])
                last = hidden[-SLOTS:], cells[-SLOTS:]
                if layer == self.num_layers - 1:
                    before = last[0]
                h, c = self.mean(key, last[0], open_to, *last)
                parts = self.norm(f"{name}.input.1", self.linear(f"{name}.input.0", x))
                parts = parts + self.norm(f"{name}.hidden.1", self.linear(f"{name}.hidden.0", h))
                i, f, candidate, o = np.split(parts, 4)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(candidate)
                x = sigmoid(o) * np.tanh(self.norm(f"{name}.cell_norm", c))
                hidden.append(x)
                cells.append(c)
            (summary,) = self.mean(self.linear("predictor.key", x), before, predict, before)
            out = self.linear("predictor.output.0", np.concatenate([summary, x]))
            out = np.tanh(self.norm("predictor.output.1", out))
            logits.append(self.weights["embedding.weight"] @ out + self.weights["output_bias"])
        return np.array(logits), np.array(d), np.array(gates_seen)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_the_model_is_the_equations(num_layers):
    model = small_model(num_layers)
    tokens = torch.randint(11, (9, 3))
    logits, distances = model(tokens).logits, model.syntactic_distances(tokens)
    assert distances.shape == (1, 9, 3)
    for column in range(3):
        expected, d, gates = Transcription(model)(tokens[:, column].tolist())
        assert ((gates > 0.01) & (gates < 0.99)).mean() > 0.2
        assert_close(logits[:, column], torch.from_numpy(expected))
        assert_close(distances[0, :, column], torch.from_numpy(d))


@pytest.mark.parametrize("cuts", [[1], [4], [1, 2, 3, 8], [7]])
def test_a_text_in_parts_is_the_text_in_one(cuts):
    model = small_model()
    tokens = torch.randint(11, (9, 3))
    whole, state, parts = model(tokens), None, []
    for part in torch.tensor_split(tokens, cuts):
        out = model(part, state)
        state = out.state
        parts.append(out.logits)
    assert_close(torch.cat(parts), whole.logits)
    for found, expected in zip(sum(state, ()), sum(whole.state, ()), strict=True):
        assert_close(found, expected)


def test_outputs_do_not_depend_on_later_words_or_other_sequences():
    model = small_model()
    tokens = torch.randint(11, (9, 3))
    other = tokens.clone()
    other[5:, 0] = 0
    other[:, 1:] = 1
    assert_close(model(tokens).logits[:5, 0], model(other).logits[:5, 0])
    assert_close(model.syntactic_distances(tokens)[0, :5, 0], model.syntactic_distances(other)[0, :5, 0])


def test_gates_reach_back_to_the_last_larger_distance():
    for order in itertools.permutations(range(5)):
        d = torch.tensor(order) / 5.0
        gates = memory_gates(d[4], d[:4])
        larger = [i for i in range(4) if d[i] > d[4]]
        expected = [float(not larger or i >= larger[-1]) for i in range(-1, 3)]
        assert gates.tolist() == expected


def test_gates_between_open_and_shut():
    gates = memory_gates(torch.tensor(0.5), torch.tensor([0.5, 0.45, 0.52]))
    torch.testing.assert_close(gates, torch.tensor([0.5 * 0.75 * 0.4, 0.75 * 0.4, 0.4]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_attention_behind_shut_gates_is_nothing_and_its_gradient_is_finite(dtype):
    keys, memories = (torch.randn(*sizes, 3, dtype=dtype, requires_grad=True) for sizes in ((2,), (4, 2)))
    gates = torch.tensor([[0.0, 0], [0, 0], [0, 0.5], [0, 1]], dtype=dtype, requires_grad=True)
    weights = structured_attention(keys, memories, gates)
    assert (weights[:, 0] == 0).all()
    torch.testing.assert_close(weights[:, 1].sum(), torch.tensor(1.0, dtype=dtype))
    weights.square().sum().backward()
    assert all(tensor.grad.isfinite().all() for tensor in (keys, memories, gates))


# ---- gradients and learning


def test_the_gradient_reaches_the_distances_and_is_that_of_differences():
    model = small_model()
    tokens = torch.randint(11, (7, 2))
    names = ["parser.distances.weight", "parser.distances.bias", "parser.convolution.bias"]

    def loss(*weights):
        out = torch.func.functional_call(model, dict(zip(names, weights, strict=True)), tokens[:-1])
        return cross_entropy(out.logits.flatten(0, 1), tokens[1:].flatten())

    weights = [model.get_parameter(name).detach().requires_grad_() for name in names]
    assert all(gradient.abs().max() > 1e-6 for gradient in torch.autograd.grad(loss(*weights), weights))
    assert torch.autograd.gradcheck(loss, weights)


def test_every_parameter_learns_and_the_loss_of_a_small_text_falls():
    torch.manual_seed(1)
    model = PRPN(5, 12, 16, 2, num_slots=4, look_back=2, **NO_DROPOUT)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    tokens = torch.tensor([[0, 1, 2, 0, 3, 4, 0, 1, 2, 0], [3, 4, 0, 1, 2, 0, 3, 4, 0, 1]]).T
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = cross_entropy(model(tokens[:-1]).logits.flatten(0, 1), tokens[1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert losses[-1] < 0.5 * losses[0]


# ---- dropout


def test_a_dropped_recurrent_state_is_one_without_recurrent_weights():
    torch.manual_seed(0)
    layer, gates = ReadingLayer(3, 4, recurrent_dropout=1.0), torch.ones(2, 5, 3)
    x, zeros = torch.randn(5, 3, 3), torch.zeros(2, 3, 4)
    dropped, _ = layer(x, (zeros, zeros), gates)
    read, _ = layer.eval()(x, (zeros, zeros), gates)
    assert not torch.equal(dropped, read)
    nn.init.zeros_(layer.hidden[0].weight)
    torch.testing.assert_close(dropped, layer(x, (zeros, zeros), gates)[0])


def test_every_dropout_changes_training_and_not_evaluation():
    tokens = torch.randint(11, (6, 2))
    expected = small_model()(tokens).logits
    for name in ("embedding", "input", "hidden", "output", "recurrent"):
        model = small_model(**{f"{name}_dropout": 0.5})
        torch.manual_seed(1)
        assert not torch.equal(model(tokens).logits, expected), name
        assert_close(model.eval()(tokens).logits, expected)


def test_hidden_dropout_is_on_the_output_of_each_layer_except_the_last():
    tokens = torch.randint(11, (6, 2))
    expected, found = (small_model(hidden_dropout=dropout)(tokens) for dropout in (0.0, 1.0))
    for before, after in zip(expected.state[0], found.state[0], strict=True):
        assert_close(after, before)
    model = small_model()
    with torch.no_grad():  # a second layer that does not see its input
        for name in ("key_input", "input.0"):
            model.get_parameter(f"readers.1.{name}.weight").zero_()
    assert_close(found.logits, model(tokens).logits)


# ---- in the tasks


def test_what_a_checkpoint_keeps_of_the_state_continues_the_text():
    config = LanguageModelConfig(model="prpn", embedding_size=6, hidden_size=8, num_layers=2, bptt=8)
    text = torch.randint(11, (60,))
    model = build_model(config, 11).eval()
    task, resumed = (
        LanguageModelingObjective(config, text, text),
        LanguageModelingObjective(config, text, text),
    )
    first, second, *_ = (task.shard(batch, 0, 1).batch for batch in task.training_batches(1, 2))
    task.losses(model.train(), first)
    resumed.load_state(task.state())
    losses = []
    for one in (task, resumed):
        torch.manual_seed(1)
        losses.append(one.losses(model, second).loss)
    assert torch.equal(*losses)


class HandMade(nn.Module):
    """The first feature of a word is its distance."""

    def forward(self, words):
        distances = words[LOOK_BACK:, :, 0]
        return distances, distances


def test_trees_are_read_off_the_distances():
    names = ["<eos>", "the", "dog", "sees", "a", "cat"]
    model = PRPN(len(names), 6, 8, num_slots=SLOTS, look_back=LOOK_BACK).eval()
    model.parser = HandMade()
    with torch.no_grad():
        model.embedding.weight[:, 0] = torch.tensor([1.0, 0.9, 0.1, 0.8, 0.5, 0.2])
    trained = Trained(model, Vocabulary(names), LanguageModelConfig(model="prpn"))
    found = distances_of_sentences(trained, [names[1:], names[1:3]], ["here", "there"])
    torch.testing.assert_close(found[0], torch.tensor([[0.9, 0.1, 0.8, 0.5, 0.2]]))
    trees = decode([distances[0] for distances in found], "unbiased")
    assert trees == [((0, 1), (2, (3, 4))), (0, 1)]


def test_batch_mates_and_padding_have_no_influence_on_distances():
    model = small_model()
    sentences = [torch.randint(11, (size,)).tolist() for size in (3, 1, 9, 4)]
    together = batched_distances(model, sentences)
    for sentence, found in zip(sentences, together, strict=True):
        (alone,) = batched_distances(model, [sentence])
        assert found.shape == (1, len(sentence))
        torch.testing.assert_close(found, alone)


def test_distances_are_in_full_precision_under_autocast():
    model = PRPN(11, 6, 8, 2).eval()
    with torch.autocast("cpu", torch.bfloat16):
        distances = model.syntactic_distances(torch.randint(11, (5, 2)))
    assert distances.dtype == torch.float32
    assert not torch.equal(distances, distances.bfloat16().float())


def test_adam_has_the_options_of_the_run():
    config = LanguageModelConfig(model="prpn", learning_rate=0.5, weight_decay=0.25, patience=7)
    optimization = build_optimization(nn.Linear(2, 1), config)
    (group,) = optimization.optimizer.param_groups
    assert (group["lr"], group["weight_decay"]) == (0.5, 0.25)
    assert optimization.state_dict()["scheduler"]["patience"] == 7


SIZES = ("vocabulary_size", "embedding_size", "hidden_size", "num_layers", "num_slots", "look_back")
DROPOUT = [f"{name}_dropout" for name in ("embedding", "input", "hidden", "output", "recurrent")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_dropout": 2.0}, r"input_dropout must lie in \[0, 1\], got 2.0"),
        ({"recurrent_dropout": 1.5}, r"recurrent_dropout must lie in \[0, 1\], got 1.5"),
        *(({name: 0}, f"{name} must be an integer of at least 1, got 0") for name in SIZES),
        *(({name: -1}, rf"{name} must lie in \[0, 1\], got -1") for name in DROPOUT),
    ],
)
def test_bad_arguments(options, message):
    sizes = {"vocabulary_size": 11, "embedding_size": 6, "hidden_size": 8}
    with pytest.raises(ValueError, match=message):
        PRPN(**sizes | options)


def test_bad_calls():
    model = small_model()
    with pytest.raises(ValueError, match=r"tokens must be \(T, B\), got shape \(3,\)"):
        model(torch.zeros(3, dtype=torch.int64))
    for read in (model, model.syntactic_distances):
        with pytest.raises(RuntimeError, match="Expected sequence length to be larger than 0, got 0"):
            read(torch.zeros(0, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"state must have 3 pairs, of the layers and .*, got 1"):
        model(torch.zeros(1, 1, dtype=torch.int64), [(torch.zeros(1, 1, 8), torch.zeros(1, 1, 8))])
