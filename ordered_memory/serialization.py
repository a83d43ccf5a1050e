"""Classes that PyTorch may read from a file or write to one."""

from __future__ import annotations

from typing import Any

from torch.serialization import add_safe_globals
from torch.utils import _pytree


def register_named_tuples(package: str, *classes: type[Any]) -> None:
    """Allow named tuples in `torch.load(weights_only=True)`, and in programs that `torch.export.save` writes.

    Args:
        package: name of the package that exports the classes, the prefix of their names in files.
        *classes: subclasses of `NamedTuple`, in the inputs or outputs of a module.
    """
    add_safe_globals(list(classes))
    # This private function is the only way to name the type of a program's output in a file. A class may be
    # registered already, because a module may be reloaded.
    register = getattr(_pytree, "_register_namedtuple", None)
    for named_tuple in classes:
        if register is not None and named_tuple not in _pytree.SUPPORTED_NODES:
            register(named_tuple, serialized_type_name=f"{package}.{named_tuple.__qualname__}")
