"""An emulated device, to find tensors on the wrong device without a GPU.

A tensor of the device is a wrapper around a tensor on the CPU. Operators compute on the CPU, but refuse
tensors of both devices and, as some devices do, float64. A process that registers the device cannot go back.
"""

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode

NAME = "emulated"
MISSING = ("aten::take",)
"""Apple GPUs do not have these."""
PYTHON: dict[str, Callable] = {}
"""Operators that are written in Python, for all devices."""
WAITS: list[str] = []
"""Names of calls that made the host wait for the device: reads of values, and blocking copies to it."""
READING = ("aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal", "aten::nonzero")


class OnDevice(Tensor):
    """A tensor of the device."""

    on_cpu: Tensor

    @staticmethod
    def __new__(cls, on_cpu: Tensor) -> "OnDevice":
        if on_cpu.dtype == torch.float64:
            raise TypeError("this device has no float64")
        wrapper = Tensor._make_wrapper_subclass(
            cls, on_cpu.size(), strides=on_cpu.stride(), dtype=on_cpu.dtype, device=torch.device(NAME, 0)
        )
        wrapper.on_cpu = on_cpu
        return wrapper

    @classmethod
    def __torch_dispatch__(cls, operator, types, args=(), kwargs=None):
        return call(operator, args, kwargs or {})

    def tolist(self):
        WAITS.append("tolist")
        return self.on_cpu.tolist()


def is_here(device: object) -> bool:
    return device is not None and torch.device(device).type == NAME


def to_cpu(value: object) -> object:
    """The tensor inside of a wrapper; the CPU in place of the device; anything else as it is."""
    if isinstance(value, OnDevice):
        return value.on_cpu
    return torch.device("cpu") if isinstance(value, torch.device) else value


def mapped(function: Callable, value: object) -> object:
    """Apply a function to what is in tuples, lists and dicts; `tree_map` would take longer than the rest."""
    if isinstance(value, tuple | list):
        return type(value)([mapped(function, item) for item in value])
    if isinstance(value, dict):
        return {name: mapped(function, item) for name, item in value.items()}
    return function(value)


def call(operator, args, kwargs):
    """Compute on the CPU, and wrap what the device would hold."""
    name = operator.name().split(".")[0]
    assert name not in MISSING, name
    if name in PYTHON:
        with Emulation():
            return PYTHON[name](*args, **kwargs)
    if name == "aten::_to_copy":
        copy = operator(*mapped(to_cpu, args), **mapped(to_cpu, kwargs))
        is_target, is_source = is_here(kwargs.get("device") or args[0].device), isinstance(args[0], OnDevice)
        if is_target != is_source and not (is_target and kwargs.get("non_blocking")):
            WAITS.append(name)
        return OnDevice(copy) if is_target else copy
    tensors: list[Tensor] = []
    mapped(lambda leaf: tensors.append(leaf) if isinstance(leaf, Tensor) else None, (args, kwargs))
    WAITS.extend([name] if name in READING and any(isinstance(leaf, OnDevice) for leaf in tensors) else [])
    wrappers = {id(leaf.on_cpu): leaf for leaf in tensors if isinstance(leaf, OnDevice)}
    others = [leaf for leaf in tensors if not isinstance(leaf, OnDevice) and leaf.dim() > 0]
    if wrappers and others and name != "aten::copy_":
        # A packed batch has its lengths on the CPU. Indices might be there, too, but each use would wait.
        assert name == "aten::_pack_padded_sequence", f"{name}: tensors on two devices"
    found = operator(*mapped(to_cpu, args), **mapped(to_cpu, kwargs))
    if name == "aten::copy_":
        return args[0]
    if name == "aten::_pack_padded_sequence":
        return OnDevice(found[0]), found[1]
    if not wrappers and not is_here(kwargs.get("device")):
        return found
    return mapped(lambda leaf: _wrapped(leaf, wrappers) if isinstance(leaf, Tensor) else leaf, found)


def _wrapped(tensor: Tensor, wrappers: dict[int, OnDevice]) -> OnDevice:
    """A wrapper of a result; if the operator changed an argument in place, the wrapper of that argument."""
    return wrappers[id(tensor)] if id(tensor) in wrappers else OnDevice(tensor)


class Emulation(TorchDispatchMode):
    """Also sees the operators that make tensors."""

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        return call(operator, args, kwargs or {})


def move(module: nn.Module) -> nn.Module:
    """Put parameters and buffers on the device."""
    for child in module.modules():
        for name, tensor in child._parameters.items():
            if tensor is not None:
                child._parameters[name] = nn.Parameter(OnDevice(tensor.detach().clone()))
        for name, tensor in child._buffers.items():
            if tensor is not None:
                child._buffers[name] = OnDevice(tensor.clone())
    return module


class CPUGenerator(torch.Generator):
    """A generator of the CPU, of whatever device it should be."""

    def __new__(cls, device=None):
        return REAL_GENERATOR()


REAL_GENERATOR, REAL_TENSOR, REAL_IMPL = torch.Generator, torch.tensor, torch.library.Library.impl


def tensor(data, *, dtype=None, device=None):
    made = REAL_TENSOR(data, dtype=dtype)
    WAITS.extend(["tensor"] if is_here(device) else [])
    return OnDevice(made) if is_here(device) else made


def impl(library, name, function, key="", **options):
    if key == "CompositeExplicitAutograd":
        PYTHON[f"{library.ns}::{name}"] = function
    return REAL_IMPL(library, name, function, key, **options)


def emulate() -> None:
    """Register the device, and replace the functions of PyTorch that the emulation does not reach."""
    backend_registration._setup_privateuseone_for_python_backend(NAME)
    module = getattr(torch, NAME)
    module.get_amp_supported_dtype = lambda: [torch.bfloat16]
    torch.Generator, torch.tensor, torch.library.Library.impl = CPUGenerator, tensor, impl
    # Wrappers cannot be inference tensors.
    torch.inference_mode = lambda mode=True: torch.no_grad() if mode else contextlib.nullcontext()
    from ordered_memory.cky import WITHOUT_FLOAT64

    WITHOUT_FLOAT64.add(NAME)
