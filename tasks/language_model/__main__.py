"""`python -m tasks.language_model [train|evaluate] --option value`; see `--help` of each."""

import sys

from tasks.language_model.commands import EvaluateConfig, run_evaluate
from tasks.language_model.config import LanguageModelConfig, presets_of
from tasks.language_model.task import train
from tasks.runs.command_line import option, parse, parse_run, run

PROGRAM = "python -m tasks.language_model"


def train_verb(words: list[str]) -> None:
    """Train, or go on training."""
    train(parse_run(LanguageModelConfig, presets_of(option(words, "--model")), words, PROGRAM))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    verbs = {
        "train": train_verb,
        "evaluate": lambda words: run_evaluate(parse(EvaluateConfig, words, f"{PROGRAM} evaluate")),
    }
    return run(PROGRAM, verbs, arguments)


if __name__ == "__main__":
    sys.exit(main())
