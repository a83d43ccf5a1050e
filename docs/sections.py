"""Sections of docstrings stand below one another without blank lines; the site's parser needs them."""

import re
from typing import Any

import griffe

HEADER = re.compile(r"\n+((?:Args|Returns|Raises|Example):\n)")


class SeparateSections(griffe.Extension):
    """A blank line before every section of a docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for every module, class, function and attribute.

        Args:
            obj: what may have a docstring.
            kwargs: not used.
        """
        if obj.docstring is not None:
            obj.docstring.value = HEADER.sub(r"\n\n\1", obj.docstring.value)
