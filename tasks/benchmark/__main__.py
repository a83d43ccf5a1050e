"""`python -m tasks.benchmark [VERB] --option value`; the default verb is compare, and each has `--help`."""

import sys
from functools import partial

from tasks.benchmark.classifier_models import (
    LogicModelsConfig,
    SentimentModelsConfig,
    run_classifier_models,
)
from tasks.benchmark.compare import run_compare
from tasks.benchmark.config import CompareConfig, ScalingConfig
from tasks.benchmark.language_model import LanguageModelBenchmarkConfig, run_language_model
from tasks.benchmark.ordered_neurons import OnlstmConfig, run_onlstm
from tasks.benchmark.scaling import run_scaling
from tasks.runs.command_line import Verb, run

VERBS = {
    "compare": Verb(CompareConfig, run_compare),
    "onlstm": Verb(OnlstmConfig, run_onlstm),
    "logic": Verb(LogicModelsConfig, run_classifier_models),
    "sst": Verb(SentimentModelsConfig, run_classifier_models),
    "language-model": Verb(LanguageModelBenchmarkConfig, run_language_model),
    "scaling": Verb(ScalingConfig, run_scaling),
}

main = partial(run, "tasks.benchmark", VERBS)

if __name__ == "__main__":
    sys.exit(main())
