"""`python -m tasks.benchmark [compare|onlstm|logic|scaling] --option value`; see `--help` of each."""

import sys

from tasks.benchmark.compare import run_compare
from tasks.benchmark.config import CompareConfig, ScalingConfig
from tasks.benchmark.logic_models import LogicModelsConfig, run_logic_models
from tasks.benchmark.ordered_neurons import OnlstmConfig, run_onlstm
from tasks.benchmark.scaling import run_scaling
from tasks.runs.command_line import parse, run

PROGRAM = "python -m tasks.benchmark"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    verbs = {
        "compare": lambda words: run_compare(parse(CompareConfig, words, PROGRAM)),
        "onlstm": lambda words: run_onlstm(parse(OnlstmConfig, words, f"{PROGRAM} onlstm")),
        "logic": lambda words: run_logic_models(parse(LogicModelsConfig, words, f"{PROGRAM} logic")),
        "scaling": lambda words: run_scaling(parse(ScalingConfig, words, f"{PROGRAM} scaling")),
    }
    return run(PROGRAM, verbs, arguments)


if __name__ == "__main__":
    sys.exit(main())
