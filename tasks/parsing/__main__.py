"""`python -m tasks.parsing [VERB] --option value`; the default verb is evaluate, and each has `--help`."""

import sys
from functools import partial

from tasks.parsing.commands import (
    EvaluateConfig,
    ParseConfig,
    TraceConfig,
    TreesConfig,
    run_evaluate,
    run_parse,
    run_trace,
    run_trees,
)
from tasks.parsing.score import ScoreConfig, run_score
from tasks.runs.command_line import Verb, run

VERBS = {
    "evaluate": Verb(EvaluateConfig, run_evaluate),
    "parse": Verb(ParseConfig, run_parse),
    "trees": Verb(TreesConfig, run_trees),
    "score": Verb(ScoreConfig, run_score),
    "trace": Verb(TraceConfig, run_trace),
}

main = partial(run, "tasks.parsing", VERBS)

if __name__ == "__main__":
    sys.exit(main())
