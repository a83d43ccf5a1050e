"""Docstrings as the site's parser wants them: a blank line before every section, and Examples for Example."""

import re
from typing import Any

import griffe

HEADER = re.compile(r"\n+((?:Args|Returns|Raises|Example):\n)")


class SeparateSections(griffe.Extension):
    """A blank line before every section of a docstring; examples become code."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for every module, class, function and attribute.

        Args:
            obj: what may have a docstring.
            kwargs: not used.
        """
        if obj.docstring is not None:
            separated = HEADER.sub(r"\n\n\1", obj.docstring.value)
            obj.docstring.value = separated.replace("\n\nExample:\n", "\n\nExamples:\n")
