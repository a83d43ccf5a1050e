"""Download the official logic data."""

from __future__ import annotations

from pathlib import Path

from tasks.classifiers.downloads import cache_directory, download

HOME = (
    "https://raw.githubusercontent.com/sleepinyourhat/vector-entailment/"
    "360abf10fcb09857948c9b33acf4bbaa8080ae32/propositionallogic/"
)
CHECKSUMS = Path(__file__).with_name("checksums.txt")
ALTERNATIVE = (
    "use --data-dir to name a directory with the files, or --generated 500000 to generate pairs from the "
    "same distribution"
)


def fetch() -> Path:
    """Download train0 … train6 and test0 … test12, unless they are in the user's cache.

    Returns:
        The directory with the files.
    Raises:
        UserError: see `tasks.classifiers.downloads.download`.
    """
    directory = cache_directory("logic")
    for line in CHECKSUMS.read_text(encoding="utf-8").splitlines():
        name, checksum = line.split()
        download(HOME + name, checksum, directory, ALTERNATIVE)
    return directory
