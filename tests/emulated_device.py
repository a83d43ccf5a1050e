"""Run the layers and models on an emulated device, to find tensors on the wrong device without a GPU.

A tensor of the device is a wrapper around a tensor on the CPU. Operators compute on the CPU, but refuse
tensors of both devices and, as some devices do, float64. A process that registers the device cannot go back:
run this as a program, as test_other_devices.py does.
"""

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

NAME = "emulated"
INDEXING = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
"""These also take indices from the CPU."""
PYTHON: dict[str, Callable] = {}
"""Operators that are written in Python, for all devices."""


class OnDevice(Tensor):
    """A tensor of the device."""

    on_cpu: Tensor

    @staticmethod
    def __new__(cls, on_cpu: Tensor) -> "OnDevice":
        if on_cpu.dtype == torch.float64:
            raise TypeError("this device has no float64")
        wrapper = Tensor._make_wrapper_subclass(
            cls, on_cpu.size(), strides=on_cpu.stride(), dtype=on_cpu.dtype, device=torch.device(NAME, 0)
        )
        wrapper.on_cpu = on_cpu
        return wrapper

    @classmethod
    def __torch_dispatch__(cls, operator, types, args=(), kwargs=None):
        return call(operator, args, kwargs or {})

    def tolist(self):
        return self.on_cpu.tolist()


def is_here(device: object) -> bool:
    return device is not None and torch.device(device).type == NAME


def to_cpu(value: object) -> object:
    """The tensor inside of a wrapper; the CPU in place of the device; anything else as it is."""
    if isinstance(value, OnDevice):
        return value.on_cpu
    return torch.device("cpu") if isinstance(value, torch.device) else value


def call(operator, args, kwargs):
    """Compute on the CPU, and wrap what the device would hold."""
    name = operator.name().split(".")[0]
    if name in PYTHON:
        with Emulation():
            return PYTHON[name](*args, **kwargs)
    if name == "aten::_to_copy":
        copy = operator(*tree_map(to_cpu, args), **tree_map(to_cpu, kwargs))
        return OnDevice(copy) if is_here(kwargs.get("device") or args[0].device) else copy
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    wrappers = {id(leaf.on_cpu): leaf for leaf in tensors if isinstance(leaf, OnDevice)}
    others = [leaf for leaf in tensors if not isinstance(leaf, OnDevice) and leaf.dim() > 0]
    if wrappers and others and name != "aten::copy_":
        # A packed batch has its lengths on the CPU.
        assert name in (*INDEXING, "aten::_pack_padded_sequence"), f"{name}: tensors on two devices"
    found = operator(*tree_map(to_cpu, args), **tree_map(to_cpu, kwargs))
    if name == "aten::copy_":
        return args[0]
    if name == "aten::_pack_padded_sequence":
        return OnDevice(found[0]), found[1]
    if not wrappers and not is_here(kwargs.get("device")):
        return found
    return tree_map(lambda leaf: _wrapped(leaf, wrappers) if isinstance(leaf, Tensor) else leaf, found)


def _wrapped(tensor: Tensor, wrappers: dict[int, OnDevice]) -> OnDevice:
    """A wrapper; that of the argument, if the operator has changed an argument in place."""
    return wrappers[id(tensor)] if id(tensor) in wrappers else OnDevice(tensor)


class Emulation(TorchDispatchMode):
    """Also sees the operators that make tensors."""

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        return call(operator, args, kwargs or {})


def move(module: nn.Module) -> nn.Module:
    """Put parameters and buffers on the device."""
    for child in module.modules():
        for name, tensor in child._parameters.items():
            if tensor is not None:
                child._parameters[name] = nn.Parameter(OnDevice(tensor.detach().clone()))
        for name, tensor in child._buffers.items():
            if tensor is not None:
                child._buffers[name] = OnDevice(tensor.clone())
    return module


class CPUGenerator(torch.Generator):
    """A generator of the CPU, of whatever device it should be."""

    def __new__(cls, device=None):
        return REAL_GENERATOR()


REAL_GENERATOR, REAL_TENSOR, REAL_IMPL = torch.Generator, torch.tensor, torch.library.Library.impl


def tensor(data, *, dtype=None, device=None):
    made = REAL_TENSOR(data, dtype=dtype)
    return OnDevice(made) if is_here(device) else made


