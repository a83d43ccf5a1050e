"""The authors' module as a contender, from a checkout that the user names.

Its file has the same name as this library's package, so it is executed under a private name; nothing is
written to the checkout. It runs on current PyTorch without changes. The module takes a boolean mask (True at
tokens). Sequences are padded on the same side as in the authors' tasks: for ListOps on the left, with the
output of the last step; for the others on the right, with the output at the last token of each sequence. With
left padding, its results depend on the amount of padding, so it is compared with ours on sequences of the
same length.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from ordered_memory import OrderedMemory
from tasks.benchmark.workloads import Batch, Sizes
from tasks.runs.errors import UserError

FILE, REPOSITORY = "ordered_memory.py", "yikangshen/Ordered-Memory"
TOLERANCE = 1e-9
"""Maximum allowed difference between outputs in float64."""


def execute(directory: Path, file: str, repository: str) -> ModuleType:
    """Execute one file of a checkout under a private name.

    Args:
        directory: the checkout, from which the file may import other files; nothing is written to it.
        file: name of the file.
        repository: the expected repository, for error messages.
    Returns:
        The module. Neither this module nor those that it imports from the checkout are left in `sys.modules`.
    Raises:
        UserError: the checkout does not contain the file, or the file cannot be executed.
    """
    path = directory / file
    if not path.is_file():
        raise UserError(
            f"--released-code {directory}: contains no {file}; expected a checkout of {repository}"
        )
    module = ModuleType(f"_released_{path.stem}")
    modules_before = set(sys.modules)
    sys.path.insert(0, str(directory.resolve()))
    writes_no_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        with _reporting_errors(path):
            exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    finally:
        sys.path.pop(0)
        sys.dont_write_bytecode = writes_no_bytecode
        for name in set(sys.modules) - modules_before:
            origin = getattr(sys.modules[name], "__file__", None)
            if origin and Path(origin).is_relative_to(directory.resolve()):
                del sys.modules[name]
    return module


def build_module(
    directory: Path,
    file: str,
    repository: str,
    build: Callable[[ModuleType], nn.Module],
    weights: dict[str, Tensor] | None,
) -> nn.Module:
    """Build a network of the authors' code.

    Args:
        directory, file, repository: see `execute`.
        build: builds the network from the executed file.
        weights: the state dict to load; None to keep its initial weights.
    Returns:
        The network, on the CPU.
    Raises:
        UserError: the file is missing, or it is not the expected one.
    """
    module = execute(directory, file, repository)
    with _reporting_errors(directory / file):
        network = build(module)
        if weights is not None:
            network.load_state_dict(weights)
        return network


@contextmanager
def _reporting_errors(path: Path) -> Iterator[None]:
    """Report any error of the authors' file in one line."""
    try:
        yield
    except Exception as error:
        raise UserError(f"{path}: not the expected module: {type(error).__name__}: {error}") from None


def check_difference(
    released: nn.Module,
    layer: nn.Module,
    run_theirs: Callable[[nn.Module], Tensor],
    run_ours: Callable[[nn.Module], Tensor],
) -> float:
    """Compute the largest difference between the outputs of both modules, without dropout in float64.

    Args:
        released: the authors' module with the weights of `layer`.
        layer: ours.
        run_theirs, run_ours: compute the output of a copy of the module.
    Returns:
        The largest absolute difference.
    Raises:
        UserError: it is above `TOLERANCE`.
    """
    theirs, ours = (copy.deepcopy(module).double().eval() for module in (released, layer))
    ours.backend = "reference"  # type: ignore[assignment]
    with torch.no_grad():
        difference = float((run_theirs(theirs) - run_ours(ours)).abs().max())
    if not difference <= TOLERANCE:
        raise UserError(
            f"--released-code: with the same weights, its outputs differ from ours by {difference:.2g}, more "
            f"than {TOLERANCE:g}: not the expected code"
        )
    return difference


def build_released(directory: Path, sizes: Sizes, layer: OrderedMemory) -> nn.Module:
    """Build the authors' module, with the weights of our layer if they fit; see `comparable`.

    Args:
        directory: the checkout.
        sizes: sizes of the module.
        layer: our layer.
    Returns:
        Their module, on the device of the layer.
    Raises:
        UserError: it is not the expected module.
    """
    released = build_module(
        directory,
        FILE,
        REPOSITORY,
        lambda module: module.OrderedMemory(
            sizes.input_size,
            sizes.slot_size,
            sizes.num_slots,
            dropout=sizes.cell_dropout,
            dropoutm=sizes.attention_dropout,
        ),
        released_weights(layer) if comparable(sizes) else None,
    )
    return released.to(next(layer.parameters()).device)


def comparable(sizes: Sizes) -> bool:
    """Whether the authors' module can compute the same function: it has only one score and one cell.

    Args:
        sizes: sizes of our layer.
    """
    return sizes.score == "normalized" and sizes.cell == "gated"


def released_weights(layer: OrderedMemory) -> dict[str, Tensor]:
    """Convert the parameters of our layer to the authors' names and layout.

    Their cell has one matrix for [M̂_{i-1}; M_i], ours has one for each half. The order of their gates is
    M̂_{i-1}, M_i, u; that of ours is M_i, M̂_{i-1}, u.

    Args:
        layer: unidirectional, with the normalized score and the gated cell.
    Returns:
        A state dict of their module.
    """
    ours = {name.removeprefix("directions.0."): tensor for name, tensor in layer.state_dict().items()}
    theirs = {
        "cell.input_t.1.weight": torch.cat(
            [ours["cell.from_candidate.weight"], ours["cell.from_memory.weight"]], dim=1
        ),
        "cell.input_t.1.bias": ours["cell.from_candidate.bias"],
    }
    for kind in ("weight", "bias"):
        gate_of_memory, gate_of_candidate, gate_of_update, update = ours[f"cell.output.{kind}"].chunk(4)
        theirs[f"cell.input_t.4.{kind}"] = torch.cat(
            [gate_of_candidate, gate_of_memory, gate_of_update, update]
        )
        for name, our_name in _OUR_NAMES.items():
            theirs[f"{name}.{kind}"] = ours[f"{our_name}.{kind}"]
    return {f"OM_forward.{name}": tensor for name, tensor in theirs.items()}


_OUR_NAMES = {
    "activation": "norm",
    "cell.activation": "norm",
    "input_projection.0": "projection",
    "input_projection.1": "norm",
    "distribution.query.1": "score.query",
    "distribution.query.2": "score.query_norm",
    "distribution.key.1": "score.key",
    "distribution.key.2": "score.key_norm",
    "distribution.beta.2": "score.output",
}


def largest_difference(released: nn.Module, layer: OrderedMemory, batch: Batch) -> float:
    """Compute the largest difference between the outputs of both modules, without padding.

    Args:
        released, layer: see `check_difference`.
        batch: the longer half of its sequences is used, truncated to the same length.
    """
    length = int(batch.lengths.median())
    chosen = (batch.lengths >= length).to(batch.inputs.device)
    inputs = batch.inputs[:length, chosen].double()
    mask = torch.ones(inputs.shape[:2], dtype=torch.bool, device=inputs.device)
    return check_difference(
        released, layer, lambda theirs: theirs(inputs, mask), lambda ours: ours(inputs).summary
    )
