"""The authors' module, from a checkout that the user names, as another contender.

Its file has the name of this library's package, so it is executed from its source under a private name;
nothing is written to the checkout. Its one file needs no change for current PyTorch. Its training code
builds the boolean mask (tokens True) that the module takes, and so does this. Sequences are padded on the
side on which its own tasks pad them: ListOps on the left, with the output of the last step; the others
on the right, with the output at each sequence's last token. With padding on the left its results depend on
how much of it there is, so agreement is checked on sequences of one length.
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
from tasks.benchmark.batches import Batch
from tasks.benchmark.workloads import Sizes
from tasks.runs.errors import UserError

FILE, REPOSITORY = "ordered_memory.py", "yikangshen/Ordered-Memory"
TOLERANCE = 1e-9
"""The largest difference between outputs in float64 that counts as agreement."""


def execute(directory: Path, file: str, repository: str) -> ModuleType:
    """Execute one file of a checkout under a private name.

    Args:
        directory: of the checkout, which the file may import its neighbours from; nothing is written to it.
        file: its name there.
        repository: the expected repository, for the error.
    Returns:
        The module, which is not in `sys.modules`; nor are the neighbours that it imported.
    Raises:
        UserError: the checkout does not hold the file, or it cannot be executed.
    """
    path = directory / file
    if not path.is_file():
        raise UserError(f"--released-code {directory}: holds no {file}; expected a checkout of {repository}")
    module = ModuleType(f"_released_{path.stem}")
    before = set(sys.modules)
    sys.path.insert(0, str(directory.resolve()))
    try:
        with _refusing(path):
            exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    finally:
        sys.path.pop(0)
        for name in set(sys.modules) - before:
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
    """A network of the authors' code.

    Args:
        directory, file, repository: see `execute`.
        build: builds the network from the executed file.
        weights: its state dict; None for its own initial weights.
    Returns:
        The network, on the CPU.
    Raises:
        UserError: the file is missing, or it is not the expected one.
    """
    module = execute(directory, file, repository)
    with _refusing(directory / file):
        network = build(module)
        if weights is not None:
            network.load_state_dict(weights)
        return network


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Report any error of the authors' file in one line."""
    try:
        yield
    except Exception as error:
        raise UserError(
            f"{path}: not the module that is known here: {type(error).__name__}: {error}"
        ) from None


def check_difference(difference: float) -> None:
    """Check that the authors' code computes what ours does.

    Args:
        difference: largest difference of outputs with the same weights.
    Raises:
        UserError: the difference is above `TOLERANCE`.
    """
    if not difference <= TOLERANCE:
        raise UserError(
            f"--released-code: its outputs differ from ours by {difference:.2g} with the same weights, "
            f"more than {TOLERANCE:g}: this is not the code that the comparison is with"
        )


def build_released(directory: Path, sizes: Sizes, layer: OrderedMemory) -> nn.Module:
    """The authors' module at these sizes, with the weights of our layer where it can have them.

    Args:
        directory: of the checkout.
        sizes: of the module.
        layer: ours; see `comparable`.
    Returns:
        Their module, on the device of the layer.
    Raises:
        UserError: it is not the module that is known here.
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
    """Whether the authors' module computes the same function: it has one score and one cell.

    Args:
        sizes: of our layer.
    """
    return sizes.score == "normalized" and sizes.cell == "gated"


def released_weights(layer: OrderedMemory) -> dict[str, Tensor]:
    """The parameters of our layer under the authors' names and in their order.

    Their cell reads [M̂_{i-1}; M_i] through one matrix, ours has a matrix for each half; their gates are
    those of M̂_{i-1}, M_i, u, ours those of M_i, M̂_{i-1}, u.

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
        for name, our_name in _SAME.items():
            theirs[f"{name}.{kind}"] = ours[f"{our_name}.{kind}"]
    return {f"OM_forward.{name}": tensor for name, tensor in theirs.items()}


_SAME = {
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
    """The largest difference between the outputs of the two in float64, on sequences of one length.

    Args:
        released: with the weights of `layer`.
        layer: ours.
        batch: its longer half, cut to the length that all of these have.
    Returns:
        The largest difference of an entry of a summary.
    Raises:
        UserError: it is beyond the tolerance.
    """
    length = int(batch.lengths.median())
    chosen = (batch.lengths >= length).to(batch.inputs.device)
    inputs = batch.inputs[:length, chosen].double()
    theirs, ours = copy.deepcopy(released).double().eval(), copy.deepcopy(layer).double().eval()
    ours.backend = "reference"
    mask = torch.ones(inputs.shape[:2], dtype=torch.bool, device=inputs.device)
    with torch.no_grad():
        difference = float((theirs(inputs, mask) - ours(inputs).state.candidate[:, -1]).abs().max())
    check_difference(difference)
    return difference
