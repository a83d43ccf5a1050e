"""Checks of the layers and models on a device that is not the CPU: `python -m tests.check_devices`.

The command runs them on the emulated device. tests/test_gpu.py runs them on a GPU.
"""

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from tests import emulated_device
from tests.tolerances import assert_close


class EmulatedDevice:
    """The device of `tests.emulated_device`."""

    name = emulated_device.NAME
    same_random_numbers = True
    without = ("lstm", "gumbel-tree-lstm")  # the backward pass of nn.LSTM has no emulation
    backends = ("reference", "sequence")
    assert_close = staticmethod(torch.testing.assert_close)  # it computes on the CPU
    place = emulated_device.OnDevice
    move = staticmethod(emulated_device.move)
    to_cpu = staticmethod(emulated_device.to_cpu)

    @staticmethod
    @contextlib.contextmanager
    def no_waits() -> Iterator[None]:
        emulated_device.WAITS.clear()
        yield
        assert not emulated_device.WAITS, f"the host waits: {emulated_device.WAITS}"


class GPU:
    """A CUDA device."""

    name = "cuda"
    same_random_numbers = False
    without = ()
    backends = ("reference", "sequence", "triton")
    assert_close = staticmethod(assert_close)
    place = staticmethod(Tensor.cuda)
    move = staticmethod(nn.Module.cuda)
    to_cpu = staticmethod(Tensor.cpu)

    @staticmethod
    @contextlib.contextmanager
    def no_waits() -> Iterator[None]:
        torch.cuda.synchronize()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
            torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


Device = type[EmulatedDevice] | type[GPU]


def gradients(device: Device, module: nn.Module, x: Tensor, output: Tensor) -> list[Tensor]:
    """The output, and the gradients of its weighted sum, on the CPU."""
    (output * torch.linspace(-1, 1, output.shape[-1]).to(output.device)).sum().backward()
    found = [output.detach(), x.grad, *(parameter.grad for parameter in module.parameters())]
    return [device.to_cpu(one) for one in found if one is not None]


def check_layer(
    device: Device,
    build: Callable[[], nn.Module],
    read: Callable[[nn.Module, Tensor], Tensor],
    same_masks: bool = True,
) -> None:
    """Compare outputs and gradients with those on the CPU; if dropout masks differ, only their shapes."""
    found = []
    for here in (False, True):
        torch.manual_seed(1)
        layer, x = build(), torch.randn(3, 3, 8)
        if here:
            layer, x = device.move(layer), device.place(x)
        elif layer.backend == "triton":
            layer.backend = "reference"
        x.requires_grad_()
        torch.manual_seed(2)  # the dropout
        found.append(gradients(device, layer, x, read(layer, x)))
    assert len(found[0]) > 3
    for expected, actual in zip(*found, strict=True):
        assert actual.shape == expected.shape
        assert actual.isfinite().all()
        if same_masks:
            device.assert_close(actual, expected)


def layers(device: Device) -> dict[str, Callable[[], None]]:
    from onlstm import ONLSTM
    from ordered_memory import OrderedMemory
    from ordered_memory.tree_recovery import from_attention, from_distances

    def read_memory(layer, x):
        first = layer(x[:2], lengths=[2, 2, 1])
        second = layer(x, lengths=torch.tensor([3, 2, 1]), state=first.state, num_slots=3)
        attention = second.attention[0] if layer.bidirectional else second.attention
        assert len(from_attention(attention, [3, 2, 1])) == 3
        return second.output

    def read_neurons(layer, x):
        output, state, distances = layer(x, distances=True)
        assert len(from_distances(distances.forget[0], decoding="cky")) == 3
        return output + layer(x, state)[0]

    found = {}
    for backend in device.backends:
        for options in (
            {},
            {"bidirectional": True},
            {"cell": "tree-rnn", "score": "additive"},
            {"score": "additive"},
            {"cell_dropout": 0.2, "attention_dropout": 0.2},
            {"recompute_every": 2},
        ):
            if backend == "triton" and "cell" in options:
                continue
            memory = partial(OrderedMemory, 8, 16, 3, backend=backend, **options)
            same_masks = "cell_dropout" not in options or (
                device.same_random_numbers and backend == "reference"
            )
            found[f"OrderedMemory {backend} {options}"] = partial(
                check_layer, device, memory, read_memory, same_masks
            )
        for options in ({}, {"bidirectional": True}, {"dropout": 0.3}):
            neurons = partial(ONLSTM, 8, 16, num_layers=2, chunk_size=4, backend=backend, **options)
            same_masks = "dropout" not in options or device.same_random_numbers
            found[f"ONLSTM {backend} {options}"] = partial(
                check_layer, device, neurons, read_neurons, same_masks
            )
    for backend in device.backends:
        memory = partial(OrderedMemory, 8, 16, 3, bidirectional=True, cell_dropout=0.1, backend=backend)
        neurons = partial(ONLSTM, 8, 16, num_layers=2, bidirectional=True, backend=backend)
        found[f"OrderedMemory {backend} without waiting"] = partial(check_no_wait, device, memory)
        found[f"ONLSTM {backend} without waiting"] = partial(check_no_wait, device, neurons)
    return found


def check_no_wait(device: Device, build: Callable[[], nn.Module]) -> None:
    """A training step with padded or packed sequences does not make the host wait for the device."""
    torch.manual_seed(1)
    layer, x = device.move(build()), device.place(torch.randn(3, 3, 8)).requires_grad_()
    lengths = torch.tensor([3, 2, 1])
    packed = pack_padded_sequence(x, lengths)
    with device.no_waits():
        layer(x, lengths=lengths)[0].sum().backward()
        layer(packed)[0].data.sum().backward()


