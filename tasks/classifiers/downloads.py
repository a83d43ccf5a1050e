"""Data from their public homes, checked and cached."""

from __future__ import annotations

from pathlib import Path

import pooch

from tasks.runs.errors import UserError


def cache_directory(name: str) -> Path:
    """A directory in the user's cache, which may not exist yet.

    Args:
        name: of what it holds.
    """
    return Path(pooch.os_cache("ordered_memory")) / name


def download(url: str, checksum: str, directory: Path, otherwise: str) -> Path:
    """Download a file unless the directory has it.

    Args:
        url: of the file, which keeps its name.
        checksum: "sha256:" and 64 hexadecimal digits.
        directory: made if need be.
        otherwise: what else works, for the error.
    Returns:
        The file.
    Raises:
        UserError: no connection, or a file that is not the one known by its checksum.
    """
    pooch.get_logger().setLevel("WARNING")
    name = url.rpartition("/")[2]
    try:
        return Path(pooch.retrieve(url, checksum, name, directory, progressbar=True))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot fetch {url} ({error}): {otherwise}") from None
