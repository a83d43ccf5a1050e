"""Download the official test file of ListOps."""

from __future__ import annotations

from pathlib import Path

from tasks.classifiers.downloads import cache_directory, download

URL = (
    "https://raw.githubusercontent.com/nyu-mll/spinn/0e24a35c7be00e9f67814b0c846c3095cfe7632b/"
    "python/spinn/data/listops/test_d20s.tsv"
)
CHECKSUM = "sha256:71335416e6896e8dd8dc69281c8ed9b37316382d05d3705d660461564e843840"
ALTERNATIVE = "use --file to name the file, or another --test, which needs no download"


def fetch() -> Path:
    """Download test_d20s.tsv to the user's cache, unless it is there.

    Raises:
        UserError: see `tasks.classifiers.downloads.download`.
    """
    return download(URL, CHECKSUM, cache_directory("listops"), ALTERNATIVE)
