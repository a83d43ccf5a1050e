"""Checks of arguments, for both models. Errors name the argument, what was expected, and its value."""

from __future__ import annotations

import numbers
import operator
import reprlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ordered_memory.modes import CAST_BY_AUTOCAST, autocast_dtype, is_jit_tracing

INTEGERS = {
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
}


def positive_int(name: str, value: Any) -> int:
    """Convert an argument that must be a positive integer of any type to an int.

    Args:
        name: name of the argument, for the error message.
        value: value of the argument.
    Returns:
        An int, symbolic in a graph.
    Raises:
        ValueError: the value is not an integer of at least 1.
    """
    number = as_int(value)
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {number!r}")
    return number


def as_int(value: Any) -> Any:
    """Convert an integer of any type, such as NumPy's, to an int.

    Args:
        value: any argument.
    Returns:
        An int; the value itself if it is one (symbolic in a graph, or a bool) or is not an integer.
    """
    if value is None or isinstance(value, int) or getattr(value, "dtype", None) in (torch.bool, np.bool_):
        return value
    try:
        return operator.index(value)
    except TypeError:
        return value


def integer_or_none(value: Any) -> int | None:
    """Convert an integer of any type to an int; None for anything else, also for a boolean.

    Args:
        value: any argument.
    """
    number = as_int(value)
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def is_number(value: object) -> bool:
    """Whether a value is a real number, or a tensor of a single one.

    Args:
        value: any argument.
    """
    return value.numel() == 1 if isinstance(value, Tensor) else isinstance(value, numbers.Real)


def check_flags(**arguments: bool) -> None:
    """Check arguments that must be True or False.

    Args:
        **arguments: values by name.
    Raises:
        TypeError: an argument is not a bool.
    """
    for name, value in arguments.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, got {value!r}")


def check_fraction(**arguments: float) -> None:
    """Check arguments that must lie in [0, 1].

    Args:
        **arguments: values by name.
    Raises:
        ValueError: an argument is not a number in [0, 1].
    """
    for name, value in arguments.items():
        if not isinstance(value, numbers.Real) or isinstance(value, bool) or not 0 <= value <= 1:
            raise ValueError(f"{name} must lie in [0, 1], got {value!r}")


def check_tensor(name: str, value: object, hint: str = "") -> None:
    """Check that an argument is a tensor.

    Args:
        name: name of the argument, for the error message.
        value: value of the argument.
        hint: what the caller may have meant to pass, for the error message.
    Raises:
        TypeError: the value is not a tensor.
    """
    if not isinstance(value, Tensor):
        hint = f" ({hint})" if hint else ""
        raise TypeError(f"expected {name} to be a tensor{hint}, got {type(value).__name__}")


