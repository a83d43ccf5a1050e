"""Registers a backend's loop over time and its backward pass as PyTorch operators, for both models.

An `Implementation` computes both on plain tensors. `define` registers them as `torch.ops.MODEL.NAME` and
`torch.ops.MODEL.NAME_backward`, with fake kernels for tracing and with autograd. The types of inputs and
results are named tuples of tensors and numbers, which may be nested.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, get_type_hints

import torch
from torch import Tensor

from ordered_memory.checks import check_device
from ordered_memory.modes import is_jit_tracing, is_transformed, without_autocast

Shapes = list[tuple[tuple[Any, ...], torch.dtype]]

LIBRARIES: dict[str, torch.library.Library] = {}
"""The libraries that own the operators, by the name of the operator.

`torch.library.custom_op` would create them, but it imports `torch._dynamo` at the first call of an operator,
which takes seconds.
"""

_TAGS = [getattr(torch.Tag, name) for name in ("pt2_compliant_tag", "cudagraph_unsafe")]
"""Lengths and seeds are read on the CPU, so the compiler must not record a call in a CUDA graph."""

_DECLARED = {Tensor: "Tensor", Tensor | None: "Tensor?", int: "SymInt", float: "float", bool: "bool"}


class Implementation(ABC):
    """A loop over time and its backward pass. All results are new tensors, not views of the inputs."""

    inputs_type: ClassVar[type]
    """Named tuple of the inputs."""
    results_type: ClassVar[type]
    """Named tuple of the results, all of them tensors."""
    results_for_backward: ClassVar[tuple[str, ...]]
    """Names of the results that the backward pass needs."""
    differentiable: ClassVar[tuple[str, ...]]
    """Names of the inputs that have gradients. They must all be on one device."""
    schema_names: ClassVar[Mapping[str, str]] = {}
    """For each input that has a different name in the operator's schema: that name, by the name used here."""

    @abstractmethod
    def new_results(self, inputs: Any) -> tuple[Any, ...]:
        """Allocate tensors for the results.

        Args:
            inputs: inputs of the loop.
        """

    @abstractmethod
    def saved_shapes(self, inputs: Any) -> Shapes:
        """Shapes and dtypes of the tensors saved for the backward pass, in addition to inputs and results.

        Args:
            inputs: inputs of the loop.
        """

    @abstractmethod
    def check(self, inputs: Any) -> None:
        """Check the shapes and values that are not checked by tracing or by the dispatcher.

        Args:
            inputs: inputs of the loop.
        Raises:
            ValueError: the inputs do not match each other.
        """

    @abstractmethod
    def forward(self, inputs: Any, save: bool) -> tuple[tuple[Any, ...], list[Tensor]]:
        """Run the forward pass.

        Args:
            inputs: inputs of the loop.
            save: whether to save tensors for a backward pass.
        Returns:
            The results, and the saved tensors that `saved_shapes` describes; no saved tensors without `save`.
        """

    @abstractmethod
    def backward(
        self,
        inputs: Any,
        results: Sequence[Tensor],
        saved: list[Tensor],
        upstream: Sequence[Tensor | None],
        needs_input_grad: list[bool],
    ) -> Iterable[Tensor | None]:
        """Run the backward pass.

        Args:
            inputs: inputs of the loop.
            results: the results named in `results_for_backward`, contiguous.
            saved: the tensors that `forward` saved, contiguous.
            upstream: gradients with respect to the results; None is zero.
            needs_input_grad: for each name in `differentiable`, whether its gradient is needed.
        Returns:
            The gradients of the inputs named in `differentiable`; those that are not needed may be None.
        """


def needs_backward(tensors: Iterable[Tensor | None]) -> bool:
    """Whether a backward pass may follow a call.

    `torch.jit.trace` calls a module first with gradients and then, to compare the graphs, without them. So
    its graphs always allow for a backward pass.

    Args:
        tensors: the inputs of the call.
    """
    enabled = torch.is_grad_enabled() or is_jit_tracing()
    return enabled and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def why_not_transformed(*tensors: Tensor | None) -> str | None:
    """Why a backend cannot run: there is a transform of `torch.func`, or a forward-mode derivative.

    Args:
        *tensors: the inputs of the call.
    Returns:
        The reason, as a clause for the error message; None if there is neither.
    """
    if is_transformed(*tensors):
        return "it has no forward-mode derivative and no batching rule: use backend='reference'"
    return None


