"""`python -m tasks.listops [train|evaluate|parse|generate] --option value`; see `--help` of each."""

import sys

from tasks.listops.commands import (
    EvaluateConfig,
    GenerateConfig,
    ParseConfig,
    run_evaluate,
    run_generate,
    run_parse,
)
from tasks.listops.config import PRESETS, ListOpsConfig
from tasks.listops.task import train
from tasks.runs.command_line import parse, parse_run, run

PROGRAM = "python -m tasks.listops"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    verbs = {
        "train": lambda words: train(parse_run(ListOpsConfig, PRESETS, words, PROGRAM)),
        "evaluate": lambda words: run_evaluate(parse(EvaluateConfig, words, f"{PROGRAM} evaluate")),
        "parse": lambda words: run_parse(parse(ParseConfig, words, f"{PROGRAM} parse")),
        "generate": lambda words: run_generate(parse(GenerateConfig, words, f"{PROGRAM} generate")),
    }
    return run(PROGRAM, verbs, arguments)


if __name__ == "__main__":
    sys.exit(main())
