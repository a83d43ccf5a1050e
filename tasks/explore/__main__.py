"""`python -m tasks.explore [--checkpoint PATH …] [--port N]`; see `--help`."""

import sys

from tasks.explore.commands import SUBCOMMANDS, main

__all__ = ["SUBCOMMANDS", "main"]

if __name__ == "__main__":
    sys.exit(main())