def impl(library, name, function, key="", **options):
    if key == "CompositeExplicitAutograd":
        PYTHON[f"{library.ns}::{name}"] = function
    return REAL_IMPL(library, name, function, key, **options)


def emulate() -> None:
    """Register the device, and replace the functions of PyTorch that the emulation does not reach."""
    backend_registration._setup_privateuseone_for_python_backend(NAME)
    module = getattr(torch, NAME)
    module.get_amp_supported_dtype = lambda: [torch.bfloat16]
    torch.Generator, torch.tensor, torch.library.Library.impl = CPUGenerator, tensor, impl
    # Wrappers cannot be inference tensors.
    torch.inference_mode = lambda mode=True: torch.no_grad() if mode else contextlib.nullcontext()
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from ordered_memory.cky import WITHOUT_FLOAT64

    WITHOUT_FLOAT64.add(NAME)


def gradients(module: nn.Module, x: Tensor, output: Tensor) -> list[Tensor]:
    """The output, and the gradients of its weighted sum, on the CPU."""
    (output * torch.linspace(-1, 1, output.shape[-1]).to(output.device)).sum().backward()
    found = [output.detach(), x.grad, *(parameter.grad for parameter in module.parameters())]
    return [to_cpu(one) for one in found if one is not None]


def check_layer(
    build: Callable[[], nn.Module], read: Callable[[nn.Module, Tensor], Tensor], same_masks: bool = True
) -> None:
    """Compare outputs and gradients with those on the CPU; without the same dropout masks, their shapes."""
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
    return found


def check_classifier(model: nn.Module, data) -> None:
    """A training step and an evaluation."""
    from tasks.classifiers.classification import compute_losses
    from tasks.classifiers.evaluation import evaluate
    from tasks.runs.machine import to_device

    batch = to_device(data.batch(np.arange(len(data.labels))), NAME)
    losses = compute_losses(move(model)(batch), batch.labels)
    (losses.loss.mean() + (0 if losses.penalty is None else losses.penalty)).backward()
    assert any(isinstance(parameter.grad, OnDevice) for parameter in model.parameters())
    assert len(evaluate(model, data, batch_size=2, device=NAME).predicted) == len(data.labels)


def classifiers() -> dict[str, Callable[[], None]]:
    from tasks.classifiers.encoders import ModelName
    from tasks.listops.config import ListOpsConfig
    from tasks.listops.data import Dataset as Expressions
    from tasks.listops.model import ListOpsModel
    from tasks.logic.config import LogicConfig
    from tasks.logic.data import Dataset as Pairs
    from tasks.logic.model import LogicModel
    from tasks.sst.config import SentimentConfig
    from tasks.sst.dataset import PhraseData
    from tasks.sst.embedding import WordEmbedding
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
    from tasks.language_model.reading import syntactic_distances
    from tasks.language_model.samples import sample_sentences
    from tasks.language_model.task import LanguageModelling, word_losses
    from tasks.runs.machine import to_device
    from tasks.syntax_eval.scoring import log_probabilities, word_log_probabilities
    from tests.tasks.syntax_eval.tiny import WORDS, tiny_model

    trained = tiny_model(recurrent=name)
    model, config = move(trained.model), trained.config
    text = torch.arange(2000) % len(WORDS)
    task = LanguageModelling(config, text, text)
    batch = task.shard(task.training_batches(1, 4)[0], 0, 1).batch
    losses = task.losses(model.train(), to_device(batch, NAME))
    (losses.loss.mean() + losses.penalty).backward()
    assert any(isinstance(parameter.grad, OnDevice) for parameter in model.parameters())
    assert word_losses(model, text[:50], config, 1).isfinite().all()
    sentences = [[2, 3, 4], [5, 6]]
    many = log_probabilities(model, sentences, 0)
    one_by_one = [float(word_log_probabilities(model, sentence, 0).sum()) for sentence in sentences]
    np.testing.assert_allclose(many, one_by_one, atol=1e-4)
    assert len(syntactic_distances(model, sentences, 0)) == 2
    assert len(sample_sentences(trained, count=2, max_words=3)) == 2


def main() -> int:
    """Run all checks, and print which fail."""
    emulate()
    checks = layers() | classifiers()
    checks |= {name: partial(check_language_model, name) for name in ("onlstm", "prpn")}
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
    sys.exit(main())
