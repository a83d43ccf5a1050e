"""Options of the logic task, and the presets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tasks.classifiers.encoders import DEMO as DEMO_MODEL
from tasks.classifiers.seeds import ClassifierConfig
from tasks.logic.data import SplitName
from tasks.runs.options import check_at_least


@dataclass
class DataConfig:
    """The pairs of formulas."""

    split: SplitName = "full"
    """Pairs that are left out of training: none (full), or those with the pattern of a systematic split."""
    data_dir: Path | None = None
    """Directory with the official train0 … test12, preferred to --generated; None to draw or fetch pairs."""
    generated: int = 0
    """Number of pairs to draw (500,000 in the official data); 0 to fetch the official files."""


@dataclass
class LogicConfig(DataConfig, ClassifierConfig):
    """Train a model to tell how two formulas of propositional logic are related."""

    preset: Literal["demo", "paper"] = "paper"
    """Defaults of the other options: `paper` has those of the paper, `demo` learns drawn pairs in minutes."""

    def check(self) -> None:
        super().check()
        check_at_least(0, self, "generated")

    @property
    def directory(self) -> Path:
        """Where the run goes: the same place for the same experiment."""
        name = f"{self.preset}-{self.split}-{self.model_name}-{self.seed}"
        return self.run_dir or Path("runs", "logic", name)


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
"""The Ordered Memory paper's."""
PAPER_ONLSTM = LogicConfig(
    model="onlstm",
    embedding_size=128,
    slot_size=400,
    input_dropout=0.2,
    output_dropout=0.2,
    adam_betas=(0.9, 0.999),
)
"""The ON-LSTM paper's: 400 units, embedding 128, dropout 0.2; Adam as in its authors' code."""
DEMO = LogicConfig(
    **DEMO_MODEL,
    generated=50_000,
    max_minutes=8,
    num_slots=12,
    test_num_slots=24,
)
PRESETS: dict[str, LogicConfig] = {"paper": PAPER, "demo": DEMO}


def presets_of(model: str | None) -> dict[str, LogicConfig]:
    """The presets for a model.

    ON-LSTM has its own paper's; a TreeRNN learns little with any dropout.

    Args:
        model: value of `--model`; None if it is not given.
    Returns:
        Configurations by name, the default first.
    """
    if model == "onlstm":
        return {"paper": PAPER_ONLSTM, "demo": DEMO}
    if model == "gold-tree-rnn":
        plain = replace(PAPER, cell_dropout=0.0, input_dropout=0.0, output_dropout=0.0)
        return {"paper": plain, "demo": DEMO}
    return PRESETS
