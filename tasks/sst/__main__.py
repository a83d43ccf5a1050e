"""`python -m tasks.sst [SUBCOMMAND] --option value`; train is the default, and each has `--help`."""

import sys

from tasks.sst.commands import SUBCOMMANDS, main

__all__ = ["SUBCOMMANDS", "main"]

if __name__ == "__main__":
    sys.exit(main())
