"""`python -m tasks.reproduce TABLE --option value`; without TABLE, it lists the tables."""

import sys

from tasks.reproduce.commands import VERBS, main

__all__ = ["VERBS", "main"]

if __name__ == "__main__":
    sys.exit(main())
