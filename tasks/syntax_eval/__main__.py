"""`python -m tasks.syntax_eval [evaluate|score] --option value`; see `--help` of each."""

import sys

from tasks.syntax_eval.commands import SUBCOMMANDS, main

__all__ = ["SUBCOMMANDS", "main"]

if __name__ == "__main__":
    sys.exit(main())
