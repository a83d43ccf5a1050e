"""`python -m tasks.language_model [VERB] --option value`; the default verb is train."""

import sys
from functools import partial

from tasks.language_model.commands import (
    EvaluateConfig,
    GenerateConfig,
    run_evaluate,
    run_export,
    run_generate,
)
from tasks.language_model.config import LanguageModelConfig, presets_of
from tasks.language_model.task import train
from tasks.runs.command_line import Verb, run
from tasks.runs.hub import ExportConfig

VERBS = {
    "train": Verb(LanguageModelConfig, train, presets_of),
    "evaluate": Verb(EvaluateConfig, run_evaluate),
    "generate": Verb(GenerateConfig, run_generate),
    "export": Verb(ExportConfig, run_export),
}

main = partial(run, "tasks.language_model", VERBS)

if __name__ == "__main__":
    sys.exit(main())
