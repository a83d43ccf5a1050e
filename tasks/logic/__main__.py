"""`python -m tasks.logic [SUBCOMMAND] --option value`; train is the default, and each has `--help`."""

import sys

from tasks.logic.commands import SUBCOMMANDS, main

__all__ = ["SUBCOMMANDS", "main"]

if __name__ == "__main__":
    sys.exit(main())
