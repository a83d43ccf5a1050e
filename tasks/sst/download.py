"""Download the official treebank."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tasks.classifiers.downloads import cache_directory, download
from tasks.runs.files import write_atomically
from tasks.sst.treebank import FILES

URL = "https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip"
CHECKSUM = "sha256:5c613a4f673fc74097d523a2c83f38e0cc462984d847b82c7aaf36b01cbbbfcc"
ALTERNATIVE = (
    f"use --data-dir to name a directory with {', '.join(FILES)}, or --generated 6000 to generate sentences "
    "from a small grammar"
)


def fetch() -> Path:
    """Download the archive, unless it is in the user's cache, and unpack train.txt, dev.txt and test.txt.

    Returns:
        The directory with the files.
    Raises:
        UserError: see `tasks.classifiers.downloads.download`.
    """
    directory = cache_directory("sst")
    with zipfile.ZipFile(download(URL, CHECKSUM, directory, ALTERNATIVE)) as archive:
        for name in FILES:  # unpacked every time, since files in the cache may have been changed
            write_atomically(directory / name, archive.read(f"trees/{name}"))
    return directory
