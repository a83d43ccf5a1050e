"""`python -m tasks.predictions compare FILE … [--trees NAME …]`; see `--help`."""

import sys

from tasks.predictions.commands import SUBCOMMANDS, main

__all__ = ["SUBCOMMANDS", "main"]

if __name__ == "__main__":
    sys.exit(main())
