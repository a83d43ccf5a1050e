"""`python -m tasks.listops [SUBCOMMAND] --option value`; train is the default, and each has `--help`."""

import sys

from tasks.listops.commands import SUBCOMMANDS, main

__all__ = ["SUBCOMMANDS", "main"]

if __name__ == "__main__":
    sys.exit(main())
