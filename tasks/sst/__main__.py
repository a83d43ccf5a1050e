"""`python -m tasks.sst [VERB] --option value`; the default verb is train, and each has `--help`."""

import sys
from functools import partial

from tasks.classifiers.commands import run_evaluate, run_export, run_trace
from tasks.runs.command_line import Verb, run
from tasks.runs.hub import ExportConfig
from tasks.sst.commands import (
    EvaluateConfig,
    PredictConfig,
    StatsConfig,
    TraceConfig,
    run_predict,
    run_stats,
)
from tasks.sst.config import SentimentConfig
from tasks.sst.task import SST

VERBS = {
    "train": Verb(SentimentConfig, SST.train, SST.presets),
    "evaluate": Verb(EvaluateConfig, partial(run_evaluate, SST)),
    "predict": Verb(PredictConfig, run_predict),
    "trace": Verb(TraceConfig, partial(run_trace, SST)),
    "stats": Verb(StatsConfig, run_stats),
    "export": Verb(ExportConfig, partial(run_export, SST)),
}

main = partial(run, "tasks.sst", VERBS)

if __name__ == "__main__":
    sys.exit(main())