def why_not_wrapped(*weights: Tensor | None) -> str | None:
    """Why a backend cannot run: a weight is a wrapper around other tensors, such as a quantized weight.

    Such a weight (of torchao, or a DTensor) knows how to take part in operations of PyTorch, but not in the
    operators that are defined here.

    Args:
        *weights: the weights of the call.
    Returns:
        The reason, as a clause for the error message; None if there is no such weight.
    """
    for weight in weights:
        if hasattr(weight, "__tensor_flatten__"):  # as PyTorch recognizes wrappers
            return f"it needs weights that are plain tensors, got {type(weight).__name__}"
    return None


def define(name: str, implementation: Implementation, device_type: str | None = None) -> Any:
    """Register an implementation as an operator.

    Args:
        name: "MODEL::NAME", where NAME is the name of the backend in error messages.
        implementation: the forward and the backward pass.
        device_type: type of the devices that it runs on, such as "cpu"; None for all.
    Returns:
        The operator. Its arguments are the flattened inputs and `keep`, whether a backward pass may follow.
        It returns the flattened results and the list of saved tensors.
    """
    forward_schema, backward_schema = _schemas(implementation)
    input_names = list(_fields(implementation.inputs_type))
    result_names = list(_fields(implementation.results_type))
    differentiable_indices = [input_names.index(field) for field in implementation.differentiable]
    result_indices = [result_names.index(field) for field in implementation.results_for_backward]

    def forward(*arguments: Any) -> tuple[Any, ...]:
        inputs, save = _build(implementation.inputs_type, iter(arguments)), arguments[-1]
        implementation.check(inputs)
        results, saved = implementation.forward(inputs, save)
        return *flatten(results), saved

    def fake_forward(*arguments: Any) -> tuple[Any, ...]:
        inputs, save, like = _build(implementation.inputs_type, iter(arguments)), arguments[-1], arguments[0]
        for field, index in zip(implementation.differentiable, differentiable_indices, strict=True):
            if arguments[index] is not None:
                check_device(implementation.schema_names.get(field, field), arguments[index], like)
        shapes = implementation.saved_shapes(inputs) if save else []
        saved = [like.new_empty(shape, dtype=dtype) for shape, dtype in shapes]
        return *flatten(implementation.new_results(inputs)), saved

    def backward(*arguments: Any) -> list[Tensor]:
        values = iter(arguments)
        upstream = [next(values) for _ in result_names]
        # A hook of saved tensors may have returned them with other strides.
        results = [next(values).contiguous() for _ in result_indices]
        saved = [tensor.contiguous() for tensor in next(values)]
        inputs, needs_input_grad = _build(implementation.inputs_type, values), next(values)
        implementation.check(inputs)
        device = next(value.device for value in arguments if isinstance(value, Tensor))
        with without_autocast(device):  # autocast is on if the caller runs `backward()` under it
            gradients = implementation.backward(inputs, results, saved, upstream, needs_input_grad)
        pairs = zip(gradients, needs_input_grad, strict=True)
        return [gradient for gradient, needed in pairs if needed and gradient is not None]

    def fake_backward(*arguments: Any) -> list[Tensor]:
        inputs, needs_input_grad = arguments[-1 - len(input_names) : -1], arguments[-1]
        likes = [
            inputs[index]
            for index, needed in zip(differentiable_indices, needs_input_grad, strict=True)
            if needed
        ]
        return [like.new_empty(like.shape) for like in likes]

    if name in LIBRARIES:  # the module is reloaded: unregister the operators of the earlier import
        LIBRARIES.pop(name)._destroy()  # as PyTorch 2.8 needs it: releasing it leaves them in torch.ops
    model, _, backend = name.partition("::")
    library = LIBRARIES[name] = torch.library.Library(model, "FRAGMENT")
    key = "CompositeExplicitAutograd" if device_type is None else device_type.upper()
    for operator, schema, run, fake in (
        (backend, forward_schema, forward, fake_forward),
        (f"{backend}_backward", backward_schema, backward, fake_backward),
    ):
        library.define(operator + schema, tags=_TAGS)
        library.impl(operator, run, key)
        torch.library.register_fake(f"{model}::{operator}", fake, lib=library)
    operators = getattr(torch.ops, model)
    _register_autograd(
        name, getattr(operators, f"{backend}_backward").default, differentiable_indices, result_indices
    )
    return getattr(operators, backend).default


