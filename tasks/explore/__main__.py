"""`python -m tasks.explore [--checkpoint PATH …] [--port N]`; see `--help`."""

import sys

from tasks.explore.commands import VERBS, main

__all__ = ["VERBS", "main"]

if __name__ == "__main__":
    sys.exit(main())
