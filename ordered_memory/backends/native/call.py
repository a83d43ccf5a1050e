"""Calls `recurrence.c`: fills in its argument struct and allocates the tensors that the struct points to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ordered_memory.backends import contract
from ordered_memory.backends.contract import Arguments, Weights
from ordered_memory.backends.operators import Shapes
from ordered_memory.backends.runtime import buffers
from ordered_memory.backends.runtime.build import load, load_or_raise
from ordered_memory.backends.runtime.threads import run_team
from ordered_memory.recurrence import RecurrenceOutput
from ordered_memory.state import OrderedMemoryState

SOURCE = Path(__file__).with_name("recurrence.c")
SMALL = 1 << 18
"""Size in bytes up to which allocating zeros is as fast as taking a buffer from the pool."""
GIVEN_MASKS = ("cell_input_mask", "hidden_mask", "key_mask", "feature_mask")
"""The fields of `contract.Dropout` that are masks."""
TAPE = {"tape_cell_inputs": 2, "tape_hidden": 4, "tape_gates": 4}
"""The buffers of the tape by their names in arguments.h, with the size of their rows in multiples of D."""


def bf16_method_here() -> Literal["vnni", "blas"] | None:
    """How bfloat16 products are computed here: "blas" (MKL with AMX), "vnni" (the C code) or None (not)."""
    library = load(SOURCE, torch.float32)
    if isinstance(library, str):
        return None
    if library.bf16_gemm is not None:
        return "blas"
    return "vnni" if library.has_bf16_vnni else None


def bf16_method_of_call(arguments: Arguments) -> Literal["vnni", "blas"] | None:
    """How the bfloat16 products of a call are computed; None if the call has no such products.

    This checks the processor again, because a program may have been exported on a different machine.

    Args:
        arguments: arguments of the recurrence.
    """
    requested = arguments.bfloat16 and arguments.inputs.dtype == torch.float32
    return bf16_method_here() if requested and arguments.inputs.shape[-1] % 2 == 0 else None


class Inputs(NamedTuple):
    """The inputs of the operator.

    Args:
        arguments: arguments of the recurrence.
        shares: number of shares that the forward pass divides the sequences into, one for each thread.
    """

    arguments: Arguments
    shares: int


class NativeImplementation(contract.Implementation):
    """The loop over time in C.

    The saved tensors are the number of shares, (); the first active slot of every token, (T, B); and the
    tape: three buffers with the cell inputs (2D), hidden units (4D) and gates (4D) of every active pair of a
    token and a slot, those of one share after those of another. They are bfloat16 if products have bfloat16
    operands, else of the dtype of the parameters. Buffers are as large as if every slot were active, but
    pages that are never written take no memory. With activation checkpointing the forward pass runs again,
    maybe with a different number of threads: the shapes do not depend on it, and the backward pass takes the
    saved number of shares.
    """

    inputs_type = Inputs
    results_for_backward = ("output", "attention")

    def new_results(self, inputs: Inputs) -> RecurrenceOutput:
        x, state = inputs.arguments.inputs, inputs.arguments.state
        final = OrderedMemoryState(*(tensor.clone(memory_format=torch.contiguous_format) for tensor in state))
        attention = x.new_zeros(*x.shape[:2], state.memory.shape[1])
        return RecurrenceOutput(x.new_zeros(x.shape), final, attention)

    def saved_shapes(self, inputs: Inputs) -> Shapes:
        x, num_slots = inputs.arguments.inputs, inputs.arguments.state.memory.shape[1]
        itemsize = 2 if bf16_method_of_call(inputs.arguments) else x.dtype.itemsize
        tape = [((x.numel() * num_slots * width * itemsize,), torch.uint8) for width in TAPE.values()]
        return [((), torch.int64), (tuple(x.shape[:2]), torch.int32), *tape]

    def check(self, inputs: Inputs) -> None:
        contract.check_shapes(inputs.arguments)
        if inputs.shares < 1:
            raise ValueError(f"shares must be at least 1, got {inputs.shares}")

    def forward(self, inputs: Inputs, save: bool) -> tuple[RecurrenceOutput, list[Tensor]]:
        results = self.new_results(inputs)
        (_, counts), (active_shape, dtype), *tape_shapes = self.saved_shapes(inputs)
        first_active = torch.zeros(active_shape, dtype=dtype, device="cpu")
        tape = {
            name: _allocate_tape(size) for name, ((size,), _) in zip(TAPE, tape_shapes, strict=True) if save
        }
        output, final, attention = results
        fields = {"output": output, "attention": attention, "first_active": first_active, **final._asdict()}
        _run("forward", inputs, save, **fields, **tape)
        shares = torch.tensor(inputs.shares, dtype=counts, device="cpu")
        return results, [shares, first_active, *tape.values()] if save else []

    def backward(
        self,
        inputs: Inputs,
        results: Sequence[Tensor],
        saved: list[Tensor],
        upstream: Sequence[Tensor | None],
        needs_input_grad: list[bool],
    ) -> Iterable[Tensor | None]:
        arguments, (output, attention), (shares, first_active, *tape) = inputs.arguments, results, saved
        inputs = Inputs(arguments, int(shares))
        d_output, *d_final, d_attention = upstream
        sequences = {"inputs": arguments.inputs, "queries": arguments.queries, **_initial_state(arguments)}
        gradients = {
            f"d_{name}": torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")
            for name, tensor in sequences.items()
        }
        struct_fields = {
            f"d_{name}": final for name, final in zip(OrderedMemoryState._fields, d_final, strict=True)
        }
        for name, final in struct_fields.items():
            if final is not None:  # sequences without tokens keep this gradient; others overwrite it
                gradients[f"{name}0"].copy_(final)
        struct_fields |= {"d_output": d_output, "d_attention": d_attention}
        struct_fields |= {"output": output, "attention": attention, "first_active": first_active}
        struct_fields |= dict(zip(TAPE, tape, strict=True))
        share_gradients = {
            f"d_{name}": weight.new_zeros(inputs.shares, *weight.shape)
            for name, weight in _weights_by_name(arguments.weights).items()
        }
        _run("backward", inputs, True, **struct_fields, **gradients, **share_gradients)
        sums = {
            name: parts.sum(0) if inputs.shares > 1 else parts[0] for name, parts in share_gradients.items()
        }
        return *gradients.values(), *(sums.get(f"d_{name}") for name in Weights._fields)


def _allocate_tape(size: int) -> Tensor:
    """A buffer of which only the start will be written.

    The rest of a small buffer is zero, so that `torch.library.opcheck` finds two calls equal.
    """
    if size <= SMALL:
        return torch.zeros(size, dtype=torch.uint8, device="cpu")
    return buffers.empty(size)


def _run(function: str, operator_inputs: Inputs, save: bool, **extra_fields: Tensor | None) -> None:
    """Call a C function with the struct of `arguments.h`. `extra_fields` are further fields, by name."""
    arguments, shares = operator_inputs
    inputs, dropout = arguments.inputs, arguments.dropout
    library = load_or_raise(SOURCE, inputs.dtype)
    struct: Any = library.struct("Pass")()
    (struct.T, struct.B, struct.D), struct.N = inputs.shape, arguments.state.memory.shape[1]
    struct.threshold = arguments.threshold
    struct.norm_epsilon, struct.key_epsilon = arguments.norm_epsilon, arguments.key_epsilon
    struct.cell_drop_below, struct.score_drop_below = dropout.cell_drop_below, dropout.score_drop_below
    method = bf16_method_of_call(arguments)
    struct.bf16_vnni = method == "vnni"
    struct.bf16_gemm = library.bf16_gemm if method == "blas" else None
    lengths, order = _sort_by_length(arguments.lengths, struct.T, struct.B)
    struct.nonempty, struct.shares, struct.save = len(order), shares, save
    tensors: dict[str, Tensor | None] = {
        "order": order,
        "lengths": lengths,
        "inputs": inputs,
        "queries": arguments.queries,
        **_initial_state(arguments),
        **_weights_by_name(arguments.weights),
        **(_bfloat16_weights(arguments.weights) if method else {}),
        **{name: getattr(dropout, name) for name in (*GIVEN_MASKS, "seed")},
        **extra_fields,
    }
    struct.point(
        **{name: None if tensor is None else tensor.contiguous() for name, tensor in tensors.items()}
    )
    is_backward_pass = function == "backward"
    struct.point(workspace=buffers.empty(library.workspace_size(struct, is_backward_pass)))
    if method != "blas":
        run_team(library, "pack_for_backward" if is_backward_pass else "pack_for_forward", struct, shares)
    run_team(library, function, struct, shares)


def _initial_state(arguments: Arguments) -> dict[str, Tensor]:
    """The initial state by its names in arguments.h."""
    return {f"{name}0": tensor for name, tensor in arguments.state._asdict().items()}


def _sort_by_length(lengths: Tensor | None, steps: int, batch_size: int) -> tuple[Tensor, Tensor]:
    """The lengths and indices of the sequences that have a token, longest first."""
    if lengths is None:
        return torch.full((batch_size,), steps, device="cpu"), torch.arange(batch_size, device="cpu")
    ordered, order = lengths.clamp(0, steps).sort(descending=True, stable=True)
    count = int((ordered > 0).sum())
    return ordered[:count], order[:count]


def _weights_by_name(weights: Weights) -> dict[str, Tensor]:
    """The weights that the modules have, by name."""
    return {name: weight for name, weight in weights._asdict().items() if weight is not None}


def _bfloat16_weights(weights: Weights) -> dict[str, Tensor]:
    """The matrices and their transposes in bfloat16, by their names in arguments.h."""
    matrices = {f"bf16_{name}": getattr(weights, name) for name in ("key", "w_in", "w_out")}
    matrices |= {f"{name}_t": matrix.t() for name, matrix in matrices.items()}
    return {name: matrix.bfloat16().contiguous() for name, matrix in matrices.items()}
