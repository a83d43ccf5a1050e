"""Options that all commands which evaluate a trained model share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.runs.files import check_writable_file
from tasks.runs.run_directory import write_json
from tasks.runs.threads import use_threads


@dataclass
class ResultsConfig:
    """Threads and output file."""

    threads: int | None = None
    """CPU threads; by default PyTorch chooses. Use 1 if other programs keep the cores busy."""
    json: Path | None = None
    """Also write the results to this JSON file."""

    def set_up(self) -> None:
        """Set the number of threads and check that the output file can be written.

        Raises:
            UserError: there are fewer cores than threads, or the file cannot be written.
        """
        use_threads(self)
        check_writable_file("--json", self.json)

    def write(self, results: Any) -> None:
        """Write the results to the file of `--json`, if it is given.

        Args:
            results: JSON values.
        """
        if self.json is not None:
            write_json(self.json, results)
