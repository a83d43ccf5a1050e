"""`python -m tasks.parsing [VERB] --option value`; the default verb is evaluate, and each has `--help`."""

import sys

import tasks.parsing
from tasks.parsing.commands import (
    EvaluateConfig,
    ParseConfig,
    TraceConfig,
    run_evaluate,
    run_parse,
    run_trace,
)
from tasks.runs.command_line import Verb, run

VERBS = {
    "evaluate": Verb(EvaluateConfig, run_evaluate),
    "parse": Verb(ParseConfig, run_parse),
    "trace": Verb(TraceConfig, run_trace),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; see `tasks.runs.command_line.run`."""
    return run("python -m tasks.parsing", tasks.parsing.__doc__ or "", VERBS, arguments)


if __name__ == "__main__":
    sys.exit(main())
