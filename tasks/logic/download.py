"""The official logic data from their public home, checked and cached."""

from __future__ import annotations

from pathlib import Path

import pooch

from tasks.logic.data import file_names
from tasks.runs.errors import UserError

HOME = (
    "https://raw.githubusercontent.com/sleepinyourhat/vector-entailment/"
    "360abf10fcb09857948c9b33acf4bbaa8080ae32/propositionallogic/"
)
CHECKSUMS = Path(__file__).with_name("checksums.txt")


def fetch(cache: Path | None = None) -> Path:
    """Download what the cache lacks of train0 … train12 and test0 … test12.

    Args:
        cache: directory; by default the user's cache directory for this project.
    Returns:
        The directory.
    Raises:
        UserError: no connection, or a file that is not the one known by its checksum; says what else works.
    """
    directory = cache or pooch.os_cache("ordered_memory") / "logic"
    source = pooch.create(path=directory, base_url=HOME)
    source.load_registry(CHECKSUMS)
    pooch.get_logger().setLevel("WARNING")
    for name in file_names():
        try:
            source.fetch(name, progressbar=True)
        except (OSError, ValueError) as error:
            raise UserError(
                f"cannot fetch {HOME}{name} ({error}): name a directory that holds the files with "
                "--data-dir, or draw pairs of the same distribution with --generated 500000"
            ) from None
    return Path(directory)