def check_classifier(device: Device, model: nn.Module, data) -> None:
    """A training step, for which the host does not wait, an evaluation, and the check of loaded weights."""
    from tasks.classifiers.classification import compute_losses
    from tasks.classifiers.evaluation import evaluate
    from tasks.runs.checkpoints import check_weights
    from tasks.runs.machine import to_device

    device.move(model)
    batch = to_device(data.batch(np.arange(len(data.labels))), device.name)
    # CRvNN asks after each step whether it may stop, and PyTorch packs sequences of other lengths by itself.
    with contextlib.nullcontext() if model.config.model in ("crvnn", "lstm") else device.no_waits():
        losses = compute_losses(model(batch), batch.labels)
        (losses.loss.mean() + (0 if losses.penalty is None else losses.penalty)).backward()
    assert any(p.grad is not None and p.grad.device.type == device.name for p in model.parameters())
    assert len(evaluate(model, data, batch_size=2).predicted) == len(data.labels)
    on_device = model.state_dict()
    for weights in (on_device, {name: tensor.cpu() for name, tensor in on_device.items()}):
        check_weights(Path("best.safetensors"), weights, model)


def classifiers(device: Device) -> dict[str, Callable[[], None]]:
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

    expressions = Expressions.from_texts(["[MAX 2 9 [MIN 4 7 ] 0 ]", "[SM 1 2 ]", "3"], include_trees=True)
    pairs = Pairs.from_texts(
        [("( a ( and b ) )", "( a ( or ( not c ) ) )"), ("a", "( not b )")], include_trees=True
    )
    trees = generate(4, seed=1)
    words = sorted({word.lower() for tree in trees for word in tree.words})[2:]
    phrases = PhraseData(trees, sentences(trees, 5), include_trees=True)
    found = {}
    for name in get_args(ModelName):
        if name in device.without:
            continue
        options = TINY | {"model": name, "embedding_size": 8, "cell_dropout": 0.2, "attention_dropout": 0.2}
        listops, logic = ListOpsConfig(**options), LogicConfig(**options)
        sentiment = SentimentConfig(vectors=("none",), classes=5, **options)
        found[f"listops {name}"] = lambda c=listops: check_classifier(device, ListOpsModel(c), expressions)
        found[f"logic {name}"] = lambda c=logic: check_classifier(device, LogicModel(c), pairs)
        found[f"sst {name}"] = lambda c=sentiment: check_classifier(
            device, SentimentModel(c, WordEmbedding(words, 8, learned=True)), phrases
        )
    return found


def check_language_model(device: Device, name: str) -> None:
    """A training step, and all that the tasks do with a trained model."""
    from tasks.language_model.reading import batched_distances
    from tasks.language_model.samples import sample_sentences
    from tasks.language_model.task import LanguageModelingObjective, word_losses
    from tasks.runs.machine import to_device
    from tasks.syntax_eval.scoring import log_probabilities, word_log_probabilities
    from tests.tasks.syntax_eval.tiny import WORDS, tiny_model

    trained = tiny_model(recurrent=name, bptt=8)
    model, config = device.move(trained.model), trained.config
    text = torch.arange(40) % len(WORDS)
    task = LanguageModelingObjective(config, text, text)
    batch = task.shard(task.training_batches(1, 4)[0], 0, 1).batch
    # The backward pass of PyTorch's cumprod, which PRPN calls, looks for zeros.
    with contextlib.nullcontext() if name == "prpn" and device is GPU else device.no_waits():
        losses = task.losses(model.train(), to_device(batch, device.name))
        (losses.loss.mean() + losses.penalty).backward()
    assert any(p.grad is not None and p.grad.device.type == device.name for p in model.parameters())
    assert word_losses(model, text[:10], config, 1).isfinite().all()
    sentences = [[2, 3, 4], [5, 6]]
    many = log_probabilities(model, sentences)
    one_by_one = [float(word_log_probabilities(model, sentence).sum()) for sentence in sentences]
    np.testing.assert_allclose(many, one_by_one, atol=1e-4)
    assert len(batched_distances(model, sentences)) == 2
    assert len(sample_sentences(trained, count=2, max_words=3)) == 2


def language_models(device: Device) -> dict[str, Callable[[], None]]:
    return {name: partial(check_language_model, device, name) for name in ("onlstm", "prpn")}


def models(device: Device) -> dict[str, Callable[[], None]]:
    return classifiers(device) | language_models(device)


GROUPS = {"layers": layers, "models": models}


def main(*groups: str) -> int:
    """Run the checks of these groups, or of all, on the emulated device, and print which fail."""
    emulated_device.emulate()
    all_failed = 0
    for group in groups or GROUPS:
        checks = GROUPS[group](EmulatedDevice)
        failed = 0
        for name, check in checks.items():
            try:
                with emulated_device.Emulation():
                    check()
            except Exception as error:
                failed += 1
                print(f"{name}: {type(error).__name__}: {error}")
        print(f"{group}: {len(checks)} checks, {failed} failed")
        all_failed += failed
    return int(all_failed > 0)


if __name__ == "__main__":
    status = main(*sys.argv[1:])
    sys.stdout.flush()
    # Autograd's thread of a device that is written in Python may abort the process while the interpreter
    # ends, even after the backward pass of an nn.Linear.
    os._exit(status)
