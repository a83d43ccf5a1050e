"""`python -m tasks.parsing [VERB] --option value`; the default verb is evaluate, and each has `--help`."""

import sys

from tasks.parsing.commands import VERBS, main

__all__ = ["VERBS", "main"]

if __name__ == "__main__":
    sys.exit(main())
