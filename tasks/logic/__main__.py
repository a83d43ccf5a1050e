"""`python -m tasks.logic [VERB] --option value`; the default verb is train, and each has `--help`."""

import sys

from tasks.logic.commands import (
    EvaluateConfig,
    GenerateConfig,
    PredictConfig,
    ReportConfig,
    StatsConfig,
    run_evaluate,
    run_generate,
    run_predict,
    run_report,
    run_stats,
)
from tasks.logic.comparison import train_seeds
from tasks.logic.config import LogicConfig, presets_of
from tasks.logic.task import train
from tasks.runs.command_line import option, parse, parse_run, run

PROGRAM = "python -m tasks.logic"


def train_verb(words: list[str]) -> None:
    """Train once, or once for each seed."""
    presets = presets_of(option(words, "--model"))
    config = parse_run(LogicConfig, presets, words, PROGRAM)
    if config.seeds == 1:
        train(config)
    else:
        print(train_seeds(config))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    verbs = {
        "train": train_verb,
        "evaluate": lambda words: run_evaluate(parse(EvaluateConfig, words, f"{PROGRAM} evaluate")),
        "predict": lambda words: run_predict(parse(PredictConfig, words, f"{PROGRAM} predict")),
        "stats": lambda words: run_stats(parse(StatsConfig, words, f"{PROGRAM} stats")),
        "generate": lambda words: run_generate(parse(GenerateConfig, words, f"{PROGRAM} generate")),
        "report": lambda words: run_report(parse(ReportConfig, words, f"{PROGRAM} report")),
    }
    return run(PROGRAM, verbs, arguments)


if __name__ == "__main__":
    sys.exit(main())
