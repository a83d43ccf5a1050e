"""The subcommands of ListOps and their options."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from tasks.classifiers import commands
from tasks.classifiers.comparison import ReportConfig, run_report
from tasks.formatting.tables import count_text
from tasks.listops.config import ListOpsConfig
from tasks.listops.data import Dataset, write_tsv
from tasks.listops.generator import HARD_TESTS, generate, hard_test
from tasks.listops.task import LISTOPS
from tasks.runs.command_line import Subcommand, run
from tasks.runs.files import check_writable_file
from tasks.runs.hub import ExportConfig
from tasks.runs.options import MOST_EXAMPLES, check_at_least, check_unused

if TYPE_CHECKING:
    TestName = str
else:
    TestName = Literal["standard", *HARD_TESTS]


@dataclass
class EvaluateConfig(commands.GeneratedConfig):
    """Evaluate a trained model: accuracy by length, depth and operator; span F1 with baselines."""

    test: TestName | Literal["official"] = "standard"
    """The test data of the model's run (standard); the official test file, which is downloaded (official); or
    a generated test: expressions in a range of lengths; with more arguments; with 501 to 1,999 tokens and up
    to 10 arguments (lra); with one operator and 2 to 15 digits (operators)."""

    def check(self) -> None:
        super().check()
        if self.test == "official":
            check_unused(self, type(self), dict.fromkeys(("size", "seed"), "with --test official"))


@dataclass(kw_only=True)
class ExpressionConfig:
    """Input."""

    expression: Annotated[str, tyro.conf.Positional]
    """The expression, such as "[MAX 2 9 [MIN 4 7 ] 0 ]"."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The expression."""
        return (self.expression,)


@dataclass(kw_only=True)
class PredictConfig(ExpressionConfig, commands.ReadConfig):
    """Predict the value of one expression and draw the tree that the model induces."""


@dataclass(kw_only=True)
class TraceConfig(ExpressionConfig, commands.TraceConfig):
    """Show step by step what the model does with one expression."""


@dataclass
class GenerateConfig:
    """Generate expressions and write them to a file in the official format."""

    output: Annotated[Path, tyro.conf.Positional]
    """The file to write."""
    test: TestName = "standard"
    """The standard distribution, or a harder test."""
    size: int = 2_000
    """Number of expressions, all different."""
    seed: int = 1
    """Random seed. A training run with this seed draws other examples, but short ones occur in both."""


def _predict(config: PredictConfig) -> None:
    data, prediction, _ = commands.print_answer(LISTOPS, config)
    commands.show_trees(config, data, prediction)


def _generate(config: GenerateConfig) -> None:
    check_at_least(1, config, "size", largest=MOST_EXAMPLES)
    check_at_least(0, config, "seed")
    check_writable_file("OUTPUT", config.output)
    if config.test == "standard":
        # A run with this seed draws others. (NumPy takes `seed` and `(seed, 0)` for the same.)
        expressions = generate(config.size, seed=(config.seed, 0, 1))
    else:
        expressions = hard_test(config.test, config.size, seed=config.seed)
    write_tsv(config.output, Dataset(expressions))
    print(f"{config.output}: {count_text(config.size, 'expression')}")


SUBCOMMANDS = {
    "train": Subcommand(ListOpsConfig, LISTOPS.train, LISTOPS.presets),
    "evaluate": Subcommand(EvaluateConfig, partial(commands.run_evaluate, LISTOPS)),
    "predict": Subcommand(PredictConfig, _predict),
    "predict-file": Subcommand(commands.PredictFileConfig, partial(commands.run_predict_file, LISTOPS)),
    "trace": Subcommand(TraceConfig, partial(commands.run_trace, LISTOPS)),
    "generate": Subcommand(GenerateConfig, _generate),
    "report": Subcommand(ReportConfig, partial(run_report, LISTOPS)),
    "export": Subcommand(ExportConfig, partial(commands.run_export, LISTOPS)),
}

main = partial(run, "tasks.listops", SUBCOMMANDS)
