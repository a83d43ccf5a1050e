"""`python -m tasks.parsing [SUBCOMMAND] --option value`; evaluate is the default, and each has `--help`."""

import sys

from tasks.parsing.commands import SUBCOMMANDS, main

__all__ = ["SUBCOMMANDS", "main"]

if __name__ == "__main__":
    sys.exit(main())
