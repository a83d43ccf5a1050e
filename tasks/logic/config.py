"""Options of the logic task, and the presets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tasks.classifiers.config import DEMO as DEMO_MODEL
from tasks.classifiers.config import TRANSFORMERS, ClassifierConfig, presets_by_model
from tasks.logic.data import SplitName
from tasks.runs.options import MOST_EXAMPLES, check_at_least, check_several_or_none


@dataclass
class DataConfig:
    """Data."""

    split: SplitName = "full"
    """Systematic split whose pattern is left out of the training data; `full` leaves nothing out."""
    data_dir: Path | None = None
    """Directory with the official train0 … test12, optionally compressed (.gz, .bz2, .xz), used in
    place of --generated; None to generate or download the data."""
    generated: int = 0
    """Number of pairs to generate (500,000 for the official data); 0 to download the official files."""
    augment: tuple[Literal["none", "names", "formulas", "operands", "duals"], ...] = ("none",)
    """Data augmentation: how training pairs are changed at random in each epoch. `names` renames variables,
    `formulas` exchanges the two formulas, `operands` those of `and` and `or`, and `duals` exchanges `and` and
    `or`. The relation is changed accordingly. No pair gets the pattern that the split leaves out."""


@dataclass
class LogicConfig(DataConfig, ClassifierConfig):
    """Train a model to predict the relation between two formulas of propositional logic."""

    preset: Literal["paper", "curriculum", "demo"] = "paper"
    """Default values of the other options: `paper` has the paper's; `curriculum` adds short formulas first,
    averaged weights and --restore-best, and learns in fewer epochs; `demo` trains in minutes on generated
    pairs."""

    def check(self) -> None:
        super().check()
        check_at_least(0, self, "generated", largest=MOST_EXAMPLES)
        check_several_or_none(self, "augment", "one or more of names, formulas, operands and duals, or none")

    @property
    def unused(self) -> dict[str, str]:
        unused = super().unused
        if self.data_dir is not None:
            unused["generated"] = "with --data-dir"
        if self.model in TRANSFORMERS:  # there is no projection from embeddings to slots
            unused["embedding_size"] = f"with --model {self.model}, whose embeddings have --slot-size"
        return unused

    @property
    def draws_data(self) -> bool:
        return self.data_dir is None and self.generated > 0

    @property
    def data_options(self) -> tuple[str, ...]:
        return ("generated", "split")

    @property
    def batch_options(self) -> tuple[str, ...]:
        return (*super().batch_options, "augment")

    @property
    def directory(self) -> Path:
        """The run directory; by default the same for the same preset, split, model and seed."""
        name = f"{self.preset}-{self.split}-{self.model_name}-{self.seed}"
        return self.given_directory or Path("runs", "logic", name)


PAPER = LogicConfig(
    embedding_size=200,
    slot_size=200,
    num_slots=12,
    test_num_slots=24,
    cell_dropout=0.2,
    attention_dropout=0.2,
    input_dropout=0.1,
    output_dropout=0.3,
)
"""Configuration of the Ordered Memory paper."""
PAPER_ONLSTM = LogicConfig(
    model="onlstm",
    embedding_size=128,
    slot_size=400,
    input_dropout=0.2,
    output_dropout=0.2,
    adam_betas=(0.9, 0.999),
)
"""Configuration of the ON-LSTM paper: 400 units, embedding size 128, dropout 0.2; Adam as in its authors'
code."""
PAPER_CRVNN = replace(PAPER, model="crvnn", cell_dropout=0.1, optimizer="radam", adam_betas=(0.9, 0.999))
"""Configuration of the CRvNN paper, without Lookahead."""
PAPER_TREE_RNN = replace(
    PAPER, model="gold-tree-rnn", cell_dropout=0.0, input_dropout=0.0, output_dropout=0.0
)
"""The same without dropout: a TreeRNN with dropout in the composition learns little. That of words and
classifier helps on split B, perhaps on C, but not on A and `full` (docs/experiments.md)."""
DEMO = LogicConfig(
    **DEMO_MODEL,
    generated=50_000,
    max_minutes=8,
    num_slots=12,
    test_num_slots=24,
)
PRESETS: dict[str, LogicConfig] = {"paper": PAPER, "demo": DEMO}
CURRICULUM = {
    "preset": "curriculum",
    "curriculum_epochs": 5,
    "curriculum_length": 17,
    "average_decay": 0.998,
    "restore_best": True,
}
"""The options that the preset `curriculum` adds to `paper`."""
presets_of = presets_by_model(
    PRESETS, {"onlstm": PAPER_ONLSTM, "crvnn": PAPER_CRVNN, "gold-tree-rnn": PAPER_TREE_RNN}, CURRICULUM
)
