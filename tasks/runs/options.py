"""Checks of command-line options, which are fields of dataclasses: errors name the option and its value."""

from __future__ import annotations

from typing import Any

from tasks.runs.errors import UserError


def check_at_least(smallest: int, options: Any, *names: str) -> None:
    """Raise a UserError that names the first of these options that is smaller; None passes."""
    bound = "must not be negative" if smallest == 0 else f"must be at least {smallest}"
    for name in names:
        value = getattr(options, name)
        if value is not None and not value >= smallest:
            raise UserError(f"{flag(name)} {bound}, got {value}")


def check_positive(options: Any, *names: str) -> None:
    """Raise a UserError that names the first of these options that is not positive; None passes."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise UserError(f"{flag(name)} must be positive, got {value}")


def check_fraction(options: Any, *names: str) -> None:
    """Raise a UserError that names the first of these options that does not lie in [0, 1]; None passes."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not 0 <= value <= 1:
            raise UserError(f"{flag(name)} must lie in [0, 1], got {value}")


def flag(name: str) -> str:
    """How the field `batch_size` is written: --batch-size."""
    return f"--{name.replace('_', '-')}"
