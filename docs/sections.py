"""Docstrings as the site's parser wants them.

A blank line before every section, Examples for Example, Attributes for the Args of a TypedDict or a
NamedTuple, and an entry for each name of an entry such as `predicted, gold: see ...`. A method without a
docstring has that of a base class.
"""

import re
from collections.abc import Iterator
from typing import Any

import griffe

HEADER = re.compile(r"\n+((?:Args|Returns|Raises|Example):\n)")
SEVERAL = re.compile(r"^ {4}((?:\w+, )+\w+)(:.*\n?(?: {5,}.*\n?)*)", re.MULTILINE)


class SeparateSections(griffe.Extension):
    """A blank line before every section of a docstring; examples become code."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for every module, class, function and attribute.

        Args:
            obj: what may have a docstring.
            kwargs: not used.
        """
        if obj.docstring is not None:
            separated = HEADER.sub(r"\n\n\1", SEVERAL.sub(_one_each, obj.docstring.value))
            separated = separated.replace("\n\nExample:\n", "\n\nExamples:\n")
            if obj.is_class and any(str(base) in ("TypedDict", "NamedTuple") for base in obj.bases):
                # The parser takes types of Args from __init__, which these classes do not define.
                separated = separated.replace("\n\nArgs:\n", "\n\nAttributes:\n")
            obj.docstring.value = separated

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Called for every package, when all of it is read.

        Args:
            pkg: the package.
            kwargs: not used.
        """
        for module in _modules(pkg):
            for cls in module.classes.values():
                for name, method in cls.functions.items() if not cls.is_alias else ():
                    if method.docstring is None:
                        documented = (base.members[name] for base in cls.mro() if name in base.members)
                        method.docstring = next((one.docstring for one in documented if one.docstring), None)


def _modules(module: griffe.Module) -> Iterator[griffe.Module]:
    """A module and all in it."""
    yield module
    for inner in module.modules.values():
        if not inner.is_alias:
            yield from _modules(inner)


def _one_each(entry: re.Match[str]) -> str:
    """An entry for each name, all with the same text."""
    names, text = entry.groups()
    text = text if text.endswith("\n") else f"{text}\n"
    return "".join(f"    {name}{text}" for name in names.split(", "))
