"""The argument struct of a C function as a ctypes structure, parsed from its typedef in the C source."""

from __future__ import annotations

import ctypes
import re
from typing import Any, ClassVar

import torch
from torch import Tensor

_NUMBERS = {
    "int64_t": (ctypes.c_int64, torch.int64),
    "int32_t": (ctypes.c_int32, torch.int32),
    "uint8_t": (ctypes.c_uint8, torch.uint8),
    "bf16_t": (ctypes.c_uint16, torch.bfloat16),
    "float": (ctypes.c_float, torch.float32),
    "double": (ctypes.c_double, torch.float64),
}


class CStruct(ctypes.Structure):
    """A C struct. Numbers are set as attributes, pointers to tensors with `point`."""

    pointees: ClassVar[dict[str, torch.dtype]]

    def point(self, **tensors: Tensor | None) -> None:
        """Set fields to the addresses of tensors, and keep the tensors alive as long as the struct.

        Args:
            **tensors: tensors by the name of the field; None is a null pointer.
        Raises:
            ValueError: a tensor is not dense, contiguous, on the CPU and of the dtype of the field, or its
                memory was freed.
        """
        held: dict[str, Tensor | None] = self.__dict__.setdefault("held", {})
        for name, tensor in tensors.items():
            held[name] = tensor
            setattr(self, name, None if tensor is None else self._address(name, tensor))

    def _address(self, name: str, tensor: Tensor) -> int:
        dense_on_cpu = tensor.is_cpu and tensor.layout is torch.strided
        expected = self.pointees[name]
        if dense_on_cpu and tensor.dtype is expected and tensor.is_contiguous() and not tensor.is_neg():
            end = (tensor.storage_offset() + tensor.numel()) * tensor.itemsize
            if tensor.untyped_storage().nbytes() < end:
                raise ValueError(
                    f"{name}: expected a tensor of {tensor.numel()} numbers in memory, got one whose memory "
                    "was freed, as FSDP frees that of parameters"
                )
            return tensor.data_ptr()
        raise ValueError(
            f"{name}: expected a contiguous {expected} tensor on the CPU, got "
            f"{tensor.dtype}, {tensor.layout}, {tensor.device}, strides {list(tensor.stride())}"
            if dense_on_cpu
            else f"{name}: expected a dense tensor on the CPU, got {tensor.layout} on {tensor.device}"
        )


def parse(text: str, name: str, scalar: torch.dtype) -> type[CStruct]:
    """Parse the typedef of a struct.

    Args:
        text: C source with a `typedef struct { … } NAME;` whose fields are numbers, pointers, and function
            pointers that have a typedef.
        name: name of the struct.
        scalar: dtype of scalar_t.
    Raises:
        ValueError: there is no such struct, or it has a field of an unknown type.
    """
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
    typedef = re.search(rf"typedef\s+struct\s*\{{([^{{}}]*)\}}\s*{name}\s*;", text)
    if typedef is None:
        raise ValueError(f"expected a typedef of struct {name}, found none")
    functions = set(re.findall(r"typedef[^;{}]*?\(\*(\w+)\)\s*\(", text))
    numbers = _NUMBERS | {"scalar_t": _NUMBERS["float" if scalar == torch.float32 else "double"]}
    fields: list[tuple[str, Any]] = []
    pointees: dict[str, torch.dtype] = {}
    for declaration in filter(None, map(str.strip, typedef[1].split(";"))):
        type_name, _, declarators = declaration.removeprefix("const ").partition(" ")
        for declarator in declarators.split(","):
            match = re.fullmatch(r"\s*(\*?)\s*(\w+)\s*", declarator)
            if match is None or not (match[1] or type_name in numbers or type_name in functions):
                raise ValueError(f"struct {name}: cannot read {declaration!r}")
            pointer = bool(match[1]) or type_name in functions
            fields.append((match[2], ctypes.c_void_p if pointer else numbers[type_name][0]))
            if match[1] and type_name in numbers:
                pointees[match[2]] = numbers[type_name][1]
    return type(name, (CStruct,), {"_fields_": fields, "pointees": pointees})
