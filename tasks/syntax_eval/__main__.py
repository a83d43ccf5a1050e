"""`python -m tasks.syntax_eval [evaluate|score] --option value`; see `--help` of each."""

import sys
from functools import partial

from tasks.runs.command_line import Verb, run
from tasks.syntax_eval.commands import EvaluateConfig, ScoreConfig, run_evaluate, run_score

VERBS = {"evaluate": Verb(EvaluateConfig, run_evaluate), "score": Verb(ScoreConfig, run_score)}

main = partial(run, "tasks.syntax_eval", VERBS)

if __name__ == "__main__":
    sys.exit(main())
