"""`save_pretrained`, `from_pretrained` and `push_to_hub` of models, through huggingface_hub.

A saved model is a directory: the weights are in model.safetensors, the constructor arguments in config.json,
and a model card in README.md. Nothing is pickled.
"""

from __future__ import annotations

import copy
import inspect
import json
import os
import re
import reprlib
import sys
import warnings
from collections.abc import Collection, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
DOWNLOAD = ("revision", "cache_dir", "force_download", "local_files_only", "token")
"""The options of `from_pretrained` that are those of `hf_hub_download`."""

_UNREADABLE: tuple[type[Exception], ...] = (
    ArithmeticError,
    AttributeError,
    FileNotFoundError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Exceptions that loading a damaged directory may raise, in addition to SafetensorError."""
_MISSING = re.compile(r"missing \d+ required")
"""In the message of a TypeError: arguments without a default were not given."""

if TYPE_CHECKING or (find_spec("huggingface_hub") and find_spec("safetensors")):
    from huggingface_hub import ModelCard, PyTorchModelHubMixin, hf_hub_download
    from safetensors import SafetensorError

    _UNREADABLE += (SafetensorError,)
else:

    class PyTorchModelHubMixin:
        """Placeholder for the mixin of huggingface_hub where that is not installed."""

        _hub_mixin_config: Any = None

        def __new__(cls, *_arguments: Any, **_options: Any) -> Self:
            return super().__new__(cls)

        def __init_subclass__(cls, **_about: Any) -> None:
            super().__init_subclass__()

        def save_pretrained(self, *_arguments: Any, **_options: Any) -> None:
            """Raise an ImportError that says what to install."""
            raise ImportError("pretrained models need huggingface_hub and safetensors: pip install '.[hub]'")

        push_to_hub = save_pretrained
        from_pretrained = classmethod(save_pretrained)


_SAVE_BY_MIXIN = getattr(PyTorchModelHubMixin, "_save_pretrained", None)
"""The method that saves weights and constructor arguments; None where huggingface_hub is not installed."""

CARD = """---
{{ card_data }}
---

# {{ name }}

A model of the Python library ordered-memory. model.safetensors has its weights, config.json its options.

## Use

```python
{{ usage }}
```
{% if results %}
## Results

```
{{ results }}
```
{% endif %}{% if command %}
## Training

```sh
{{ command }}
```
{% endif %}"""
"""The template of a model card."""


class HubMixin(PyTorchModelHubMixin, library_name="ordered-memory", model_card_template=CARD):
    """Mixin that adds `save_pretrained`, `from_pretrained` and `push_to_hub` to a module.

    The methods are those of `huggingface_hub.PyTorchModelHubMixin`, with two differences: the weights must be
    in safetensors format and match the model exactly, and a damaged directory raises a ValueError. A
    constructor argument is saved only if it is a JSON value or a NumPy number. So a dtype is not saved, nor
    is an attribute that is set later. If any other value is not saved, such as a function, and the argument
    has a default, `save_pretrained` warns: `from_pretrained` takes the default unless it is given the value.
    A model cannot be saved if `*args` has received values, which have no names, or if a constructor argument
    is called `config` or has the name of a download option.
    """

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        named, nameless = _named_arguments(cls, arguments, options)
        # Without the values of *args: `super().__new__` would give them the names of the next parameters.
        module = super().__new__(cls, **named)
        if nameless:
            module._nameless_arguments = nameless
        if isinstance(module._hub_mixin_config, dict):
            # The caller may change a list after the call, and `torch.load` reads only plain values.
            module._hub_mixin_config = {
                name: json.loads(json.dumps(value))
                for name, value in module._hub_mixin_config.items()
                if _has_string_keys(value)
            }
        if _SAVE_BY_MIXIN and (lost := [name for name, value in named.items() if cls._is_lost(name, value)]):
            module._lost_arguments = lost
        return module

    @classmethod
    def _is_lost(cls, name: str, value: Any) -> bool:
        """Whether a loaded model would have the default of an argument in place of this value."""
        is_saved = cls._is_jsonable(value) and _has_string_keys(value)
        if is_saved or isinstance(value, torch.dtype | torch.device):
            return False
        parameter = inspect.signature(cls.__init__).parameters.get(name)  # None: it is one of **options
        return parameter is None or not (parameter.default is parameter.empty or parameter.default is value)

    def __init_subclass__(cls, **about: Any) -> None:
        coders = {np.generic: (np.generic.item, float)}  # to a JSON value, and back
        super().__init_subclass__(**{"coders": coders} | about)

    _nameless_arguments: tuple[Any, ...] = ()
    _lost_arguments: Sequence[str] = ()

    usage = ""
    """Python code of the model card that calls the model, after `model = Class.from_pretrained(…)`."""

    @property
    def arguments(self) -> dict[str, Any]:
        """The constructor arguments, including defaults, as in config.json."""
        config = self._hub_mixin_config
        return copy.deepcopy(config) if isinstance(config, dict) else {}

    def save_pretrained(self, save_directory: str | os.PathLike[str], **options: Any) -> str | None:
        """Save the model to a directory.

        Args:
            save_directory: the directory; it is created.
            options: as for `huggingface_hub.PyTorchModelHubMixin.save_pretrained`.
        Returns:
            The URL of the commit with `push_to_hub=True`, else None.
        Raises:
            ImportError: huggingface_hub is not installed.
            ValueError: an argument of the constructor cannot be saved.
        """
        # A class may save and load by methods of its own.
        saves_arguments = getattr(type(self), "_save_pretrained", None) is _SAVE_BY_MIXIN
        if saves_arguments and self._nameless_arguments:
            raise ValueError(
                f"{type(self).__name__} was built with values of *args, which cannot be saved: "
                f"{reprlib.repr(self._nameless_arguments)}; pass them by name"
            )
        for name in inspect.signature(type(self).__init__).parameters if saves_arguments else ():
            if name in ("config", *DOWNLOAD):
                raise ValueError(
                    f"{type(self).__name__} cannot be saved: the argument {name} of its constructor has the "
                    "name of one of `from_pretrained`; rename it"
                )
        if saves_arguments and self._lost_arguments:
            warnings.warn(
                f"{type(self).__name__} is saved without {', '.join(self._lost_arguments)}: not JSON. Unless "
                "you give the same to from_pretrained, the loaded model has the defaults of these arguments",
                stacklevel=2,
            )
        url: str | None = super().save_pretrained(Path(save_directory), **options)
        return url

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | os.PathLike[str], **options: Any) -> Self:
        """Load a saved model, in evaluation mode.

        The dtype of the parameters is that of a newly constructed model, whatever was saved.

        Args:
            pretrained_model_name_or_path: a directory, or a name on the Hugging Face Hub, "owner/name".
            options: constructor arguments that replace the saved ones, and arguments of `hf_hub_download`:
                `revision`, `token`, `cache_dir`, `force_download`, `local_files_only`.
        Raises:
            ImportError: huggingface_hub is not installed.
            OSError: the Hub has no such model or cannot be reached.
            TypeError: the class has no such constructor argument.
            ValueError: the directory does not contain a saved model of this class.
            Exception: the saved model is valid, but the given constructor arguments are wrong. This is the
                constructor's error, or a RuntimeError if the saved weights do not fit these arguments.
        """
        name_or_path = os.fspath(pretrained_model_name_or_path)
        cls._check_names(options)
        if os.path.isfile(name_or_path):
            raise ValueError(
                f"{name_or_path}: expected a directory, as `save_pretrained` writes it, got a file"
            )
        try:
            return super().from_pretrained(name_or_path, **options)
        except Exception as error:
            if isinstance(error, OSError) and not os.path.isdir(name_or_path):
                error.add_note(f"{name_or_path!r} is not a directory, so it was looked for on the Hub")
                raise
            if not isinstance(error, _UNREADABLE):
                raise
            download = {name: value for name, value in options.items() if name in DOWNLOAD}
            what = f"not a saved {cls.__name__}"
            if len(download) < len(options):
                without = cls._error_of_loading(name_or_path, **download)
                if without is None:
                    raise  # the saved model is valid, so the given constructor arguments are wrong
                if _MISSING.search(str(without)) and not _MISSING.search(str(error)):
                    what += ", or not with the given arguments"  # without which it cannot be loaded
            if type(error).__name__ == "HFValidationError":
                raise ValueError(f"{name_or_path}: no such directory, and no name on the Hub") from None
            reason = " ".join(str(error).split()) or type(error).__name__
            if re.search(r'\.parametrizations\.|_orig"', reason):  # in the names of unexpected weights
                reason += (
                    "; it was saved with parametrized or pruned weights: before saving, call "
                    "torch.nn.utils.parametrize.remove_parametrizations or torch.nn.utils.prune.remove"
                )
            if _MISSING.search(reason):
                reason += "; save_pretrained saves JSON values: give other arguments to from_pretrained"
            raise ValueError(f"{name_or_path}: {what} ({reason})") from error

    @classmethod
    def _check_names(cls, options: Collection[str]) -> None:
        """Check that options are arguments of the constructor or of the download."""
        parameters = inspect.signature(cls).parameters.values()
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return
        names = [
            parameter.name
            for parameter in parameters
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        ]
        for name in options:
            if name not in names and name not in DOWNLOAD:
                raise TypeError(f"{cls.__name__} has no argument {name}, only {', '.join(names)}")

    @classmethod
    def _error_of_loading(cls, name_or_path: str, **download: Any) -> Exception | None:
        """Why the saved model cannot be loaded with the saved arguments; None if it can."""
        try:
            super().from_pretrained(name_or_path, **download)
        except _UNREADABLE as error:
            return error
        return None

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> Self:
        """Build the module and load its weights, never from a pickle."""
        download = {name: options.pop(name) for name in DOWNLOAD}
        file = os.path.join(model_id, WEIGHTS)
        if not os.path.isdir(model_id):
            file = hf_hub_download(model_id, WEIGHTS, **download)
        model: Any = cls._load_as_safetensor(cls(**options), file, "cpu", strict=True)
        loaded: Self = model.eval()  # which huggingface_hub does from 1.9 on
        return loaded

    def generate_model_card(self, **values: Any) -> ModelCard:
        """Create the model card.

        Args:
            values: template variables that replace the module's own: `name`, `usage`, `results`, `command`.
        """
        name, module = type(self).__name__, type(self).__module__
        if module == "__main__":  # of `python -m` or of a file
            main = sys.modules[module]
            spec, file = main.__spec__, getattr(main, "__file__", None)
            module = spec.name if spec is not None else Path(file).stem if file else module
        load = f'model = {name}.from_pretrained(".")  # this directory, or its name on the Hub'
        usage = f"from {module} import {name}\n\n{load}\n{self.usage}"
        return super().generate_model_card(**{"name": name, "usage": usage} | values)


def _named_arguments(
    cls: type[Any], arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """The arguments of a constructor by name, and the values that `*args` receives."""
    signature = inspect.signature(cls.__init__)
    try:
        bound = signature.bind(None, *arguments, **options)
    except TypeError:  # the constructor will raise it, too
        return options, ()
    named: dict[str, Any] = {}
    nameless: tuple[Any, ...] = ()
    for name, value in list(bound.arguments.items())[1:]:  # without `self`
        match signature.parameters[name].kind:
            case inspect.Parameter.VAR_POSITIONAL:
                nameless = value
            case inspect.Parameter.VAR_KEYWORD:
                named |= value
            case _:
                named[name] = value
    return named, nameless


def _has_string_keys(value: Any) -> bool:
    """Whether all keys of dictionaries are strings, as in JSON."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _has_string_keys(item) for key, item in value.items())
    return not isinstance(value, list | tuple) or all(map(_has_string_keys, value))
