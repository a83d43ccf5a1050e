"""Download data, check them and cache them."""

from __future__ import annotations

from pathlib import Path

import pooch

from tasks.runs.errors import UserError


def cache_directory(name: str) -> Path:
    """A subdirectory of this project's cache directory; it may not exist yet.

    Args:
        name: name of the subdirectory.
    """
    return Path(pooch.os_cache("ordered_memory")) / name


def download(url: str, checksum: str, directory: Path, alternative: str) -> Path:
    """Download a file unless it is already in the directory.

    Args:
        url: URL of the file; it is saved under its own name.
        checksum: "sha256:" and 64 hexadecimal digits.
        directory: created if it does not exist.
        alternative: what the user can do instead, for the error message.
    Returns:
        The path of the file.
    Raises:
        UserError: the download failed, or the checksum is wrong.
    """
    pooch.get_logger().setLevel("WARNING")
    name = url.rpartition("/")[2]
    try:
        return Path(pooch.retrieve(url, checksum, name, directory, progressbar=True))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot download {url} ({error}): {alternative}") from None
