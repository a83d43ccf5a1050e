"""Options of the ListOps task, and the presets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tasks.classifiers.config import DEMO as DEMO_MODEL
from tasks.classifiers.config import ClassifierConfig, presets_by_model
from tasks.listops.data import is_long_range_arena
from tasks.runs.options import MOST_EXAMPLES, check_at_least, check_several_or_none


@dataclass
class DataConfig:
    """Data."""

    data_dir: Path | None = None
    """Directory with the official train_d20s.tsv and test_d20s.tsv, or with Long Range Arena's
    basic_train.tsv, basic_val.tsv and basic_test.tsv, optionally compressed (.gz, .bz2, .xz); None to
    generate expressions."""
    expressions: int = 100_000
    """Number of expressions to generate; one tenth is test data."""
    validation_size: int = 5_000
    """Number of expressions to hold out for validation, if the data have no validation file."""
    train_size: int | None = None
    """Number of training expressions to use, the first ones of the training data; None for all."""
    max_train_length: int = 100
    """Drop training and validation expressions with more tokens than this. Test data keep all lengths."""
    augment: tuple[Literal["none", "arguments"], ...] = ("none",)
    """Data augmentation: how training expressions are changed at random in each epoch. `arguments` shuffles
    the arguments of each operator, which does not change its value."""


@dataclass
class ListOpsConfig(DataConfig, ClassifierConfig):
    """Train a model to evaluate ListOps expressions."""

    preset: Literal["paper", "curriculum", "demo"] = "paper"
    """Default values of the other options: `paper` has the paper's; `curriculum` adds short expressions
    first, averaged weights and --restore-best, and learns in fewer epochs; `demo` trains in minutes on a
    laptop."""
    chunk_size: int = 8
    """Chunk size of ON-LSTM: hidden units per master-gate entry."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "expressions", largest=MOST_EXAMPLES)
        check_several_or_none(self, "augment", "arguments or none")
        check_at_least(1, self, "validation_size", "train_size", "max_train_length")

    @property
    def unused(self) -> dict[str, str]:
        unused = super().unused
        if self.data_dir is not None:
            unused["expressions"] = "with --data-dir"
            if is_long_range_arena(self.data_dir):
                unused["validation_size"] = "with the files of Long Range Arena, which have validation data"
        if self.model == "mean":  # there is no hidden layer
            unused["slot_size"] = "with --model mean"
        return unused

    @property
    def draws_data(self) -> bool:
        return self.data_dir is None or not is_long_range_arena(self.data_dir)

    @property
    def data_options(self) -> tuple[str, ...]:
        return ("expressions", "validation_size")

    @property
    def batch_options(self) -> tuple[str, ...]:
        return (*super().batch_options, "augment")

    @property
    def directory(self) -> Path:
        """The run directory; by default the same for the same preset, model and seed."""
        return self.given_directory or Path("runs", "listops", f"{self.preset}-{self.model_name}-{self.seed}")


PRESETS: dict[str, ListOpsConfig] = {
    "paper": ListOpsConfig(),
    "demo": ListOpsConfig(
        **DEMO_MODEL,
        max_minutes=5,
        validation_size=2_500,
        curriculum_epochs=5,
        average_decay=0.999,
        num_slots=12,
        test_num_slots=21,
        batch_size=64,
    ),
}
PAPER_CRVNN = replace(
    PRESETS["paper"], model="crvnn", input_dropout=0.3, optimizer="radam", adam_betas=(0.9, 0.999)
)
"""Configuration of the CRvNN paper, without Lookahead."""
CURRICULUM = {"preset": "curriculum", "curriculum_epochs": 6, "average_decay": 0.999, "restore_best": True}
"""The options that the preset `curriculum` adds to `paper`."""
presets_of = presets_by_model(PRESETS, {"crvnn": PAPER_CRVNN}, CURRICULUM)
