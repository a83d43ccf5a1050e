"""The official treebank from its public home, checked and cached."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pooch

from tasks.runs.errors import UserError
from tasks.runs.files import write_atomically
from tasks.sst.treebank import FILES

URL = "https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip"
CHECKSUM = "sha256:5c613a4f673fc74097d523a2c83f38e0cc462984d847b82c7aaf36b01cbbbfcc"


def fetch(cache: Path | None = None) -> Path:
    """Download the archive unless the cache has it, and unpack train.txt, dev.txt and test.txt.

    Args:
        cache: directory; by default the user's cache directory for this project.
    Returns:
        The directory.
    Raises:
        UserError: no connection, or an archive that is not the one known by its checksum; says what else
            works.
    """
    directory = cache or Path(pooch.os_cache("ordered_memory")) / "sst"
    pooch.get_logger().setLevel("WARNING")
    try:
        archive = pooch.retrieve(
            URL, CHECKSUM, fname="trainDevTestTrees_PTB.zip", path=directory, progressbar=True
        )
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot fetch {URL} ({error}): name a directory that holds {', '.join(FILES)} with --data-dir"
        ) from None
    with zipfile.ZipFile(archive) as trees:
        for name in FILES:  # every time: what stands in the cache may have been changed
            write_atomically(directory / name, trees.read(f"trees/{name}"))
    return directory
