"""`python -m tasks.logic [VERB] --option value`; the default verb is train, and each has `--help`."""

import sys
from functools import partial

from tasks.classifiers.commands import run_evaluate, run_export, run_trace
from tasks.logic.commands import (
    EvaluateConfig,
    GenerateConfig,
    PredictConfig,
    ReportConfig,
    StatsConfig,
    TraceConfig,
    run_generate,
    run_predict,
    run_report,
    run_stats,
)
from tasks.logic.config import LogicConfig
from tasks.logic.task import LOGIC
from tasks.runs.command_line import Verb, run
from tasks.runs.hub import ExportConfig

VERBS = {
    "train": Verb(LogicConfig, LOGIC.train, LOGIC.presets),
    "evaluate": Verb(EvaluateConfig, partial(run_evaluate, LOGIC)),
    "predict": Verb(PredictConfig, run_predict),
    "trace": Verb(TraceConfig, partial(run_trace, LOGIC)),
    "stats": Verb(StatsConfig, run_stats),
    "generate": Verb(GenerateConfig, run_generate),
    "report": Verb(ReportConfig, run_report),
    "export": Verb(ExportConfig, partial(run_export, LOGIC)),
}

main = partial(run, "tasks.logic", VERBS)

if __name__ == "__main__":
    sys.exit(main())
