"""The official logic data from their public home."""

from __future__ import annotations

from pathlib import Path

from tasks.classifiers.downloads import cache_directory, download

HOME = (
    "https://raw.githubusercontent.com/sleepinyourhat/vector-entailment/"
    "360abf10fcb09857948c9b33acf4bbaa8080ae32/propositionallogic/"
)
CHECKSUMS = Path(__file__).with_name("checksums.txt")
OTHERWISE = (
    "name a directory that holds the files with --data-dir, or draw pairs of the same distribution with "
    "--generated 500000"
)


def fetch(cache: Path | None = None) -> Path:
    """Download what the cache lacks of train0 … train12 and test0 … test12.

    Args:
        cache: directory; by default one in the user's cache.
    Returns:
        The directory.
    Raises:
        UserError: see `tasks.classifiers.downloads.download`.
    """
    directory = cache or cache_directory("logic")
    for line in CHECKSUMS.read_text().splitlines():
        name, checksum = line.split()
        download(HOME + name, checksum, directory, OTHERWISE)
    return directory
