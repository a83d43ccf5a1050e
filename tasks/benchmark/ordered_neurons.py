"""The subcommand `onlstm`: time ON-LSTM's backends, nn.LSTM, the authors' code and the matrix products."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from onlstm import ONLSTM
from onlstm.backends import BACKENDS
from ordered_memory.backends.native import multiplies_bfloat16
from ordered_memory.backends.registry import BackendError
from tasks.benchmark.config import BackendsConfig
from tasks.benchmark.contender import FLOOR, FLOOR_BF16, LSTM, RELEASED, Contender
from tasks.benchmark.contenders import batch_contender, check_not_interpreted
from tasks.benchmark.figures import contender_figures, reference_ratios, tables
from tasks.benchmark.measure import describe, interleave, machine_line
from tasks.benchmark.released import build_module, check_difference
from tasks.benchmark.workloads import Batch
from tasks.runs.command_line import Subcommand
from tasks.runs.command_options import print_after
from tasks.runs.errors import UserError
from tasks.runs.options import argument_error

FILE = "ON_LSTM.py"


@dataclass
class OnlstmConfig(BackendsConfig):
    """Time a training step and a forward pass of ON-LSTM and of nn.LSTM with the same sizes."""

    sizes: tuple[str, ...] = ("70x20x400x1150", "35x256x128x400", "35x32x200x650")
    """Sizes: tokens x batch size x input size x hidden size."""
    chunk_size: int = 10
    """Chunk size of ON-LSTM: hidden units per master-gate entry."""
    released_code: Path | None = None
    """A checkout of the authors' Ordered-Neurons repository, whose module is timed on the same batches."""

    quick_options: ClassVar = {**BackendsConfig.quick_options, "sizes": ("5x2x6x20",)}

    def check(self) -> None:
        super().check()
        if not self.sizes:
            raise UserError("--sizes must name at least one size")
        for text in self.sizes:
            _parse(text)


class _Size(NamedTuple):
    """T tokens, batch size B, input size F, hidden size H."""

    T: int
    B: int
    F: int
    H: int


def _run(config: OnlstmConfig) -> None:
    """Print the tables of each size; with `--json`, write the results."""
    config.set_up()
    sizes = [_parse(text) for text in config.sizes]
    for size in sizes:  # report a bad size before anything is measured
        _build_layer(size, config, "meta")
    results = []
    for size in sizes:
        results.append(_compare(size, config))
        with print_after(_text(results[-1]) + "\n"):
            config.write(results)


def _parse(text: str) -> _Size:
    number = r"[1-9]\d{0,17}"  # fits into 64 bits
    if not re.fullmatch(rf"{number}(x{number}){{3}}", text):
        raise UserError(f"--sizes must be like 70x20x400x1150, got {text!r}")
    return _Size(*map(int, text.split("x")))


def _build_layer(size: _Size, config: OnlstmConfig, device: str) -> ONLSTM:
    try:
        return ONLSTM(size.F, size.H, chunk_size=config.chunk_size, device=device)
    except ValueError as error:
        raise argument_error(error, config) from None


def _compare(size: _Size, config: OnlstmConfig) -> dict[str, Any]:
    torch.manual_seed(config.seed)
    x = torch.randn(size.T, size.B, size.F, device=config.device)
    upstream = torch.randn(size.T, size.B, size.H, device=config.device)
    lengths = torch.full((size.B,), size.T)
    batches = [Batch(x, lengths, torch.ones(size.T, size.B, dtype=torch.bool, device=x.device), upstream)]
    layer = _build_layer(size, config, config.device)
    modules: dict[str, nn.Module] = {}
    skipped: dict[str, str] = {}
    for name in BACKENDS:
        if config.backends and name not in config.backends:
            continue
        backend_layer = copy.deepcopy(layer)
        backend_layer.backend = name
        try:
            check_not_interpreted(name, config.device)
            backend_layer(x[:1])
        except BackendError as error:
            skipped[name] = str(error)
        else:
            modules[name] = backend_layer
    ours = next(iter(modules), None)
    modules[LSTM] = nn.LSTM(size.F, size.H, device=config.device)
    contenders: dict[str, Contender] = {}
    bfloat16 = torch.device(config.device).type == "cpu" and multiplies_bfloat16()
    for name, module in modules.items():
        contenders[name] = _contender(module, batches)
        if bfloat16 and name in ("native", LSTM):  # the other backends ignore autocast
            contenders[f"{name}, bfloat16"] = _contender(copy.deepcopy(module), batches, bfloat16=True)
    difference = None
    if config.released_code is not None:
        released = build_released(config.released_code, layer)
        difference = largest_difference(released, layer, x)
        contenders[RELEASED] = batch_contender(
            released, batches, lambda batch: _run_released(released, batch.inputs)
        )
    contenders[FLOOR] = _Products(layer, x)
    if bfloat16:
        contenders[FLOOR_BF16] = _Products(layer, x, torch.bfloat16)
    times = interleave(contenders, 1, repeats=config.repeats, device=config.device)
    figures = contender_figures(times, "tokens", size.T * size.B)
    return {
        **size._asdict(),
        "chunk_size": config.chunk_size,
        **describe(config),
        "released_difference": difference,
        "skipped": skipped,
        **reference_ratios(figures, ours),
        "contenders": figures,
    }


