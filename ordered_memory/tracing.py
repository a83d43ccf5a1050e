"""Decorators for `torch.compile` that do not import the compiler, which takes as long as importing torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def constant(function: Callable[P, R]) -> Callable[P, R]:
    """As `torch.compiler.assume_constant_result`: a captured graph contains the result as a constant.

    Args:
        function: function that is called during capture and not traced.
    Returns:
        The same function.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def untraced(reason: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """As `torch.compiler.disable`: the graph breaks at the function, which is not traced.

    Args:
        reason: reason for the graph break, for the compiler's log.
    Returns:
        A decorator.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        wrapped: list[Callable[P, R]] = []

        @constant
        def wrap() -> None:
            if not wrapped:
                wrapped.append(torch.compiler.disable(function, reason=reason))

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if torch.compiler.is_compiling():
                wrap()
                return wrapped[0](*args, **kwargs)
            return function(*args, **kwargs)

        return call

    return decorate