def check_sequences(name: str, value: object) -> Tensor:
    """Check that the input of a layer that is not a PackedSequence is a padded tensor.

    Args:
        name: name of the argument, for the error message.
        value: value of the argument.
    Returns:
        The value.
    Raises:
        TypeError: the value is not a tensor, or is nested or sparse.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a Tensor or a PackedSequence, got {type(value).__name__}")
    if value.is_nested:
        raise TypeError(
            f"{name} must be padded or packed, got a nested tensor: pad it with torch.nested.to_padded_tensor"
        )
    if value.layout is not torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got {value.layout}: call its method to_dense")
    return value


def check_words(name: str, words: Iterable[object]) -> None:
    """Check that every word of a sequence, or of a vocabulary, is a string.

    Args:
        name: name of the argument, for the error message.
        words: value of the argument.
    Raises:
        TypeError: a word is not a string.
    """
    for i, word in enumerate(words):
        if not isinstance(word, str):
            raise TypeError(f"{name}[{i}] must be a string, got {reprlib.repr(word)}")


def check_device(name: str, tensor: Tensor, like: Tensor, error: type[Exception] = ValueError) -> None:
    """Check that a tensor is on the same device as another.

    Args:
        name: name of the argument, for the error message.
        tensor: value of the argument.
        like: tensor on the expected device.
        error: type of exception to raise.
    Raises:
        ValueError: (or `error`) the tensor is on a different device.
    """
    if tensor.device != like.device:
        raise error(f"{name} must be on {like.device}, got a tensor on {tensor.device}")


def check_dtype(name: str, tensor: Tensor, like: Tensor, error: type[Exception] = ValueError) -> None:
    """Check that a tensor has the same dtype as another, or that autocast casts between the two.

    Args:
        name: name of the argument, for the error message.
        tensor: value of the argument.
        like: tensor of the expected dtype, on the device of the computation.
        error: type of exception to raise.
    Raises:
        ValueError: (or `error`) the tensor has a different dtype.
    """
    cast = autocast_dtype(like.device) is not None and {tensor.dtype, like.dtype} <= CAST_BY_AUTOCAST
    if tensor.dtype != like.dtype and not cast:
        raise error(f"{name} must have dtype {like.dtype}, got {tensor.dtype}")


def check_name(argument: str, value: str, known: Collection[str]) -> None:
    """Check that an argument is one of the known names.

    Args:
        argument: name of the argument, for the error message.
        value: value of the argument.
        known: allowed values.
    Raises:
        ValueError: any other value.
    """
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{argument} must be one of {', '.join(known)}, got {value!r}")


def check_fixed(module: nn.Module, name: str, value: object, fixed: Collection[str]) -> None:
    """Check that an attribute that is being set is not one that the parameters of a module depend on.

    Args:
        module: the module, whose constructor sets every attribute for the first time.
        name: name of the attribute.
        value: its new value.
        fixed: names of the attributes that may not be changed.
    Raises:
        TypeError: the attribute may not be changed, and has a different value.
    """
    built_with = module.__dict__.get(name, value)
    if name in fixed and value != built_with:
        raise TypeError(
            f"{name} cannot be changed after construction: expected {built_with!r}, got {value!r}; build "
            "another layer"
        )


def check_lengths(
    lengths: Tensor | Sequence[int] | None, inputs: Tensor, *, has_state: bool
) -> Tensor | None:
    """Check the lengths of padded sequences.

    Args:
        lengths: the caller's argument, (B,).
        inputs: (T, B, ·).
        has_state: whether there is an initial state, with which a length may be 0.
    Returns:
        The lengths, (B,) int64 on the CPU; None if nothing is padded.
    Raises:
        ValueError: not one integer in range for each sequence, or a tensor that is not on the CPU.
    """
    if lengths is None:
        return None
    steps, batch_size = inputs.shape[:2]
    values = _to_length_tensor(lengths, batch_size, steps)
    if values.device.type != "cpu":
        raise ValueError(
            f"lengths must be on the CPU, got shape {tuple(values.shape)}, dtype {values.dtype}, "
            f"device {values.device}: call .cpu()"
        )
    least = 0 if has_state else 1
    if torch.compiler.is_compiling():  # values are not known yet: the graph checks them when it runs
        fits = ((values >= least) & (values <= steps)).all()
        torch._assert_async(fits, f"lengths must lie in {least}..T")  # the value of T in it would fix T
        return values
    inner = values
    while torch._C._functorch.is_gradtrackingtensor(inner):  # of torch.func.grad within vmap
        inner = torch._C._functorch.get_unwrapped(inner)
    if torch._C._functorch.is_batchedtensor(inner):
        raise ValueError("lengths must be known numbers, got a tensor that torch.func.vmap has batched")
    _check_range(values.tolist(), steps, least, "0 is allowed with an initial state")
    if not is_jit_tracing() and bool((values == steps).all()):  # a trace must also support other lengths
        return None
    return values


def check_state_tensors(
    name: str, state: object, count: int, expected: str, *, or_lengths: bool = True
) -> None:
    """Check that the caller's initial state is a tuple or list of tensors, or None.

    Args:
        name: name of the argument, for the error message.
        state: value of the argument.
        count: number of tensors.
        expected: what it must be if not None, for the error message.
        or_lengths: whether the caller may have meant lengths, for the error message.
    Raises:
        TypeError: the state is anything else.
    """
    if state is None:
        return
    got = type(state).__name__
    if isinstance(state, (tuple, list)):
        if len(state) == count and all(isinstance(entry, Tensor) for entry in state):
            return
        got = f"a {got} of {len(state)}"
        if state:
            got += f": {', '.join(type(entry).__name__ for entry in state[:3])}"
    if or_lengths and _may_be_lengths(state):
        got += " (did you mean lengths=?)"
    raise TypeError(f"{name} must be {expected}, or None, got {got}")


def _may_be_lengths(value: object) -> bool:
    if isinstance(value, Tensor):
        return value.dtype in INTEGERS
    return isinstance(value, (tuple, list)) and bool(value) and all(isinstance(n, int) for n in value)


def sequence_lengths(lengths: Sequence[int] | Tensor | None, batch_size: int, longest: int) -> list[int]:
    """Check the lengths of sequences as `check_lengths` does, and return them as ints.

    Args:
        lengths: the caller's argument, (B,), on any device; None if every sequence has T tokens.
        batch_size: B.
        longest: T.
    Returns:
        B lengths.
    Raises:
        ValueError: not one integer in 1..T for each sequence, or the sequences have no tokens.
    """
    if batch_size and longest < 1:
        raise ValueError(f"expected sequences of at least one token, got T = {longest}")
    if lengths is None:
        return [longest] * batch_size
    sizes: list[int] = _to_length_tensor(lengths, batch_size, longest).tolist()
    _check_range(sizes, longest)
    return sizes


def _to_length_tensor(lengths: Tensor | Sequence[int], batch_size: int, steps: int) -> Tensor:
    """Convert lengths to a (B,) int64 tensor, if they are one integer per sequence. Does not check ranges."""
    try:
        values = lengths if isinstance(lengths, Tensor) else _as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"lengths must be one integer for each sequence, got {lengths!r}") from None
    if values.numel() == 0:
        values = values.to(torch.int64)  # an empty list has no dtype of its own
    if values.dtype not in INTEGERS or values.dim() != 1:
        raise ValueError(
            "lengths must be one integer for each sequence, "
            f"got shape {tuple(values.shape)}, dtype {values.dtype}"
        )
    if values.shape[0] != batch_size:
        hint = " (as many as there are steps: check batch_first)" if values.shape[0] == steps else ""
        raise ValueError(
            f"lengths must have one entry for each of {batch_size} sequences, got {len(values)}{hint}"
        )
    return values.to(torch.int64)


def _as_tensor(lengths: Any) -> Tensor:
    """Convert a sequence of integers to a tensor on the CPU. A boolean among them is an error."""
    if torch.compiler.is_compiling():
        if any(isinstance(length, bool) for length in lengths):
            raise TypeError("a boolean is not a length")
        if len(lengths) and all(isinstance(length, int) for length in lengths):
            # In a graph, as_tensor would make constants of them: other lengths would compile the layer again.
            return torch.stack([torch.full((), n, dtype=torch.int64, device="cpu") for n in lengths])
    elif isinstance(lengths, np.ndarray) and lengths.dtype.kind in "iu":
        # `torch.as_tensor` rejects some arrays: read-only, reversed, or with a different byte order.
        lengths = lengths.tolist()
    elif isinstance(lengths, (list, tuple)):
        # `torch.as_tensor` rejects some integers of NumPy and converts booleans. It rejects None.
        lengths = [integer_or_none(length) for length in lengths]
    return torch.as_tensor(lengths, device="cpu")


def _check_range(lengths: Sequence[int], steps: int, least: int = 1, hint: str = "") -> None:
    for i, length in enumerate(lengths):
        if not least <= length <= steps:
            hint = f" ({hint})" if hint and length == 0 else ""
            raise ValueError(f"lengths must lie in {least}..{steps} (T), got lengths[{i}] = {length}{hint}")


def to_numbers(name: str, values: Sequence[Any] | Tensor) -> list[Any]:
    """Convert one value per token to Python numbers. (`float` warns if a tensor requires gradients.)

    Args:
        name: name of the argument, for the error message.
        values: (T,).
    Returns:
        T values.
    Raises:
        ValueError: a tensor with more or less than one axis.
    """
    if not isinstance(values, Tensor):
        return [value.detach() if isinstance(value, Tensor) else value for value in values]
    if values.dim() != 1:
        raise ValueError(
            f"expected {name} to be (T,), one number for each token, got shape {tuple(values.shape)}"
        )
    entries: list[Any] = values.tolist()
    return entries