def _text(result: dict[str, Any]) -> str:
    lines = [
        f"T={result['T']} B={result['B']} {result['F']}→{result['H']}, chunks of {result['chunk_size']}",
        machine_line(result),
        tables(result["contenders"], "tokens"),
    ]
    lines += [f"not run: {name}: {reason}" for name, reason in result["skipped"].items()]
    return "\n".join(lines)


def _contender(lstm: nn.Module, batches: list[Batch], *, bfloat16: bool = False) -> Contender:
    """An ON-LSTM or nn.LSTM, whose output is (T, B, H); with `bfloat16` under autocast."""

    def forward(batch: Batch) -> Tensor:
        with torch.autocast(batch.inputs.device.type, torch.bfloat16, enabled=bfloat16):
            output: Tensor = lstm(batch.inputs)[0]
        return output

    return batch_contender(lstm, batches, forward)


class _Products:
    """The floor: only the matrix products of an ON-LSTM.

    There is one for the input and one per step. Training adds one per step, one for the gradient of the input
    and two for those of the weights.

    Args:
        layer: gives the weights.
        x: its input, (T, B, F).
        dtype: dtype of the operands.
    """

    def __init__(self, layer: ONLSTM, x: Tensor, dtype: torch.dtype = torch.float32) -> None:
        self.weight_i: Tensor = layer.weight_ih_l0.detach().to(dtype)
        self.weight: Tensor = layer.weight_hh_l0.detach().to(dtype)  # type: ignore[operator]
        self.steps, self.tokens = len(x), x.flatten(0, 1).to(dtype)
        self.gates = torch.randn(len(self.tokens), len(self.weight), device=x.device).to(dtype)
        self.hidden = torch.randn(len(self.tokens), layer.hidden_size, device=x.device).to(dtype)

    def training_step(self, index: int) -> Callable[[], None]:
        return self._train

    def evaluation(self, index: int) -> Callable[[], None]:
        return self._forward

    @torch.no_grad()
    def _forward(self) -> None:
        torch.mm(self.tokens, self.weight_i.t())
        for hidden in self.hidden.chunk(self.steps):
            torch.mm(hidden, self.weight.t())

    @torch.no_grad()
    def _train(self) -> None:
        self._forward()
        for gates in self.gates.chunk(self.steps):
            torch.mm(gates, self.weight)
        torch.mm(self.gates, self.weight_i)
        torch.mm(self.gates.t(), self.tokens)
        torch.mm(self.gates.t(), self.hidden)


def build_released(directory: Path, layer: ONLSTM) -> nn.Module:
    """Build the authors' module with the weights of our layer.

    Args:
        directory: a checkout of yikangshen/Ordered-Neurons; nothing is written to it.
        layer: layer with one layer and direction.
    Returns:
        Their module, on the device of the layer.
    Raises:
        UserError: the checkout does not contain the file, or its module is not the expected one.
    """
    released = build_module(
        directory,
        FILE,
        "yikangshen/Ordered-Neurons",
        lambda module: module.ONLSTMStack([layer.input_size, layer.hidden_size], layer.chunk_size),
        released_weights(layer),
    )
    return released.to(layer.weight_ih_l0.device)


def released_weights(layer: ONLSTM) -> dict[str, Tensor]:
    """Convert the parameters of our layer to the authors' names and order of gates: ĩ, f̃, o, ĉ, i, f.

    Args:
        layer: layer with one layer and direction.
    """
    size, masters = layer.hidden_size, layer.hidden_size // layer.chunk_size
    state = layer.state_dict()
    theirs = {}
    for name, ours in (("ih.0", "ih"), ("hh", "hh")):
        for kind in ("weight", "bias"):
            i, f, update, o, f_master, i_master = state[f"{kind}_{ours}_l0"].split([size] * 4 + [masters] * 2)
            theirs[f"cells.0.{name}.{kind}"] = torch.cat([i_master, f_master, o, update, i, f])
    return theirs


def largest_difference(released: nn.Module, layer: ONLSTM, x: Tensor) -> float:
    """Compute the largest difference between the outputs of both modules, on a small batch.

    Args:
        released, layer: see `check_difference`.
        x: (T, B, F).
    """
    small = x[:5, :2].double()
    return check_difference(
        released, layer, lambda theirs: _run_released(theirs, small), lambda ours: ours(small)[0]
    )


def _run_released(module: Any, x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their code is from 2019
        output: Tensor = module(x, module.init_hidden(x.shape[1]))[0]
    return output


ONLSTM_LAYERS = Subcommand(OnlstmConfig, _run)
