"""The parts of Triton that the kernels of both models import, and tanh, which `triton.language` lacks."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, implicit-reexport

from __future__ import annotations

try:
    import triton
    import triton.language as tl
except ImportError:  # `devices.why_no_triton` reports this, and no kernel is called
    triton = tl = None

jit = triton.jit if triton is not None else lambda function: function


@jit
def tanh(x):
    """Compute tanh x; that of libdevice does not run in Triton's interpreter.

    Args:
        x: a block of numbers.
    """
    return 2 * tl.sigmoid(2 * x) - 1
