"""`python -m tasks.sst [VERB] --option value`; the default verb is train, and each has `--help`."""

import sys
from functools import partial

from tasks.classifiers.commands import run_export
from tasks.runs.command_line import Verb, run
from tasks.runs.hub import ExportConfig
from tasks.sst.commands import (
    EvaluateConfig,
    PredictConfig,
    StatsConfig,
    TraceConfig,
    run_evaluate,
    run_predict,
    run_sentence_trace,
    run_stats,
)
from tasks.sst.config import PRESETS, SentimentConfig
from tasks.sst.task import SST

VERBS = {
    "train": Verb(SentimentConfig, SST.train, lambda model: PRESETS),
    "evaluate": Verb(EvaluateConfig, run_evaluate),
    "predict": Verb(PredictConfig, run_predict),
    "trace": Verb(TraceConfig, run_sentence_trace),
    "stats": Verb(StatsConfig, run_stats),
    "export": Verb(ExportConfig, partial(run_export, SST, lambda model: PRESETS)),
}

main = partial(run, "tasks.sst", VERBS)

if __name__ == "__main__":
    sys.exit(main())
