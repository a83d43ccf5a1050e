"""`python -m tasks.benchmark [SUBCOMMAND] --option value`; compare is the default, and each has `--help`."""

import sys
from functools import partial

from tasks.benchmark.classifier_models import LOGIC_MODELS, SENTIMENT_MODELS
from tasks.benchmark.compare import COMPARE
from tasks.benchmark.language_model import LANGUAGE_MODEL
from tasks.benchmark.ordered_neurons import ONLSTM_LAYERS
from tasks.benchmark.scaling import SCALING
from tasks.runs.command_line import run

SUBCOMMANDS = {
    "compare": COMPARE,
    "onlstm": ONLSTM_LAYERS,
    "logic": LOGIC_MODELS,
    "sst": SENTIMENT_MODELS,
    "language-model": LANGUAGE_MODEL,
    "scaling": SCALING,
}

main = partial(run, "tasks.benchmark", SUBCOMMANDS)

if __name__ == "__main__":
    sys.exit(main())
