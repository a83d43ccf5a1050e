"""Ordered Memory's contenders: every backend of the layer, the authors' module, nn.LSTM, and the floor.

A training step is the forward pass, a scalar loss on the summaries, and the backward pass to all parameters
and to the embedded inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ordered_memory import OrderedMemory
from ordered_memory.backends import BACKENDS
from ordered_memory.backends.native import multiplies_bfloat16
from tasks.benchmark.batches import Batch, embed, pad_left, random_embeddings, with_input_gradients
from tasks.benchmark.contender import FLOOR, LSTM, RELEASED, Contender, ModuleContender
from tasks.benchmark.floor import Floor
from tasks.benchmark.released import build_released
from tasks.benchmark.workloads import Sizes, TokenBatch
from tasks.listops.config import ListOpsConfig
from tasks.listops.model import load_model
from tasks.runs.errors import UserError


class Entry(NamedTuple):
    """A contender by name.

    Args:
        name: in tables.
        backend: of our layer; None for the others.
        recompute_every: argument of our layer.
        bfloat16: under autocast.
    """

    name: str
    backend: str | None = None
    recompute_every: int | None = None
    bfloat16: bool = False


@dataclass(frozen=True)
class Setup:
    """Everything that contenders are built from; another process builds the same from it."""

    sizes: Sizes
    seed: int
    device: str
    released_code: Path | None = None
    checkpoint: Path | None = None
    left_padded: bool = False


def entries_of(released_code: Path | None, recompute_every: int | None = None) -> list[Entry]:
    """All contenders: the backends, the authors' code, LSTM and the floor.

    Args:
        released_code: checkout of the authors' repository; None to leave them out.
        recompute_every: if given, every backend also runs with this argument of `OrderedMemory`.
    """
    entries = [Entry(name, name) for name in BACKENDS]
    if multiplies_bfloat16():
        entries.insert(1, Entry("native, bfloat16", "native", bfloat16=True))
    if recompute_every is not None:
        entries += [Entry(f"{name}, checkpoints", name, recompute_every) for name in BACKENDS]
    if released_code is not None:
        entries.append(Entry(RELEASED))
    return [*entries, Entry(LSTM), Entry(FLOOR)]


def balanced_checkpoints(steps: int) -> int:
    """The length of a stretch if about √T stretches are to cover T steps.

    Args:
        steps: T.
    Example:
        >>> balanced_checkpoints(1000)
        33
    """
    return math.ceil(steps / math.isqrt(steps))


def trained_sizes(checkpoint: Path) -> Sizes:
    """The sizes of a trained ListOps model.

    Args:
        checkpoint: a run's best.safetensors.
    Raises:
        UserError: no such file, not a ListOps checkpoint, or one of an LSTM.
    """
    table, _, config = _load(checkpoint)
    return Sizes(
        slot_size=config.slot_size,
        num_slots=config.num_slots,
        cell_dropout=config.cell_dropout,
        attention_dropout=config.attention_dropout,
        input_size=config.embedding_size,
        vocabulary=len(table) - 1,
        score=config.score,
        cell=config.cell,
        occupancy_threshold=config.occupancy_threshold,
    )


def build_batches(setup: Setup, batches: Sequence[TokenBatch]) -> list[Batch]:
    """Embed batches with the checkpoint's embeddings, or with random ones if there is none.

    Args:
        setup: sizes, seed, device and checkpoint.
        batches: tokens.
    """
    if setup.checkpoint is None:
        table = random_embeddings(setup.sizes, setup.seed, setup.device)
    else:
        table = _load(setup.checkpoint)[0].to(setup.device)
    return [embed(batch, table, setup.sizes, setup.seed) for batch in batches]


def build_layer(setup: Setup, backend: str = "auto", recompute_every: int | None = None) -> OrderedMemory:
    """Our layer; the same setup gives the same weights with every backend.

    Args:
        setup: sizes, seed, device and checkpoint.
        backend: of the layer.
        recompute_every: of the layer.
    """
    sizes = setup.sizes
    torch.manual_seed(setup.seed)
    layer = OrderedMemory(
        sizes.input_size,
        sizes.slot_size,
        sizes.num_slots,
        cell_dropout=sizes.cell_dropout,
        attention_dropout=sizes.attention_dropout,
        score=sizes.score,
        cell=sizes.cell,
        occupancy_threshold=sizes.occupancy_threshold,
        backend=backend,
        recompute_every=recompute_every,
    )
    if setup.checkpoint is not None:
        layer.load_state_dict(_load(setup.checkpoint)[1])
    return layer.to(setup.device)


def build(setup: Setup, entry: Entry, batches: Sequence[Batch]) -> Contender:
    """Build a contender.

    Args:
        setup: what from.
        entry: which.
        batches: that it will run.
    Returns:
        The contender.
    Raises:
        RuntimeError: the backend cannot run here; says why.
        UserError: the authors' code is not what it should be.
    """
    if entry.name == FLOOR:
        return Floor(build_layer(setup), batches)
    if entry.name == LSTM:
        return batch_contender(_Lstm(setup.sizes).to(setup.device), batches)
    if entry.name == RELEASED:
        assert setup.released_code is not None
        module = build_released(setup.released_code, setup.sizes, build_layer(setup))
        arranged = [pad_left(batch) for batch in batches] if setup.left_padded else batches
        return batch_contender(_Released(module, setup.left_padded), arranged)
    assert entry.backend is not None
    if entry.backend == "triton" and torch.device(setup.device).type == "cpu":
        raise RuntimeError("backend 'triton' cannot run here: it would only be interpreted")
    layer = build_layer(setup, entry.backend, entry.recompute_every)
    contender = batch_contender(_Ours(layer, entry.bfloat16), batches)
    # A backend that cannot run says so when it is first called, in either mode.
    probe = batch_contender(contender.module, [_first_token(batches[0])])
    probe.training_step(0)()
    probe.evaluation(0)()
    return contender


def batch_contender(module: nn.Module, batches: Sequence[Batch]) -> ModuleContender[Batch]:
    """A contender whose loss is the sum of its module's output times the `weights` of the batch.

    Args:
        module: maps a `Batch` to a tensor of the shape of its `weights`.
        batches: on the device of the module.
    """
    return ModuleContender(
        module,
        batches,
        loss=lambda batch: (module(batch) * batch.weights).sum(),
        forward=module,
        prepare=with_input_gradients,
    )


class _Ours(nn.Module):
    def __init__(self, layer: OrderedMemory, autocast: bool) -> None:
        super().__init__()
        self.layer, self.autocast = layer, autocast

    def forward(self, batch: Batch) -> Tensor:
        with torch.autocast(batch.inputs.device.type, torch.bfloat16, enabled=self.autocast):
            summaries: Tensor = self.layer(batch.inputs, lengths=batch.lengths.cpu()).state.candidate[:, -1]
        return summaries


class _Released(nn.Module):
    def __init__(self, module: nn.Module, left_padded: bool) -> None:
        super().__init__()
        self.module, self.left_padded = module, left_padded

    def forward(self, batch: Batch) -> Tensor:
        summaries: Tensor = self.module(batch.inputs, batch.mask, output_last=self.left_padded)
        return summaries


class _Lstm(nn.Module):
    """Runs over the padding, which is faster than packing batches of like lengths."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.lstm = nn.LSTM(sizes.input_size, sizes.slot_size)

    def forward(self, batch: Batch) -> Tensor:
        output, _ = self.lstm(batch.inputs)
        last = (batch.lengths - 1).to(output.device)
        summaries: Tensor = output[last, torch.arange(len(last), device=output.device)]
        return summaries


def _first_token(batch: Batch) -> Batch:
    return batch._replace(
        inputs=batch.inputs[:1], mask=batch.mask[:1], lengths=torch.ones_like(batch.lengths)
    )


def _load(checkpoint: Path) -> tuple[Tensor, dict[str, Tensor], ListOpsConfig]:
    """Embeddings, weights of the layer, and the configuration of a trained model."""
    model, config = load_model(checkpoint)
    if not isinstance(model.encoder, OrderedMemory):
        raise UserError(f"--checkpoint {checkpoint}: is an LSTM, without slots to compare")
    return model.embedding.weight.detach(), model.encoder.state_dict(), config
