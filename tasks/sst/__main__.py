"""`python -m tasks.sst [VERB] --option value`; the default verb is train, and each has `--help`."""

import sys

from tasks.sst.commands import VERBS, main

__all__ = ["VERBS", "main"]

if __name__ == "__main__":
    sys.exit(main())
