"""The parts of Triton that the kernels of both models import, and tanh, which `triton.language` lacks."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, implicit-reexport

from __future__ import annotations

try:
    import triton
    import triton.language as tl
except ImportError:  # `triton_support.why_no_triton` reports this, and no kernel is called
    triton = tl = None

jit = triton.jit if triton is not None else lambda function: function


@jit
def tanh(x):
    """Compute tanh x; that of libdevice does not run in Triton's interpreter.

    Near 0 it is a power series, since the difference of two numbers near 1 has lost its digits.

    Args:
        x: a block of numbers.
    """
    square = x * x
    tail = square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * (62 / 2835))))
    return tl.where(square < 0.0016, x + x * tail, 1 - 2 / (1 + tl.exp(2 * x)))
