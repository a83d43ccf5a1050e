"""What the commands that evaluate a trained model have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.runs.files import check_writable_file
from tasks.runs.run_directory import write_json
from tasks.runs.threads import use_threads


@dataclass
class ResultsConfig:
    """Threads and results."""

    threads: int | None = None
    """CPU threads; by default PyTorch chooses. Use 1 where other programs keep the cores busy."""
    json: Path | None = None
    """Also write the results to this file."""

    def set_up(self) -> None:
        """Set the number of threads, and check that the results can be written.

        Raises:
            UserError: more threads than cores, or a file that cannot be written.
        """
        use_threads(self)
        check_writable_file("--json", self.json)

    def write(self, results: Any) -> None:
        """Write the results to `--json`, if it is given.

        Args:
            results: JSON values.
        """
        if self.json is not None:
            write_json(self.json, results)
