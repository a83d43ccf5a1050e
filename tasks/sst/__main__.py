"""`python -m tasks.sst [VERB] --option value`; the default verb is train, and each has `--help`."""

import sys
from functools import partial

import tasks.sst
from tasks.classifiers.commands import run_export
from tasks.classifiers.seeds import train_seeds
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
    "train": Verb(SentimentConfig, partial(train_seeds, SST.train), lambda model: PRESETS),
    "evaluate": Verb(EvaluateConfig, run_evaluate),
    "predict": Verb(PredictConfig, run_predict),
    "trace": Verb(TraceConfig, run_sentence_trace),
    "stats": Verb(StatsConfig, run_stats),
    "export": Verb(ExportConfig, partial(run_export, SST, lambda model: PRESETS)),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; see `tasks.runs.command_line.run`."""
    return run("python -m tasks.sst", tasks.sst.__doc__ or "", VERBS, arguments)


if __name__ == "__main__":
    sys.exit(main())
