"""Run the layers and models on an emulated device: `python -m tests.check_devices layers`."""

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from tests.emulated_device import NAME, WAITS, Emulation, OnDevice, emulate, move, to_cpu


def gradients(module: nn.Module, x: Tensor, output: Tensor) -> list[Tensor]:
    """The output, and the gradients of its weighted sum, on the CPU."""
    (output * torch.linspace(-1, 1, output.shape[-1]).to(output.device)).sum().backward()
    found = [output.detach(), x.grad, *(parameter.grad for parameter in module.parameters())]
    return [to_cpu(one) for one in found if one is not None]


def check_layer(
    build: Callable[[], nn.Module], read: Callable[[nn.Module, Tensor], Tensor], same_masks: bool = True
) -> None:
    """Compare outputs and gradients with those on the CPU; if dropout masks differ, only their shapes."""
    found = []
    for here in (False, True):
        torch.manual_seed(1)
        layer = move(build()) if here else build()
        x = torch.randn(7, 3, 8)
        x = (OnDevice(x) if here else x).requires_grad_()
        torch.manual_seed(2)  # the dropout
        found.append(gradients(layer, x, read(layer, x)))
    assert len(found[0]) > 3
    for expected, actual in zip(*found, strict=True):
        assert actual.shape == expected.shape
        if same_masks:
            torch.testing.assert_close(actual, expected)


def layers() -> dict[str, Callable[[], None]]:
    from onlstm import ONLSTM
    from ordered_memory import OrderedMemory
    from ordered_memory.tree_recovery import from_attention, from_distances

    def read_memory(layer, x):
        first = layer(x[:4], lengths=[4, 4, 2])
        second = layer(x, lengths=torch.tensor([7, 4, 1]), state=first.state, num_slots=6)
        attention = second.attention[0] if layer.bidirectional else second.attention
        assert len(from_attention(attention, [7, 4, 1])) == 3
        return second.output

    def read_neurons(layer, x):
        output, state, distances = layer(x, distances=True)
        assert len(from_distances(distances.forget[0], decoding="cky")) == 3
        return output + layer(x, state)[0]

    found = {}
    for backend in ("reference", "sequence"):
        for options in (
            {},
            {"bidirectional": True},
            {"cell": "tree-rnn", "score": "additive"},
            {"cell_dropout": 0.2, "attention_dropout": 0.2},
            {"recompute_every": 3},
        ):
            memory = partial(OrderedMemory, 8, 16, 6, backend=backend, **options)
            same_masks = backend == "reference" or "cell_dropout" not in options
            found[f"OrderedMemory {backend} {options}"] = partial(
                check_layer, memory, read_memory, same_masks
            )
        for options in ({}, {"bidirectional": True}, {"dropout": 0.3}):
            neurons = partial(ONLSTM, 8, 16, num_layers=2, chunk_size=4, backend=backend, **options)
            found[f"ONLSTM {backend} {options}"] = partial(check_layer, neurons, read_neurons)
    for backend in ("reference", "sequence"):
        memory = partial(OrderedMemory, 8, 16, 6, bidirectional=True, cell_dropout=0.1, backend=backend)
        neurons = partial(ONLSTM, 8, 16, num_layers=2, bidirectional=True, backend=backend)
        found[f"OrderedMemory {backend} without waiting"] = partial(check_no_wait, memory)
        found[f"ONLSTM {backend} without waiting"] = partial(check_no_wait, neurons)
    return found


def check_no_wait(build: Callable[[], nn.Module]) -> None:
    """A training step with padded or packed sequences does not make the host wait for the device."""
    torch.manual_seed(1)
    layer, x = move(build()), OnDevice(torch.randn(7, 3, 8)).requires_grad_()
    lengths = torch.tensor([7, 4, 1])
    packed = pack_padded_sequence(x, lengths)
    WAITS.clear()
    layer(x, lengths=lengths)[0].sum().backward()
    layer(packed)[0].data.sum().backward()
    assert not WAITS, f"the host waits: {WAITS}"


def check_classifier(model: nn.Module, data) -> None:
    """A training step, for which the host does not wait, and an evaluation."""
    from tasks.classifiers.classification import compute_losses
    from tasks.classifiers.evaluation import evaluate
    from tasks.runs.machine import to_device

    move(model)
    batch = to_device(data.batch(np.arange(len(data.labels))), NAME)
    WAITS.clear()
    losses = compute_losses(model(batch), batch.labels)
    (losses.loss.mean() + (0 if losses.penalty is None else losses.penalty)).backward()
    if model.config.model != "crvnn":  # asks after each step whether it may stop
        assert not WAITS, f"the host waits: {WAITS}"
    assert any(isinstance(parameter.grad, OnDevice) for parameter in model.parameters())
    assert len(evaluate(model, data, batch_size=2).predicted) == len(data.labels)


