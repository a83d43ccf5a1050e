"""`python -m tasks.explore [--checkpoint PATH …] [--port N]`; see `--help`."""

import sys
from functools import partial

from tasks.explore.commands import ServeConfig, run_serve
from tasks.runs.command_line import Verb, run

VERBS = {"serve": Verb(ServeConfig, run_serve)}

main = partial(run, "tasks.explore", VERBS)

if __name__ == "__main__":
    sys.exit(main())
