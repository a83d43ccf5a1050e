"""`python -m tasks.syntax_eval [evaluate|score] --option value`; see `--help` of each."""

import sys

from tasks.runs.command_line import parse, run
from tasks.syntax_eval.commands import EvaluateConfig, ScoreConfig, run_evaluate, run_score

PROGRAM = "python -m tasks.syntax_eval"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    verbs = {
        "evaluate": lambda words: run_evaluate(parse(EvaluateConfig, words, PROGRAM)),
        "score": lambda words: run_score(parse(ScoreConfig, words, f"{PROGRAM} score")),
    }
    return run(PROGRAM, verbs, arguments)


if __name__ == "__main__":
    sys.exit(main())