def _schemas(implementation: Implementation) -> tuple[str, str]:
    """The schemas of the operator and of its backward operator.

    In the schema `save` is called `keep`, `saved` is called `kept`, and `needs_input_grad` is
    called `wanted`; an input may have another name, too (`schema_names`). Never rename schema arguments:
    saved exported programs refer to them by name.
    """
    results = _fields(implementation.results_type)
    schema_names = implementation.schema_names
    inputs = ", ".join(
        f"{_DECLARED[hint]} {schema_names.get(field, field)}"
        for field, hint in _fields(implementation.inputs_type).items()
    )
    upstream = ", ".join(f"Tensor? d_{field}" for field in results)
    for_backward = ", ".join(f"Tensor result_{field}" for field in implementation.results_for_backward)
    return (
        f"({inputs}, bool keep) -> ({'Tensor, ' * len(results)}Tensor[])",
        f"({upstream}, {for_backward}, Tensor[] kept, {inputs}, bool[] wanted) -> Tensor[]",
    )


def _register_autograd(
    name: str, backward: Any, differentiable_indices: list[int], result_indices: list[int]
) -> None:
    """Register `backward` as the derivative of an operator.

    Args:
        name: name of the operator, "MODEL::NAME".
        backward: the operator of the backward pass.
        differentiable_indices: indices of the inputs that have gradients.
        result_indices: indices of the results that `backward` needs.
    """
    backend = name.partition("::")[2]

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.set_materialize_grads(False)
        arguments, saved = inputs[:-1], output[-1]
        ctx.has_saved = inputs[-1]
        tensors = [value if isinstance(value, Tensor) else None for value in arguments]
        ctx.numbers = [None if isinstance(value, Tensor) else value for value in arguments]
        ctx.save_for_backward(*(output[index] for index in result_indices), *tensors, *saved)

    def differentiate(ctx: Any, *upstream: Any) -> tuple[Tensor | None, ...]:
        if not ctx.has_saved:
            raise RuntimeError(
                f"backend {backend!r} saved nothing for a backward pass, as the graph was captured without "
                "gradients: capture it with gradients enabled, and inputs or parameters that require them"
            )
        saved = iter(ctx.saved_tensors)
        results = [next(saved) for _ in result_indices]
        arguments = [number if (tensor := next(saved)) is None else tensor for number in ctx.numbers]
        needs_input_grad = [ctx.needs_input_grad[index] for index in differentiable_indices]
        computed_gradients = iter(
            backward(*upstream[:-1], *results, list(saved), *arguments, needs_input_grad)
        )
        gradients: list[Tensor | None] = [None] * (len(arguments) + 1)
        for index, needed in zip(differentiable_indices, needs_input_grad, strict=True):
            gradients[index] = next(computed_gradients) if needed else None
        return tuple(gradients)

    def raise_for_second_derivative(ctx: Any, *upstream: Any) -> None:
        raise RuntimeError(f"backend {backend!r} cannot be differentiated twice: use backend='reference'")

    def forbid_batches(*arguments: Any) -> None:
        raise RuntimeError(f"backend {backend!r} does not support batched gradients: use backend='reference'")

    library = LIBRARIES[name]
    for key in ("Batched", "FuncTorchBatched"):  # torch.autograd.grad(is_grads_batched=True), torch.func.vmap
        library.impl(f"{backend}_backward", forbid_batches, key)
    torch.library.register_autograd(name, differentiate, setup_context=setup_context, lib=library)
    torch.library.register_autograd(f"{name}_backward", raise_for_second_derivative, lib=library)


def flatten(values: Sequence[Any]) -> list[Any]:
    """Flatten nested named tuples to a list of tensors and numbers.

    Args:
        values: the named tuple.
    """
    return [entry for value in values for entry in (flatten(value) if isinstance(value, tuple) else (value,))]


def _fields(named_tuple: type) -> dict[str, Any]:
    """Names and types of the entries of a flattened named tuple."""
    fields: dict[str, Any] = {}
    for name, hint in _hints(named_tuple).items():
        fields |= _fields(hint) if hasattr(hint, "_fields") else {name: hint}
    return fields


def _build(named_tuple: type, values: Iterator[Any]) -> Any:
    """Build a named tuple from its flattened values: the inverse of `flatten`."""
    hints = _hints(named_tuple).values()
    return named_tuple(
        *(_build(hint, values) if hasattr(hint, "_fields") else next(values) for hint in hints)
    )


_hints = cache(get_type_hints)
