"""`python -m tasks.language_model [VERB] --option value`; the default verb is train."""

import sys

from tasks.language_model.commands import VERBS, main

__all__ = ["VERBS", "main"]

if __name__ == "__main__":
    sys.exit(main())
