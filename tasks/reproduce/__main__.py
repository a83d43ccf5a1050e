"""`python -m tasks.reproduce TABLE --option value`; without TABLE, it lists the tables."""

import sys

from tasks.reproduce.commands import SUBCOMMANDS, main

__all__ = ["SUBCOMMANDS", "main"]

if __name__ == "__main__":
    sys.exit(main())
