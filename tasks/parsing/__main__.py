"""`python -m tasks.parsing [evaluate|parse] --option value`; see `--help` of each."""

import sys

from tasks.parsing.commands import EvaluateConfig, ParseConfig, run_evaluate, run_parse
from tasks.runs.command_line import parse, run

PROGRAM = "python -m tasks.parsing"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    verbs = {
        "evaluate": lambda words: run_evaluate(parse(EvaluateConfig, words, f"{PROGRAM} evaluate")),
        "parse": lambda words: run_parse(parse(ParseConfig, words, f"{PROGRAM} parse")),
    }
    return run(PROGRAM, verbs, arguments)


if __name__ == "__main__":
    sys.exit(main())
