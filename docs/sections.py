"""Docstrings as the site's parser wants them.

A blank line before every section, Examples for Example, Attributes for the Args of a TypedDict, and an entry
for each name of an entry such as `predicted, gold: see ...`.
"""

import re
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
            if obj.is_class and any(str(base) == "TypedDict" for base in obj.bases):
                # Keys have no defaults, by which the parser tells optional arguments from required ones.
                separated = separated.replace("\n\nArgs:\n", "\n\nAttributes:\n")
            obj.docstring.value = separated


def _one_each(entry: re.Match[str]) -> str:
    """An entry for each name, all with the same text."""
    names, text = entry.groups()
    text = text if text.endswith("\n") else f"{text}\n"
    return "".join(f"    {name}{text}" for name in names.split(", "))
