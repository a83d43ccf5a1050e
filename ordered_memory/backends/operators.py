"""How an engine becomes an operator of PyTorch, for both models.

An engine writes its loop over time and the reverse pass on plain tensors. `define` makes them
`torch.ops.MODEL.NAME` and `…NAME_backward`, with what tracing and autograd need to know of them. The
inputs and results of an operator are declared once, as named tuples of tensors and numbers, which may nest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, ClassVar, get_type_hints

import torch
from torch import Tensor

from ordered_memory.checks import check_device

Shapes = list[tuple[tuple[Any, ...], torch.dtype]]

LIBRARIES: dict[str, torch.library.Library] = {}
"""What holds the operators of each engine. `torch.library.custom_op` would do this by itself, but imports
`torch._dynamo` at the first call of an operator, which takes seconds."""

_DECLARED = {Tensor: "Tensor", Tensor | None: "Tensor?", int: "SymInt", float: "float", bool: "bool"}


class Engine(ABC):
    """A loop over time and its reverse pass. All results are new tensors."""

    takes: ClassVar[type]
    """Named tuple of the inputs."""
    gives: ClassVar[type]
    """Named tuple of the results, all of them tensors."""
    reread: ClassVar[tuple[str, ...]]
    """Results that the reverse pass reads."""
    differentiable: ClassVar[tuple[str, ...]]
    """Inputs that have gradients; all on one device."""

    @abstractmethod
    def results(self, inputs: Any) -> tuple[Any, ...]:
        """New tensors for the results.

        Args:
            inputs: of the loop.
        """

    @abstractmethod
    def kept(self, inputs: Any) -> Shapes:
        """Shapes and dtypes of the tensors that the reverse pass needs in addition to inputs and results.

        Args:
            inputs: of the loop.
        """

    @abstractmethod
    def check(self, inputs: Any) -> None:
        """Check shapes and values that neither tracing nor the dispatcher checks.

        Args:
            inputs: of the loop.
        Raises:
            ValueError: the inputs do not fit together.
        """

    @abstractmethod
    def forward(self, inputs: Any, keep: bool) -> tuple[tuple[Any, ...], list[Tensor]]:
        """Run the loop.

        Args:
            inputs: of the loop.
            keep: whether a reverse pass may follow.
        Returns:
            The results, and what `kept` describes; an empty list without `keep`.
        """

    @abstractmethod
    def backward(
        self,
        inputs: Any,
        reread: Sequence[Tensor],
        kept: list[Tensor],
        upstream: Sequence[Tensor | None],
        wanted: list[bool],
    ) -> list[Tensor]:
        """Run the reverse pass.

        Args:
            inputs: of the loop.
            reread: the results that `reread` names.
            kept: what `forward` kept.
            upstream: gradients of the results; None is zero.
            wanted: for each of `differentiable`, whether to compute its gradient.
        Returns:
            The gradients that are wanted, in this order.
        """


def define(name: str, engine: Engine, device_type: str | None = None) -> Any:
    """Make an engine an operator.

    Args:
        name: "MODEL::NAME"; errors call the backend NAME.
        engine: computes the recurrence.
        device_type: the type of the devices that it runs on, as "cpu"; None for all.
    Returns:
        The operator. It takes the flattened inputs and whether a reverse pass may follow, and returns the
        flattened results and a list of what is kept for the reverse pass.
    """
    forward_schema, backward_schema = _schemas(engine)
    names, results = list(_fields(engine.takes)), list(_fields(engine.gives))
    differentiable = [names.index(field) for field in engine.differentiable]
    reread = [results.index(field) for field in engine.reread]

    def forward(*arguments: Any) -> tuple[Any, ...]:
        inputs, keep = _build(engine.takes, iter(arguments)), arguments[-1]
        engine.check(inputs)
        found, kept = engine.forward(inputs, keep)
        return *flatten(found), kept

    def fake_forward(*arguments: Any) -> tuple[Any, ...]:
        inputs, keep, like = _build(engine.takes, iter(arguments)), arguments[-1], arguments[0]
        for field, place in zip(engine.differentiable, differentiable, strict=True):
            if arguments[place] is not None:
                check_device(field, arguments[place], like)
        kept = engine.kept(inputs) if keep else []
        made = [like.new_empty(shape, dtype=dtype) for shape, dtype in kept]
        return *flatten(engine.results(inputs)), made

    def backward(*arguments: Any) -> list[Tensor]:
        given = iter(arguments)
        upstream = [next(given) for _ in results]
        again, kept = [next(given) for _ in reread], next(given)
        inputs, wanted = _build(engine.takes, given), next(given)
        engine.check(inputs)
        return engine.backward(inputs, again, kept, upstream, wanted)

    def fake_backward(*arguments: Any) -> list[Tensor]:
        inputs, wanted = arguments[-1 - len(names) : -1], arguments[-1]
        likes = [inputs[place] for place, one in zip(differentiable, wanted, strict=True) if one]
        return [like.new_empty(like.shape) for like in likes]

    LIBRARIES.pop(name, None)  # its operators end with it, where a module is loaded again
    model, _, backend = name.partition("::")
    library = LIBRARIES[name] = torch.library.Library(model, "FRAGMENT")
    key = "CompositeExplicitAutograd" if device_type is None else device_type.upper()
    for one, schema, run, fake in (
        (backend, forward_schema, forward, fake_forward),
        (f"{backend}_backward", backward_schema, backward, fake_backward),
    ):
        library.define(one + schema, tags=torch.Tag.pt2_compliant_tag)
        library.impl(one, run, key)
        torch.library.register_fake(f"{model}::{one}", fake, lib=library)
    operators = getattr(torch.ops, model)
    _register_autograd(name, getattr(operators, f"{backend}_backward").default, differentiable, reread)
    return getattr(operators, backend).default


def _schemas(engine: Engine) -> tuple[str, str]:
    """The schemas of the operator and of its reverse."""
    results = _fields(engine.gives)
    inputs = ", ".join(f"{_DECLARED[kind]} {field}" for field, kind in _fields(engine.takes).items())
    upstream = ", ".join(f"Tensor? d_{field}" for field in results)
    reread = ", ".join(f"Tensor result_{field}" for field in engine.reread)
    return (
        f"({inputs}, bool keep) -> ({'Tensor, ' * len(results)}Tensor[])",
        f"({upstream}, {reread}, Tensor[] kept, {inputs}, bool[] wanted) -> Tensor[]",
    )


def _register_autograd(name: str, backward: Any, differentiable: list[int], reread: list[int]) -> None:
    """Make `backward` the derivative of an operator.

    Args:
        name: of the operator, "MODEL::NAME".
        backward: the operator of the backward pass.
        differentiable: places of the inputs that have gradients.
        reread: places of the results that `backward` reads.
    """

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.set_materialize_grads(False)
        given, kept = inputs[:-1], output[-1]
        tensors = [value if isinstance(value, Tensor) else None for value in given]
        ctx.numbers = [None if isinstance(value, Tensor) else value for value in given]
        ctx.save_for_backward(*(output[place] for place in reread), *tensors, *kept)

    def differentiate(ctx: Any, *upstream: Any) -> tuple[Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        again = [next(saved) for _ in reread]
        given = [number if (tensor := next(saved)) is None else tensor for number in ctx.numbers]
        wanted = [ctx.needs_input_grad[place] for place in differentiable]
        found = iter(backward(*upstream[:-1], *again, list(saved), *given, wanted))
        gradients: list[Tensor | None] = [None] * (len(given) + 1)
        for place, one in zip(differentiable, wanted, strict=True):
            gradients[place] = next(found) if one else None
        return tuple(gradients)

    def refuse(ctx: Any, *upstream: Any) -> None:
        backend = name.partition("::")[2]
        raise RuntimeError(f"backend {backend!r} cannot be differentiated twice: use backend='reference'")

    library = LIBRARIES[name]
    torch.library.register_autograd(name, differentiate, setup_context=setup_context, lib=library)
    torch.library.register_autograd(f"{name}_backward", refuse, lib=library)


def flatten(values: Sequence[Any]) -> list[Any]:
    """The tensors and numbers of a named tuple and of those that it holds.

    Args:
        values: the named tuple.
    """
    return [one for value in values for one in (flatten(value) if isinstance(value, tuple) else (value,))]


def _fields(kind: type) -> dict[str, Any]:
    """Name and type of what `flatten` gives."""
    found: dict[str, Any] = {}
    for name, own in _hints(kind).items():
        found |= _fields(own) if hasattr(own, "_fields") else {name: own}
    return found


def _build(kind: type, values: Iterator[Any]) -> Any:
    """The named tuple of which `flatten` gave the values."""
    hints = _hints(kind).values()
    return kind(*(_build(own, values) if hasattr(own, "_fields") else next(values) for own in hints))


_hints = cache(get_type_hints)
