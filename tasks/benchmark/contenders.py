"""The contenders for Ordered Memory: all backends of the layer, the authors' module, nn.LSTM, and the floor.

A training step is the forward pass, a scalar loss on the summaries, and the backward pass to all parameters
and to the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ordered_memory import OrderedMemory
from ordered_memory.backends import BACKENDS
from ordered_memory.backends.native import multiplies_bfloat16
from ordered_memory.backends.registry import BackendError
from tasks.benchmark.contender import FLOOR, FLOOR_BF16, LSTM, RELEASED, Contender, ModuleContender
from tasks.benchmark.floor import Floor
from tasks.benchmark.released import build_released
from tasks.benchmark.workloads import Batch, PaddedTokens, Sizes, embed, pad_left
from tasks.listops.model import ListOpsModel
from tasks.runs.errors import UserError


class Entry(NamedTuple):
    """The description of a contender.

    Args:
        name: shown in tables.
        backend: backend of our layer; None for other contenders.
        recompute_every: argument of our layer.
        bfloat16: whether to run under autocast.
    """

    name: str
    backend: str | None = None
    recompute_every: int | None = None
    bfloat16: bool = False


@dataclass(frozen=True)
class Setup:
    """Everything that is needed to build the same contenders, also in another process."""

    sizes: Sizes
    seed: int
    device: str
    released_code: Path | None = None
    checkpoint: Path | None = None
    left_padded: bool = False


def entries_of(
    device: str, released_code: Path | None = None, recompute_every: int | None = None
) -> list[Entry]:
    """List all contenders: the backends, the authors' code, LSTM and the floors.

    Args:
        device: device to run on. Where it multiplies in bfloat16, its fastest backend also runs under
            autocast.
        released_code: checkout of the authors' repository; None to leave it out.
        recompute_every: if given, also list all backends with this argument of `OrderedMemory`.
    """
    on_cpu = torch.device(device).type == "cpu"
    entries = [Entry(name, name) for name in BACKENDS]
    floors = [Entry(FLOOR)]
    if not on_cpu or multiplies_bfloat16():
        fastest = "native" if on_cpu else "triton"
        bfloat16 = Entry(f"{fastest}, bfloat16", fastest, bfloat16=True)
        entries.insert(1 + list(BACKENDS).index(fastest), bfloat16)
        floors.append(Entry(FLOOR_BF16, bfloat16=True))
    if recompute_every is not None:
        entries += [Entry(f"{name}, checkpoints", name, recompute_every) for name in BACKENDS]
    if released_code is not None:
        entries.append(Entry(RELEASED))
    return [*entries, Entry(LSTM), *floors]


def balanced_recompute_every(steps: int) -> int:
    """Compute the number of steps between checkpoints that divides T steps into about √T segments.

    Args:
        steps: T.
    Example:
        >>> balanced_recompute_every(1000)
        33
    """
    return math.ceil(steps / math.isqrt(steps))


def trained_sizes(checkpoint: Path) -> Sizes:
    """Read the sizes of a trained ListOps model.

    Args:
        checkpoint: a run's best.safetensors.
    Raises:
        UserError: the file does not exist, is not a ListOps checkpoint, or is not a model with slots.
    """
    table, layer = _load_trained(checkpoint)
    options = {name: getattr(layer, name) for name in Sizes._fields if name != "vocabulary"}
    return Sizes(**options, vocabulary=len(table) - 1)


def build_batches(setup: Setup, batches: Sequence[PaddedTokens]) -> list[Batch]:
    """Embed batches with the checkpoint's embeddings, or with random ones if there is none.

    Args:
        setup: sizes, seed, device and checkpoint.
        batches: tokens.
    """
    if setup.checkpoint is None:
        generator = torch.Generator().manual_seed(setup.seed)
        table = torch.randn(setup.sizes.vocabulary + 1, setup.sizes.input_size, generator=generator)
        table[0] = 0  # padding
    else:
        table = _load_trained(setup.checkpoint)[0]
    return [embed(batch, table.to(setup.device), setup.sizes, setup.seed) for batch in batches]


def build_layer(setup: Setup, backend: str = "auto", recompute_every: int | None = None) -> OrderedMemory:
    """Build our layer; the same setup gives the same weights with all backends.

    Args:
        setup: sizes, seed, device and checkpoint.
        backend: backend of the layer.
        recompute_every: the layer's option of this name.
    """
    options = setup.sizes._asdict()
    del options["vocabulary"]
    torch.manual_seed(setup.seed)
    layer = OrderedMemory(**options, backend=backend, recompute_every=recompute_every)
    if setup.checkpoint is not None:
        layer.load_state_dict(_load_trained(setup.checkpoint)[1].state_dict())
    return layer.to(setup.device)


def build(setup: Setup, entry: Entry, batches: Sequence[Batch]) -> Contender:
    """Build a contender.

    Args:
        setup: what it is built from.
        entry: which contender.
        batches: its input.
    Returns:
        The contender.
    Raises:
        RuntimeError: the backend cannot run here; the message says why.
        UserError: the authors' code is not the expected one.
    """
    if entry.name in (FLOOR, FLOOR_BF16):
        return Floor(build_layer(setup), batches, torch.bfloat16 if entry.bfloat16 else None)
    if entry.name == LSTM:
        lstm = nn.LSTM(setup.sizes.input_size, setup.sizes.slot_size).to(setup.device)
        return batch_contender(lstm, batches, lambda batch: _lstm_summaries(lstm, batch))
    if entry.name == RELEASED:
        assert setup.released_code is not None
        left_padded = setup.left_padded
        module = build_released(setup.released_code, setup.sizes, build_layer(setup))
        arranged = [pad_left(batch) for batch in batches] if left_padded else batches
        return batch_contender(
            module, arranged, lambda batch: module(batch.inputs, batch.mask, output_last=left_padded)
        )
    assert entry.backend is not None
    check_not_interpreted(entry.backend, setup.device)
    layer = build_layer(setup, entry.backend, entry.recompute_every)

    def summaries(batch: Batch) -> Tensor:
        with torch.autocast(batch.inputs.device.type, torch.bfloat16, enabled=entry.bfloat16):
            result: Tensor = layer(batch.inputs, lengths=batch.lengths.cpu()).summary
        return result

    # A backend that cannot run raises an error in its first call, in training or evaluation mode.
    probe = batch_contender(layer, [_first_token(batches[0])], summaries)
    probe.training_step(0)()
    probe.evaluation(0)()
    return batch_contender(layer, batches, summaries)


def check_not_interpreted(backend: str, device: str) -> None:
    """Raise a BackendError for kernels that a CPU could only interpret, which takes very long.

    Args:
        backend: name of the backend.
        device: device to run on.
    """
    if backend == "triton" and torch.device(device).type == "cpu":
        raise BackendError("backend 'triton' cannot run here: it would only be interpreted")


def batch_contender(
    module: nn.Module, batches: Sequence[Batch], forward: Callable[[Batch], Tensor]
) -> ModuleContender[Batch]:
    """Make a contender whose loss is the sum of its output times the `weights` of the batch.

    Args:
        module: its parameters get gradients.
        batches: batches on the device of the module.
        forward: runs the module on a batch; its output has the shape of the batch's `weights`.
    """
    return ModuleContender(
        module,
        batches,
        loss=lambda batch: (forward(batch) * batch.weights).sum(),
        forward=forward,
        prepare=lambda batch: batch._replace(inputs=batch.inputs.detach().requires_grad_()),
    )


def _lstm_summaries(lstm: nn.LSTM, batch: Batch) -> Tensor:
    """The output at the last token; runs over the padding, which is faster than packing similar lengths."""
    output, _ = lstm(batch.inputs)
    last = (batch.lengths - 1).to(output.device)
    summaries: Tensor = output[last, torch.arange(len(last), device=output.device)]
    return summaries


def _first_token(batch: Batch) -> Batch:
    return batch._replace(
        inputs=batch.inputs[:1], mask=batch.mask[:1], lengths=torch.ones_like(batch.lengths)
    )


def _load_trained(checkpoint: Path) -> tuple[Tensor, OrderedMemory]:
    """Embeddings and layer of a trained model."""
    model = ListOpsModel.from_pretrained(checkpoint)
    if not isinstance(model.encoder, OrderedMemory):
        raise UserError(f"--checkpoint {checkpoint}: expected an Ordered Memory, got another encoder")
    if model.encoder.bidirectional:
        raise UserError(f"--checkpoint {checkpoint}: expected one direction, got a bidirectional model")
    model.set_num_slots(model.config.num_slots)
    return model.embedding.weight.detach(), model.encoder
