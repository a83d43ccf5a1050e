"""Checks of command-line options, which are fields of dataclasses. Errors name the option and its value."""

from __future__ import annotations

import math
import reprlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tasks.runs.errors import UserError

LARGEST = 2**63 - 1
"""The largest size or seed that PyTorch and NumPy accept."""
MOST_EXAMPLES = 10**9
"""The largest number of examples to generate: memory does not hold more."""


def check_at_least(smallest: int, options: Any, *names: str, largest: int = LARGEST) -> None:
    """Raise a UserError unless these options are at least `smallest`, finite, and at most `largest`.

    Args:
        smallest: the smallest allowed value.
        options: a dataclass.
        names: names of fields; the value None is accepted.
        largest: the largest allowed integer; by default, any that fits into 64 bits.
    """
    bound = "must not be negative" if smallest == 0 else f"must be at least {smallest}"
    for name, value in _given_options(options, names):
        if not value >= smallest:
            raise UserError(f"{flag(name)} {bound}, got {value}")
        _check_size(name, value, largest)


def check_positive(options: Any, *names: str) -> None:
    """Raise a UserError unless these options are positive and finite.

    Args:
        options: a dataclass.
        names: names of fields; the value None is accepted.
    """
    for name, value in _given_options(options, names):
        if not value > 0:
            raise UserError(f"{flag(name)} must be positive, got {value}")
        _check_size(name, value, LARGEST)


def check_fraction(options: Any, *names: str) -> None:
    """Raise a UserError unless these options lie in [0, 1].

    Args:
        options: a dataclass.
        names: names of fields; the value None is accepted.
    """
    for name, value in _given_options(options, names):
        if not 0 <= value <= 1:
            raise UserError(f"{flag(name)} must lie in [0, 1], got {value}")


def check_below_one(options: Any, *names: str) -> None:
    """Raise a UserError unless these options lie in [0, 1).

    Args:
        options: a dataclass.
        names: names of fields that hold a number or a tuple of numbers; the value None is accepted.
    """
    for name, value in _given_options(options, names):
        if not all(0 <= number < 1 for number in (value if isinstance(value, tuple) else (value,))):
            raise UserError(f"{flag(name)} must lie in [0, 1), got {value}")


def check_only_one(options: Any, *names: str) -> None:
    """Raise a UserError if more than one of these options is given.

    Args:
        options: a dataclass.
        names: names of fields; None means that an option is not given.
    """
    given_options = _given_options(options, names)
    if len(given_options) > 1:
        words = " and ".join(f"{flag(name)} {value}" for name, value in given_options)
        raise UserError(f"{words}: give one of them, not both")


def check_several_or_none(options: Any, name: str, choices: str) -> None:
    """Raise a UserError unless an option has one or more values, or `none` by itself.

    Args:
        options: a dataclass.
        name: name of the field, a tuple of strings.
        choices: what the option must name, for the message.
    """
    values = getattr(options, name)
    if not values:
        raise UserError(f"{flag(name)} must name {choices}, got nothing")
    if len(values) > 1 and "none" in values:
        raise UserError(f"{flag(name)} none stands alone, got {' '.join(values)}")


def check_unused(options: Any, default: Any, unused: Mapping[str, str]) -> None:
    """Raise a UserError if an option that has no effect is given.

    Args:
        options: a dataclass.
        default: has the values that the options have if they are not given.
        unused: why each of these options has no effect, by name of its field: "without --treebank".
    """
    for text in _unused_messages(options, default, unused):
        raise UserError(text)


def warn_of_unused(options: Any, default: Any, unused: Mapping[str, str]) -> None:
    """Warn on standard error if an option that has no effect is given.

    This is not an error: a script may give the same options to several models that do not all use them.

    Args:
        options, default, unused: as for `check_unused`.
    """
    for text in _unused_messages(options, default, unused):
        print(f"warning: {text}", file=sys.stderr)


def check_text(text: str, where: str) -> None:
    """Raise a UserError unless a text can be written as UTF-8.

    Args:
        text: text from JSON or the command line; may have lone surrogates, which are not valid Unicode text.
        where: file and line, or a name for the text, for the error message.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        position = error.start
        raise UserError(
            f"{where}: expected Unicode text, got {text[position]!a} as character {position + 1}"
        ) from None


def check_sentences(sentences: Iterable[object]) -> None:
    """Check that sentences are lists of words. The characters of a text would be read as words.

    Args:
        sentences: value of the argument of this name, or a text in its place.
    Raises:
        TypeError: a sentence is a text.
    """
    for sentence in sentences:
        if isinstance(sentence, str):
            raise TypeError(f"sentences must be lists of words, got the text {reprlib.repr(sentence)}")


def argument_error(error: ValueError, options: Any) -> UserError:
    """Convert the error of a layer about an argument that is also a command-line option.

    Args:
        error: its message may begin with the name of the argument.
        options: a dataclass.
    Returns:
        The error; it names the option instead of the argument.
    """
    name, _, message = str(error).partition(" ")
    return UserError(f"{flag(name)} {message}" if hasattr(options, name) else str(error))


def flag(name: str) -> str:
    """The command-line option of a field: --batch-size for `batch_size`.

    Args:
        name: the name of the field.
    """
    return f"--{name.replace('_', '-')}"


def option_words(name: str, value: Any) -> list[str]:
    """An option with its value, as on the command line.

    Args:
        name: the name of the field.
        value: its value; a list or tuple for an option of several values.
    Example:
        >>> option_words("batch_size", 8), option_words("end", False), option_words("drop_tags", ("PU", "X"))
        (['--batch-size', '8'], ['--no-end'], ['--drop-tags', 'PU', 'X'])
    """
    if isinstance(value, bool):
        return [flag(name if value else f"no_{name}")]
    return [flag(name), *_words(value)]


def option_text(value: Any) -> str:
    """The value of an option as on the command line.

    Args:
        value: the value; a list or tuple for an option of several values.
    Example:
        >>> option_text(8), option_text(("PU", "X"))
        ('8', 'PU X')
    """
    return " ".join(_words(value))


def _words(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | tuple) else [str(value)]


def _unused_messages(options: Any, default: Any, unused: Mapping[str, str]) -> Iterator[str]:
    for name, reason in unused.items():
        value = getattr(options, name)
        if value != getattr(default, name):
            yield f"{' '.join(option_words(name, value))} has no effect {reason}"


def _given_options(options: Any, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    values = ((name, getattr(options, name)) for name in names)
    return [(name, value) for name, value in values if value is not None]


def _check_size(name: str, value: float, largest: int) -> None:
    if isinstance(value, int) and value > largest:
        raise UserError(f"{flag(name)} must be at most {largest}, got {value}")
    if not math.isfinite(value):
        raise UserError(f"{flag(name)} must be finite, got {value}")
