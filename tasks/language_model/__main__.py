"""`python -m tasks.language_model [SUBCOMMAND] --option value`; the default subcommand is train."""

import sys

from tasks.language_model.commands import SUBCOMMANDS, main

__all__ = ["SUBCOMMANDS", "main"]

if __name__ == "__main__":
    sys.exit(main())