def classifiers() -> dict[str, Callable[[], None]]:
    from tasks.classifiers.config import ModelName
    from tasks.classifiers.word_embedding import WordEmbedding
    from tasks.listops.config import ListOpsConfig
    from tasks.listops.data import Dataset as Expressions
    from tasks.listops.model import ListOpsModel
    from tasks.logic.config import LogicConfig
    from tasks.logic.data import Dataset as Pairs
    from tasks.logic.model import LogicModel
    from tasks.sst.config import SentimentConfig
    from tasks.sst.dataset import PhraseData
    from tasks.sst.grammar import generate
    from tasks.sst.model import SentimentModel
    from tasks.sst.treebank import sentences
    from tests.tasks.classifiers.tiny import TINY

    expressions = Expressions.from_texts(["[MAX 2 9 [MIN 4 7 ] 0 ]", "[SM 1 2 ]", "3"]).with_trees()
    pairs = Pairs.from_texts([("( a ( and b ) )", "( a ( or ( not c ) ) )"), ("a", "( not b )")], trees=True)
    trees = generate(4, seed=1)
    words = sorted({word.lower() for tree in trees for word in tree.words})[2:]
    phrases = PhraseData(trees, sentences(trees, 5), include_trees=True)
    found = {}
    for name in get_args(ModelName):
        if name in ("lstm", "gumbel-tree-lstm"):  # the backward pass of nn.LSTM has no emulation
            continue
        options = TINY | {"model": name, "embedding_size": 8, "cell_dropout": 0.2, "attention_dropout": 0.2}
        listops, logic = ListOpsConfig(**options), LogicConfig(**options)
        sentiment = SentimentConfig(vectors=("none",), classes=5, **options)
        found[f"listops {name}"] = lambda c=listops: check_classifier(ListOpsModel(c), expressions)
        found[f"logic {name}"] = lambda c=logic: check_classifier(LogicModel(c), pairs)
        found[f"sst {name}"] = lambda c=sentiment: check_classifier(
            SentimentModel(c, WordEmbedding(words, 8, learned=True)), phrases
        )
    return found


def check_language_model(name: str) -> None:
    """A training step, and all that the tasks do with a trained model."""
    from tasks.language_model.reading import batched_distances
    from tasks.language_model.samples import sample_sentences
    from tasks.language_model.task import LanguageModelingObjective, word_losses
    from tasks.runs.machine import to_device
    from tasks.syntax_eval.scoring import log_probabilities, word_log_probabilities
    from tests.tasks.syntax_eval.tiny import WORDS, tiny_model

    trained = tiny_model(recurrent=name)
    model, config = move(trained.model), trained.config
    text = torch.arange(2000) % len(WORDS)
    task = LanguageModelingObjective(config, text, text)
    batch = task.shard(task.training_batches(1, 4)[0], 0, 1).batch
    WAITS.clear()
    losses = task.losses(model.train(), to_device(batch, NAME))
    (losses.loss.mean() + losses.penalty).backward()
    assert not WAITS, f"the host waits: {WAITS}"
    assert any(isinstance(parameter.grad, OnDevice) for parameter in model.parameters())
    assert word_losses(model, text[:50], config, 1).isfinite().all()
    sentences = [[2, 3, 4], [5, 6]]
    many = log_probabilities(model, sentences)
    one_by_one = [float(word_log_probabilities(model, sentence).sum()) for sentence in sentences]
    np.testing.assert_allclose(many, one_by_one, atol=1e-4)
    assert len(batched_distances(model, sentences)) == 2
    assert len(sample_sentences(trained, count=2, max_words=3)) == 2


def language_models() -> dict[str, Callable[[], None]]:
    return {name: partial(check_language_model, name) for name in ("onlstm", "prpn")}


GROUPS = {"layers": layers, "classifiers": classifiers, "language_models": language_models}


def main(group: str) -> int:
    """Run the checks of a group, and print which fail."""
    emulate()
    checks = GROUPS[group]()
    failed = 0
    for name, check in checks.items():
        try:
            with Emulation():
                check()
        except Exception as error:
            failed += 1
            print(f"{name}: {type(error).__name__}: {error}")
    print(f"{len(checks)} checks, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    status = main(*sys.argv[1:])
    sys.stdout.flush()
    # Autograd's thread of a device that is written in Python may abort the process while the interpreter
    # ends, even after the backward pass of an nn.Linear.
    os._exit(status)
