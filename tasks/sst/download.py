"""The official treebank from its public home."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tasks.classifiers.downloads import cache_directory, download
from tasks.runs.files import write_atomically
from tasks.sst.treebank import FILES

URL = "https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip"
CHECKSUM = "sha256:5c613a4f673fc74097d523a2c83f38e0cc462984d847b82c7aaf36b01cbbbfcc"
OTHERWISE = (
    f"name a directory that holds {', '.join(FILES)} with --data-dir, or draw sentences of a small grammar "
    "with --generated 6000"
)


def fetch(cache: Path | None = None) -> Path:
    """Download the archive unless the cache has it, and unpack train.txt, dev.txt and test.txt.

    Args:
        cache: directory; by default one in the user's cache.
    Returns:
        The directory.
    Raises:
        UserError: see `tasks.classifiers.downloads.download`.
    """
    directory = cache or cache_directory("sst")
    with zipfile.ZipFile(download(URL, CHECKSUM, directory, OTHERWISE)) as trees:
        for name in FILES:  # every time: what stands in the cache may have been changed
            write_atomically(directory / name, trees.read(f"trees/{name}"))
    return directory
