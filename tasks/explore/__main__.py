"""`python -m tasks.explore [--checkpoint PATH …] [--port N]`; see `--help`."""

import sys

import tasks.explore
from tasks.explore.commands import ServeConfig, run_serve
from tasks.runs.command_line import Verb, run

VERBS = {"serve": Verb(ServeConfig, run_serve)}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; see `tasks.runs.command_line.run`."""
    return run("python -m tasks.explore", tasks.explore.__doc__ or "", VERBS, arguments)


if __name__ == "__main__":
    sys.exit(main())
