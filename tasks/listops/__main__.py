"""`python -m tasks.listops [VERB] --option value`; the default verb is train, and each has `--help`."""

import sys
from functools import partial

from tasks.classifiers.commands import run_evaluate, run_export, run_trace
from tasks.listops.commands import (
    EvaluateConfig,
    GenerateConfig,
    ParseConfig,
    TraceConfig,
    run_generate,
    run_parse,
)
from tasks.listops.config import ListOpsConfig
from tasks.listops.task import LISTOPS
from tasks.runs.command_line import Verb, run
from tasks.runs.hub import ExportConfig

VERBS = {
    "train": Verb(ListOpsConfig, LISTOPS.train, LISTOPS.presets),
    "evaluate": Verb(EvaluateConfig, partial(run_evaluate, LISTOPS)),
    "parse": Verb(ParseConfig, run_parse),
    "trace": Verb(TraceConfig, partial(run_trace, LISTOPS)),
    "generate": Verb(GenerateConfig, run_generate),
    "export": Verb(ExportConfig, partial(run_export, LISTOPS)),
}

main = partial(run, "tasks.listops", VERBS)

if __name__ == "__main__":
    sys.exit(main())
