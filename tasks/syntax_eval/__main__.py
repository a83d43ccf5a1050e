"""`python -m tasks.syntax_eval [evaluate|score] --option value`; see `--help` of each."""

import sys

import tasks.syntax_eval
from tasks.runs.command_line import Verb, run
from tasks.syntax_eval.commands import EvaluateConfig, ScoreConfig, run_evaluate, run_score

VERBS = {"evaluate": Verb(EvaluateConfig, run_evaluate), "score": Verb(ScoreConfig, run_score)}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; see `tasks.runs.command_line.run`."""
    return run("python -m tasks.syntax_eval", tasks.syntax_eval.__doc__ or "", VERBS, arguments)


if __name__ == "__main__":
    sys.exit(main())
